"""Streams of any library as handles: what a caller names, or the one that is current.

Nothing is wrapped: a stream stays the object it is, and what is launched needs only its handle.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.cuda.driver import api, check, core, require

__all__ = [
    "StreamHandle",
    "as_stream",
    "core_stream",
    "current_stream",
    "is_capturing",
    "synchronize",
]

_ACCEPTED: Final = (
    "an object with __cuda_stream__ (cuda.core, CuPy, torch), a torch.cuda.Stream, "
    "a graph builder of cuda.core, the handle as an int, or None for the current stream"
)


@dataclass(frozen=True, slots=True)
class StreamHandle:
    """A stream as the driver knows it; `owner` keeps it open."""

    handle: int
    owner: object = field(default=None, repr=False, compare=False)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return version 0 of the protocol, and the handle."""
        return 0, self.handle


def as_stream(stream: object, device: int = 0) -> StreamHandle:
    """Return the handle of a stream of any library.

    Parameters
    ----------
    stream
        None for the current stream of `device`.
    device
        Number of the device on which it will be used.

    Raises
    ------
    ArgumentError
        It is no stream.
    DeviceError
        It is closed.
    """
    if stream is None:
        return current_stream(device)
    if isinstance(stream, StreamHandle):
        return stream
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise ArgumentError(f"argument 'stream' is {stream}; a handle is 0 or more")
        return StreamHandle(stream)
    if getattr(stream, "is_closed", False):
        raise DeviceError(
            "argument 'stream' is a stream that was closed; nothing can be launched on it",
            hint="keep it open as long as it is used, or make a new one",
        )
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        return StreamHandle(int(answer[1]), stream)
    for name in ("cuda_stream", "ptr"):  # torch before 2.8, CuPy before 13.5
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return StreamHandle(handle, stream)
    inner = getattr(stream, "stream", None)  # a graph builder
    if inner is not None and hasattr(inner, "__cuda_stream__"):
        return as_stream(inner, device)
    kind = f"{type(stream).__module__}.{type(stream).__qualname__}"
    raise ArgumentError(f"argument 'stream' is a {kind}; accepted: {_ACCEPTED}")


def current_stream(device: int = 0) -> StreamHandle:
    """Return torch's current stream where torch uses CUDA, else the default stream.

    CuPy's current stream is its own affair: pass it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # torch.cuda.current_stream makes an object, which takes 7 us; this takes 0.1 us.
        raw = torch._C._cuda_getCurrentRawStream(device)  # noqa: SLF001
        return StreamHandle(int(raw))
    return StreamHandle(0)


def core_stream(stream: StreamHandle) -> Any:  # Any: cuda.core.Stream
    """Return the stream as cuda.core's: the owner itself where it is one."""
    if stream.owner is not None:
        cuda_core = core()
        if isinstance(stream.owner, (cuda_core.Stream, cuda_core.graph.GraphBuilder)):
            return stream.owner
    return _wrapped(stream.handle)


@lru_cache(maxsize=256)
def _wrapped(handle: int) -> Any:  # Any: as above
    """Return a stream that cuda.core knows by its handle alone."""
    cuda_core = core()
    return cuda_core.Stream.from_handle(handle) if handle else cuda_core.LEGACY_DEFAULT_STREAM


def is_capturing(stream: StreamHandle) -> bool:
    """Return whether what is launched on a stream is recorded into a graph."""
    status = check(api().cuStreamIsCapturing(stream.handle), "ask whether a stream is captured")
    return bool(int(status))


def synchronize(stream: object = None, *, device: int = 0) -> None:
    """Wait until a stream has done all that it was given.

    Raises
    ------
    DeviceError
        A kernel failed; the text names the ones launched last.
    """
    require()
    handle = as_stream(stream, device).handle
    check(api().cuStreamSynchronize(handle), f"wait for a stream of cuda:{device}")
    if events.active:
        events.emit("sync", f"stream {handle:#x}", device=f"cuda:{device}", reason="stream")
