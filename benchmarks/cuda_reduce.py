"""Sums of whole arrays on a GPU, by km's own operator and by a Python function, cold and warm.

All contenders accumulate in the same type: int64 for integers, float32 for halves; "cold L2" is
explained in `cuda_transform.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
import kernelmill as km
from cuda_peers import CurrentStream, Work, cupy_view, on_cupy, peer
from harness import BUILT_IN, OURS, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

SUM, PYTHON = "sum", "sum by a Python operator"
plus = km.op(lambda a, b: a + b, commutative=True, name="plus")
_COLD: Final = (1 << 20, 1 << 24)
_LIKE_BUILT_IN: Final = Goal(BUILT_IN, seconds=0.1e-6, share=0.02)
# Relative to the sum of positive values: the order of combination is each contender's own.
_TOLERANCE: Final = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13, "int32": 0, "int64": 0}
_RESULT: Final = {"int32": "int64"}


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    l2_bytes = timing.machine()["l2_bytes"]
    for dtype in timing.DTYPES:
        for elements in timing.sizes(budget):
            yield _work(SUM, dtype, elements)
        for elements in _COLD if not budget.quick else ():
            work = _work(SUM, dtype, elements)
            sets = timing.sets_for(work.bytes, l2_bytes)
            if sets:
                yield _work(SUM, dtype, elements, sets=sets)
    for dtype in ("float32", "float64", "int64"):
        for elements in timing.sizes(budget):
            yield _work(PYTHON, dtype, elements)


def _work(name: str, dtype: str, elements: int, *, sets: int = 0) -> Work:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    # Positive, so that a sum is far from 0; small, so that a sum of halves is one.
    high = 4.0 if dtype != "float16" else min(1.0, 40_000 / elements)
    goals = timing.goals_at(elements)
    makers: dict[str, Callable[[timing.Arrays], Any]]
    if name == PYTHON:
        makers = {OURS: partial(_ours, plus), BUILT_IN: partial(_ours, km.add)}
        goals = (_LIKE_BUILT_IN,)
    else:
        makers = {
            OURS: partial(_ours, km.add),
            "cuda.compute": _cuda_compute,
            "torch": _torch,
            "CuPy": _cupy,
            "Triton": _triton,
        }
    return Work(
        name=f"{name}, cold L2" if sets else name,
        dtype=dtype,
        elements=elements,
        arrays=lambda: timing.Arrays(
            (timing.filled(elements, dtype, 0.0, high),),
            (timing.filled(1, _RESULT.get(dtype, dtype)),),
        ),
        wanted=_wanted,
        makers=makers,
        tolerance=_TOLERANCE[dtype],
        bytes=elements * item,
        goals=goals,
        sets=max(sets, 1),
    )


def _wanted(arrays: timing.Arrays, piece: slice) -> Any:
    torch, (x,) = timing.torch(), arrays.inputs
    wide = torch.float64 if x.dtype.is_floating_point else torch.int64
    return torch.sum(x, dtype=wide).reshape(1)[piece]


# ----------------------------------------------------------------------------- one a contender


def _ours(operator: Any, arrays: timing.Arrays) -> Callable[[], Any]:
    (x,), out = arrays.inputs, arrays.outputs[0].reshape(())
    plan = km.reduce.plan(x, operator, out=out)
    return lambda: plan(x, out=out)


def _torch(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (x,), out = timing.torch(), arrays.inputs, arrays.outputs[0].reshape(())
    return lambda: torch.sum(x, 0, out=out)


def _cupy(arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    x, out = cupy_view(arrays.inputs[0]), cupy_view(arrays.outputs[0].reshape(()))
    return on_cupy(lambda: module.sum(x, dtype=out.dtype, out=out))


def _triton(arrays: timing.Arrays) -> Any:
    module = peer("Triton")
    if isinstance(module, str):
        return module
    call: Callable[[], Any] = module.total(arrays.inputs[0], arrays.outputs[0])
    return call


def _cuda_compute(arrays: timing.Arrays) -> Any:
    """The object form, its storage allocated before; the start's type is that of the accumulator.

    A half is summed as a half: it writes no float32 to an array of halves.
    """
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    torch, (x,), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    start = np.zeros(1, str(out.dtype).removeprefix("torch."))
    op, stream = module.OpKind.PLUS, CurrentStream()
    reducer = module.make_reduce_into(d_in=x, d_out=out, op=op, h_init=start)
    call = partial(reducer, d_in=x, d_out=out, num_items=x.numel(), op=op, h_init=start,
                   stream=stream)  # fmt: skip
    space = torch.empty(max(int(call(temp_storage=None)), 1), dtype=torch.uint8, device="cuda")
    return lambda: call(temp_storage=space)
