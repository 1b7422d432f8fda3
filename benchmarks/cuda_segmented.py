"""Sums of segments on a GPU: of one length, of mixed lengths, by a Python operator, in order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
import kernelmill as km
from cuda_peers import Work, built_beside, peer, prepared
from harness import COPY, FASTEST, OURS, Goal, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

# Times cuda.compute's speed, which gets no hint either, for each length.
_RATIOS: Final = {1: 10.0, 8: 10.0, 64: 10.0, 1024: 2.0}
_AT_EVERY_SIZE: Final = Goal(FASTEST, seconds=0.5e-6, share=0.02)
_MIXED: Final = Goal(COPY, 0.85)
_LEAST: Final = 1 << 16
_FIXED: Final = "sums of rows of 1024"


def plus(a: Any, b: Any) -> Any:
    """Add two elements, in order: nothing says that it commutes."""
    return a + b


def cases(budget: Budget) -> Iterator[Later]:
    """Yield the cases of the family."""
    built_beside([partial(_cuda_compute, op, _arrays(_even(8, 64), 64)) for op in (km.add, plus)])
    for elements in (n for n in timing.sizes(budget) if n >= _LEAST):
        large = elements >= timing.LARGEST
        for length, ratio in _RATIOS.items():
            goals = (Goal("cuda.compute", ratio),) if large else ()
            yield _later(f"sums of segments of {length}", elements, partial(_even, length), goals)
        yield Later(_FIXED, "float32", elements, partial(_fixed, elements))
        yield _later(
            "sums of segments of mixed lengths", elements, _mixed, (_MIXED,) if large else ()
        )
        yield _later("in order: sums of segments of 1024", elements, partial(_even, 1024), (), plus)


def _later(
    name: str,
    elements: int,
    offsets: Callable[[int], Any],
    goals: tuple[Goal, ...],
    operator: Any = km.add,
) -> Later:
    """Return what makes the offsets, which are as large as the elements, when it is its turn."""

    def case() -> Case:
        return _work(name, operator, elements, offsets(elements), goals).case()

    return Later(name, "float32", elements, case)


def _even(length: int, elements: int) -> Any:
    torch = timing.torch()
    return torch.arange(0, elements + length, length, device="cuda").clamp_(max=elements)


def _mixed(elements: int) -> Any:
    """Return offsets of segments of 1 to 1024 elements and one of a million."""
    torch, share = timing.torch(), max(1, elements // 4)
    some = ((share // 8, 8), (share // 64, 64), (share // 1024, 1024), (1, 1_000_000))
    every = torch.cat(
        [
            torch.randint(1, 4, (share // 2,), device="cuda"),
            *(torch.full((count,), length, device="cuda") for count, length in some),
        ]
    )
    every = every[torch.randperm(every.numel(), device="cuda")]
    offsets = torch.cat([every.new_zeros(1), every.cumsum(0)]).clamp_(max=elements)
    offsets[-1] = elements
    return torch.unique_consecutive(offsets)  # none is empty


def _work(name: str, operator: Any, elements: int, offsets: Any, goals: tuple[Goal, ...]) -> Work:
    segments = offsets.numel() - 1
    makers: dict[str, Callable[[timing.Arrays], Any]] = {OURS: partial(_ours, operator)}
    if operator is km.add and segments <= elements // 8:
        makers["torch"] = _torch
    makers["cuda.compute"] = partial(_cuda_compute, operator)
    return Work(
        name=name,
        dtype="float32",
        elements=elements,
        arrays=partial(_arrays, offsets, elements),
        wanted=lambda arrays, piece: arrays.inputs[2][piece],
        makers=makers,
        tolerance=0,
        bytes=4 * elements + 12 * segments,
        goals=(_AT_EVERY_SIZE, *goals),
    )


def _fixed(elements: int) -> Case:
    """Segments of one length that the call is told."""
    work = _work(_FIXED, km.add, elements, _even(1024, elements), ())
    makers = {OURS: _ours_fixed, "torch": _torch_rows, "cuda.compute": work.makers["cuda.compute"]}
    return replace(work, makers=makers, bytes=4 * elements + elements // 256).case()


def _arrays(offsets: Any, elements: int) -> timing.Arrays:
    """Whole numbers, small enough that sums are exact in any order; their sums are the third."""
    torch = timing.torch()
    x = torch.randint(-4, 5, (elements,), device="cuda").to(torch.float32)
    sums = torch.cumsum(x, 0, dtype=torch.float64)
    ends = torch.where(offsets > 0, sums[(offsets - 1).clamp_(min=0)], 0.0)
    return timing.Arrays(
        (x, offsets, ends.diff().to(torch.float32)),
        (torch.empty(offsets.numel() - 1, device="cuda"),),
    )


# ----------------------------------------------------------------------------- one a contender


def _ours(operator: Any, arrays: timing.Arrays) -> Callable[[], Any]:
    (x, offsets, _), (out,) = arrays.inputs, arrays.outputs
    init = None if operator is km.add else np.float32(0)
    plan = km.segmented_reduce.plan(  # type: ignore[attr-defined]  # a public name
        x, offsets, operator, init=init, out=out
    )
    return lambda: plan(x, offsets, out=out)


def _ours_fixed(arrays: timing.Arrays) -> Callable[[], Any]:
    x, (out,) = arrays.inputs[0], arrays.outputs
    return lambda: km.segmented_reduce(x, segment_size=1024, out=out)


def _torch(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (x, offsets, _), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    return lambda: out.copy_(torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True))


def _torch_rows(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, x, (out,) = timing.torch(), arrays.inputs[0], arrays.outputs
    rows = x.view(-1, 1024)
    return lambda: torch.sum(rows, 1, out=out)


def _cuda_compute(operator: Any, arrays: timing.Arrays) -> Any:
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    (x, offsets, _), (out,) = arrays.inputs, arrays.outputs
    given = {
        "d_in": x,
        "d_out": out,
        "start_offsets_in": offsets[:-1],
        "end_offsets_in": offsets[1:],
        "op": module.OpKind.PLUS if operator is km.add else operator,
        "h_init": np.zeros(1, np.float32),
    }
    return prepared("make_segmented_reduce", given, num_segments=out.numel())
