"""What `make_…` returns: an algorithm that is asked for its workspace, then run; how it is kept."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.op import OpKind, RawOp
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

__all__ = [
    "WORKSPACE",
    "Algorithm",
    "check_stream",
    "clear_all_caches",
    "clear_pch_cache",
    "deserialize",
    "kept",
    "ordered_on",
    "pch_cache_dir",
    "serialize",
]

# Families hold their own workspace; a caller still gets a size that can be allocated.
WORKSPACE: Final = 1
_MARK: Final = "kernelmill cuda_compute "
_FORMAT: Final = f"{_MARK}2"
_PARTS: Final = 4  # format, algorithm, options, digest


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm for arguments like those that it was made with.

    Called with `temp_storage=None` it returns how many bytes it needs; called with an array of so
    many bytes it runs.
    """

    tag: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Algorithm]]] = {}

    def __init_subclass__(cls) -> None:
        if cls.tag:
            Algorithm.registry[cls.tag] = cls

    def serialize(self) -> bytes:
        """Return what `deserialize` makes the algorithm of: its name and options, no code."""
        options = {f.name: getattr(self, f.name) for f in fields(self)}
        return _sealed([_FORMAT, self.tag, options])


def serialize(algorithm: Any) -> bytes:  # Any: so that what is none is named
    """Return the bytes of an algorithm.

    They hold no compiled code: kernels are compiled, or found in the cache, when the algorithm
    runs with its operator.

    Raises
    ------
    TypeError
        It was not made by a `make_…` function.
    """
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise TypeError(f"a {kind} cannot be serialized; make_… functions return what can be")
    return algorithm.serialize()


def deserialize(blob: bytes) -> Algorithm:
    """Return the algorithm that was serialized, in this process or another one.

    Raises
    ------
    ValueError
        The bytes are not those of an algorithm, or they are damaged, or another version wrote them.
    """
    try:
        found = json.loads(bytes(blob).decode())
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"no serialized algorithm: {error}") from error
    head = found[0] if isinstance(found, list) and found else None
    if not isinstance(head, str) or not head.startswith(_MARK):
        raise ValueError("no serialized algorithm: the bytes are of another kind")
    if head != _FORMAT:
        raise ValueError(
            f"serialized as {head!r}, which this version does not read; it writes {_FORMAT!r}: "
            "serialize the algorithm again"
        )
    if len(found) != _PARTS or _sealed(found[:-1]) != bytes(blob):
        raise ValueError("the serialized algorithm is damaged: its digest does not fit")
    _, tag, options, _ = found
    made = Algorithm.registry.get(tag)
    if made is None or set(options) != {f.name for f in fields(made)}:
        raise ValueError(f"no serialized algorithm: algorithm {tag!r} with options {options!r}")
    return made(**options)


def _sealed(parts: list[Any]) -> bytes:
    """Return what is serialized as bytes, with a digest as the last part."""
    text = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return json.dumps([*parts, digest], sort_keys=True).encode()


# ----------------------------------------------------------------------------- kept


_KEPT: dict[Hashable, Algorithm] = {}


def clear_all_caches() -> None:
    """Forget all algorithms that were made; kernels stay in the cache on disk."""
    _KEPT.clear()


def clear_pch_cache() -> int:
    """Return how many precompiled headers were removed: none, since none are kept."""
    return 0


def pch_cache_dir() -> Path | None:
    """Return where precompiled headers are kept: nowhere, since there are none."""
    return None


def kept(make: Callable[[], Algorithm], *arguments: Any) -> Algorithm:  # Any: whatever is passed
    """Return the algorithm for such arguments: one object for arguments of the same kinds."""
    for given in arguments:
        elements.check_contiguous(given)
    key = make, tuple(map(_described, arguments))
    found = _KEPT.get(key)
    if found is None:
        found = _KEPT.setdefault(key, make())
    return found


def _described(given: Any) -> Hashable:  # Any: as above
    if given is None or isinstance(given, (OpKind, RawOp, int, str, bool)):
        return given
    if elements.is_sequence(given):
        return elements.kind_of(given)
    if callable(given) and not hasattr(type(given), "__kernelmill_struct__"):
        return elements.code_of(given)
    return elements.type_of(given)


# ----------------------------------------------------------------------------- streams


@contextmanager
def ordered_on(stream: Any, *arrays: Any) -> Iterator[None]:  # Any: of any library
    """Order what is launched inside behind a stream's work so far, and the stream behind it.

    Raises
    ------
    TypeError
        It has no `__cuda_stream__`, or a version of it that is not known.
    """
    handle = _handle_of(stream)
    if handle is None or not any(is_on_cuda(a) for a in arrays):
        yield
        return
    from kernelmill.runtime.cuda.driver import api, check  # noqa: PLC0415 - where a GPU is
    from kernelmill.runtime.cuda.stream import current_stream  # noqa: PLC0415

    current, driver = current_stream().handle, api()

    def behind(first: int, second: int) -> None:
        event = check(driver.cuEventCreate(_NO_TIMING), "make an event")
        check(driver.cuEventRecord(event, first), "record an event on a stream")
        check(driver.cuStreamWaitEvent(second, event, 0), "wait for a stream")
        check(driver.cuEventDestroy(event), "drop an event")

    behind(handle, current)
    try:
        yield
    finally:  # what was launched before an error is waited for too
        behind(current, handle)


_NO_TIMING: Final = 2


def check_stream(stream: Any) -> None:  # Any: of any library
    """Raise TypeError for what is no stream."""
    _handle_of(stream)


def _handle_of(stream: Any) -> int | None:  # Any: as above
    if stream is None:
        return None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(
            f"stream argument {stream!r} does not implement the '__cuda_stream__' protocol"
        )
    answer = protocol() if callable(protocol) else protocol
    try:
        version, handle = answer
    except (TypeError, ValueError):
        raise TypeError(
            f"could not obtain __cuda_stream__ protocol version and handle from {answer!r}"
        ) from None
    if version != 0:
        raise TypeError(f"unsupported __cuda_stream__ version {version}; 0 is known")
    if not isinstance(handle, int):
        raise TypeError(f"invalid stream handle {handle!r}; it is an integer")
    return handle
