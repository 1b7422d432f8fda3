"""The contenders of a case on a GPU: kernelmill, cuda.compute, torch, CuPy, Triton, each optional.

What an expression is to each of them is in the family's file; device time is in `cuda_timing.py`.
"""

from __future__ import annotations

import gc
import importlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
from harness import BUILT_IN, COPY, OURS, Case, Contender
from kernelmill.errors import KernelmillError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import Goal

__all__ = [
    "PAIR",
    "CurrentStream",
    "Pairs",
    "Work",
    "built_beside",
    "case_of",
    "cupy_view",
    "on_cupy",
    "pairs",
    "peer",
    "prepared",
    "release",
]

# What a peer may answer to a type or a machine that it does not serve.
FAILURES: Final = (
    RuntimeError, TypeError, ValueError, KeyError, AttributeError, OSError, ImportError,
    NotImplementedError,
)  # fmt: skip
_MODULES: Final = {"cuda.compute": "cuda.compute", "CuPy": "cupy", "Triton": "cuda_triton"}
# Copies are shown where memory is the limit, at the sizes that no cache holds.
_COPY_FROM: Final = 1 << 24


@once
def peer(name: str) -> Any:  # Any: a module, or the reason in words why it is absent
    """Return the module of a peer; a text says why there is none."""
    try:
        found = importlib.import_module(_MODULES[name])
    except (ImportError, OSError) as error:
        return str(error) or f"{name} is not installed"
    if name == "cuda.compute" and not hasattr(found, "reduce_into"):
        return "cuda.compute found no driver"
    return found


def release() -> None:
    """Let peers drop what they keep of our arrays, which must not outlive the device's context."""
    module = peer("cuda.compute")
    if not isinstance(module, str):
        module.clear_all_caches()
    gc.collect()


# What structs of the benchmarks are: a key, and where it stood.
PAIR: Final = np.dtype([("key", "i4"), ("at", "i4")])


@dataclass(frozen=True, slots=True)
class Pairs:
    """Neighbours in a tensor of int32 as an array of structs; the memory is the same."""

    tensor: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the memory."""
        return {
            "shape": (self.tensor.numel() // 2,),
            "typestr": PAIR.str,
            "descr": PAIR.descr,
            "data": (self.tensor.data_ptr(), False),
            "strides": None,
            "version": 3,
        }


def pairs(elements: int) -> Any:
    """Return distinct keys in no order, each in front of its place: a tensor of twice as many."""
    torch = timing.torch()
    keys = torch.randperm(elements, device="cuda", dtype=torch.int32)
    places = torch.arange(elements, device="cuda", dtype=torch.int32)
    return torch.stack((keys, places), 1).view(-1)


def built_beside(makers: Sequence[Callable[[], Any]]) -> None:
    """Make calls of peers that compile for seconds in threads beside each other.

    What fails, fails again where the call is made for its case, and is told there.
    """

    def build(make: Callable[[], Any]) -> None:
        timing.torch().cuda.synchronize()  # the thread has a context now
        with suppress(*FAILURES, KernelmillError):
            make()

    with ThreadPoolExecutor(max_workers=max(1, len(makers))) as pool:
        list(pool.map(build, makers))


def prepared(maker: str, given: dict[str, Any], **counts: int) -> Any:
    """Return a call of cuda.compute's object form, its storage allocated before.

    `counts` are how many elements or segments there are, where a call says it.
    """
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    torch = timing.torch()
    made = getattr(module, maker)(**given)
    call = partial(made, **given, **counts, stream=CurrentStream())
    space = torch.empty(max(int(call(temp_storage=None)), 1), dtype=torch.uint8, device="cuda")
    return lambda: call(temp_storage=space)


class CurrentStream:
    """torch's current stream, for cuda.compute, which takes an object with this method."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(timing.torch().cuda.current_stream().cuda_stream)


def cupy_view(tensor: Any) -> Any:
    """Return a tensor as an array of CuPy; the memory is the same."""
    return peer("CuPy").asarray(tensor)


def on_cupy(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls CuPy on torch's current stream."""
    cupy = peer("CuPy")

    def run() -> Any:
        with cupy.cuda.ExternalStream(timing.torch().cuda.current_stream().cuda_stream):
            return call()

    return run


@dataclass(frozen=True, slots=True)
class Work:
    """One expression at one type and size, as each contender does it.

    `arrays` makes a set of arrays, `wanted` gives pieces of an output as they should be from the
    inputs, `makers` are the contenders' own forms: each gets a set and returns the call, or a text
    that says why there is none. A graph has so many `launches`; 0 for what their bytes suggest. A
    call that `waits` for the device cannot be part of a graph, and is timed on a stream.
    """

    name: str
    dtype: str
    elements: int
    arrays: Callable[[], timing.Arrays]
    wanted: Callable[[timing.Arrays, slice], Any]
    makers: dict[str, Callable[[timing.Arrays], Any]]
    tolerance: float
    bytes: int
    written: int = 0
    goals: tuple[Goal, ...] = ()
    sets: int = 1
    skipped: dict[str, str] = field(default_factory=dict)
    launches: int = 0
    waits: bool = False

    def case(self) -> Case:
        """Make the arrays and the graphs of all contenders."""
        return case_of(self)


def case_of(work: Work) -> Case:
    """Return the case of some work, with all contenders that exist here.

    Raises KernelmillError where kernelmill does not do it.
    """
    sets = [work.arrays() for _ in range(work.sets)]
    launches = work.launches or timing.launches_of(work.bytes)
    found: list[Contender] = []
    skipped = dict(work.skipped)
    for name, make in work.makers.items():
        made = _contender(name, make, sets, launches, waits=work.waits)
        if isinstance(made, Contender):
            found.append(made)
        else:
            skipped[name] = made
    if work.elements >= _COPY_FROM:
        found.append(timing.copy_of(work.bytes, launches))

    def error(contender: Contender) -> float:
        first = sets[0]
        timing.poison(first.outputs)
        contender.run()
        timing.torch().cuda.synchronize()
        (out,) = first.outputs
        return timing.difference(out, lambda piece: work.wanted(first, piece))

    return Case(
        name=work.name,
        dtype=work.dtype,
        elements=work.elements,
        contenders=tuple(found),
        goals=tuple(g for g in work.goals if g.peer != COPY or work.elements >= _COPY_FROM),
        bytes=work.bytes,
        written=work.written,
        tolerance=work.tolerance,
        skipped=skipped,
        error=error,
    )


def _contender(
    name: str,
    make: Callable[[timing.Arrays], Any],
    sets: Sequence[timing.Arrays],
    launches: int,
    *,
    waits: bool,
) -> Contender | str:
    """Return a contender, or why there is none; what fails in kernelmill is raised.

    A maker may return two calls: what is timed, and what also puts the result where it belongs.
    """
    try:
        calls = [make(arrays) for arrays in sets]
        if isinstance(calls[0], str):
            return calls[0]
        if waits:
            timer = timing.stream_timer(calls[0], launches)
            return Contender(name, calls[0], timer, single=True)
        if isinstance(calls[0], tuple):
            timed = timing.device_contender(name, [c[0] for c in calls], launches)
            return replace(timed, run=calls[0][1])
        return timing.device_contender(name, calls, launches)
    except (*FAILURES, KernelmillError) as error:
        if name in {OURS, BUILT_IN}:
            raise
        timing.torch().cuda.synchronize()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[0][:200]
