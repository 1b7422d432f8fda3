"""Sums of segments on a GPU: of one length, of mixed lengths, by a Python operator, in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
import kernelmill as km
from cuda_peers import CurrentStream, Work, peer
from harness import COPY, OURS, Goal
from segmented import mixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

# Times cuda.compute's speed, which gets no hint either, for each length.
_RATIOS: Final = {1: 10.0, 8: 10.0, 64: 10.0, 1024: 2.0}
_MIXED: Final = Goal(COPY, 0.85)
_LEAST: Final = 1 << 16


def plus(a: Any, b: Any) -> Any:
    """Add two elements, in order: nothing says that it commutes."""
    return a + b


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    for elements in (n for n in timing.sizes(budget) if n >= _LEAST):
        large = elements >= timing.LARGEST
        for length, ratio in _RATIOS.items():
            goals = (Goal("cuda.compute", ratio),) if large else ()
            offsets = partial(_even, length)
            yield _work(f"sums of segments of {length}", km.add, elements, offsets, goals)
        goals = (_MIXED,) if large else ()
        yield _work("sums of segments of mixed lengths", km.add, elements, mixed, goals)
        yield _work("in order: sums of segments of 1024", plus, elements, partial(_even, 1024), ())


def _even(length: int, elements: int) -> np.ndarray[Any, Any]:
    return np.minimum(np.arange(0, elements + length, length), elements)


def _work(
    name: str,
    operator: Any,
    elements: int,
    offsets: Callable[[int], np.ndarray[Any, Any]],
    goals: tuple[Goal, ...],
) -> Work:
    segments = len(offsets(elements)) - 1
    makers: dict[str, Callable[[timing.Arrays], Any]] = {OURS: partial(_ours, operator)}
    if operator is km.add and segments <= elements // 8:
        makers["torch"] = _torch
    makers["cuda.compute"] = partial(_cuda_compute, operator)
    return Work(
        name=name,
        dtype="float32",
        elements=elements,
        arrays=lambda: _arrays(elements, offsets(elements)),
        wanted=_wanted,
        makers=makers,
        tolerance=0,
        bytes=4 * elements + 12 * segments,
        goals=goals,
    )


def _arrays(elements: int, offsets: np.ndarray[Any, Any]) -> timing.Arrays:
    """Whole numbers, small enough that sums are exact in any order."""
    torch = timing.torch()
    x = torch.randint(-4, 5, (elements,), device="cuda").to(torch.float32)
    places = torch.from_numpy(offsets).cuda()
    return timing.Arrays((x, places), (torch.empty(len(offsets) - 1, device="cuda"),))


def _wanted(arrays: timing.Arrays, piece: slice) -> Any:
    torch, (x, offsets) = timing.torch(), arrays.inputs
    sums = torch.cumsum(x, 0, dtype=torch.float64)
    sums = torch.cat([sums.new_zeros(1), sums])
    return (sums[offsets[1:][piece]] - sums[offsets[:-1][piece]]).to(torch.float32)


# ----------------------------------------------------------------------------- one a contender


def _ours(operator: Any, arrays: timing.Arrays) -> Callable[[], Any]:
    (x, offsets), (out,) = arrays.inputs, arrays.outputs
    init = None if operator is km.add else np.float32(0)
    plan = km.segmented_reduce.plan(  # type: ignore[attr-defined]  # a public name
        x, offsets, operator, init=init, out=out
    )
    return lambda: plan(x, offsets, out=out)


def _torch(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (x, offsets), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    return lambda: out.copy_(torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True))


def _cuda_compute(operator: Any, arrays: timing.Arrays) -> Any:
    """The object form, its storage allocated before."""
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    torch, (x, offsets), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    given = {
        "d_in": x,
        "d_out": out,
        "start_offsets_in": offsets[:-1],
        "end_offsets_in": offsets[1:],
        "op": module.OpKind.PLUS if operator is km.add else operator,
        "h_init": np.zeros(1, np.float32),
    }
    call = partial(
        module.make_segmented_reduce(**given),
        **given,
        num_segments=out.numel(),
        stream=CurrentStream(),
    )
    space = torch.empty(max(int(call(temp_storage=None)), 1), dtype=torch.uint8, device="cuda")
    return lambda: call(temp_storage=space)
