"""Running sums of whole arrays on a GPU, by km's own operator and by a Python function.

Every second element is the one before with the other sign: results are exact in any order, in any
type, and known without a scan.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
import kernelmill as km
from cuda_peers import (
    PAIR,
    Pairs,
    Work,
    built_beside,
    cupy_view,
    on_cupy,
    pairs,
    peer,
    prepared,
)
from harness import FASTEST, OURS, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

SUM, PYTHON = "running sum", "running sum by a Python operator"
BEST: Final = "the best so far by a Python operator"
_AT_EVERY_SIZE: Final = Goal(FASTEST, seconds=0.5e-6, share=0.02)
_DTYPES: Final = ("float32", "int32", "int64", "float16")
# Elements of calls that are made so that they are compiled.
_FEW: Final = 64
# Times cuda.compute's speed, for float32 where arrays are largest.
_RATIOS: Final = {SUM: 1.45, PYTHON: 1.85}


def plus(a: Any, b: Any) -> Any:
    """Add two elements."""
    return a + b


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    kinds = [*((km.add, dtype) for dtype in _DTYPES), (plus, "float32")]
    built_beside(
        [
            *(partial(_cuda_compute, op, _arrays(dtype, _FEW)) for op, dtype in kinds),
            lambda: _best(_FEW).makers["cuda.compute"](_pairs(_FEW)),
        ]
    )
    for elements in timing.sizes(budget):
        for dtype in _DTYPES:
            yield _work(SUM, km.add, dtype, elements)
        yield _work(PYTHON, plus, "float32", elements)
        yield _best(elements)


def _work(name: str, operator: Any, dtype: str, elements: int) -> Work:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    goals: tuple[Goal, ...] = (_AT_EVERY_SIZE,)
    if dtype == "float32" and elements >= timing.LARGEST:
        goals += (Goal("cuda.compute", _RATIOS[name]),)
    makers: dict[str, Callable[[timing.Arrays], Any]] = {
        OURS: partial(_ours, operator),
        "cuda.compute": partial(_cuda_compute, operator),
        "torch": _torch,  # by its own sum
        "CuPy": _cupy,
    }
    return Work(
        name=name,
        dtype=dtype,
        elements=elements,
        arrays=partial(_arrays, dtype, elements),
        wanted=_wanted,
        makers=makers,
        tolerance=0,
        bytes=2 * elements * item,
        goals=goals,
    )


def _arrays(dtype: str, elements: int) -> timing.Arrays:
    torch = timing.torch()
    x = torch.randint(-4, 5, (elements,), device="cuda").to(getattr(torch, dtype))
    x[1::2] = -x[: elements // 2 * 2 : 2]
    return timing.Arrays((x,), (torch.empty_like(x),))


def _wanted(arrays: timing.Arrays, piece: slice) -> Any:
    torch, (x,) = timing.torch(), arrays.inputs
    part = x[piece]
    places = torch.arange(x.numel(), device="cuda")[piece]
    return torch.where(places % 2 == 0, part, torch.zeros_like(part))


# ----------------------------------------------------------------------------- structs


def better(a: Any, b: Any) -> Any:
    """Return the pair with the larger key."""
    return a if a.key > b.key else b


def _pairs(elements: int) -> timing.Arrays:
    """Pairs, and the best of each and those before it."""
    torch, x = timing.torch(), pairs(elements)
    best = torch.cummax(x.view(-1, 2)[:, 0], 0)
    wanted = torch.stack((best.values, best.indices.int()), 1).view(-1)
    return timing.Arrays((x, wanted), (torch.empty_like(x),))


def _best(elements: int) -> Work:
    def ours(arrays: timing.Arrays) -> Callable[[], Any]:
        x, out = Pairs(arrays.inputs[0]), Pairs(arrays.outputs[0])
        plan = km.inclusive_scan.plan(x, better, out=out)  # type: ignore[attr-defined]  # public
        return lambda: plan(x, out=out)

    def theirs(arrays: timing.Arrays) -> Any:
        x, out = Pairs(arrays.inputs[0]), Pairs(arrays.outputs[0])
        given = {"d_in": x, "d_out": out, "op": better, "init_value": np.zeros(1, PAIR)}
        return prepared("make_inclusive_scan", given, num_items=arrays.inputs[0].numel() // 2)

    return Work(
        name=BEST,
        dtype="struct of 2 x int32",
        elements=elements,
        arrays=partial(_pairs, elements),
        wanted=lambda arrays, piece: arrays.inputs[1][piece],
        makers={OURS: ours, "cuda.compute": theirs},
        tolerance=0,
        bytes=16 * elements,
        goals=(_AT_EVERY_SIZE,),
    )


# ----------------------------------------------------------------------------- one a contender


def _ours(operator: Any, arrays: timing.Arrays) -> Callable[[], Any]:
    (x,), (out,) = arrays.inputs, arrays.outputs
    dtype = str(x.dtype).removeprefix("torch.")
    plan = km.inclusive_scan.plan(x, operator, dtype=dtype, out=out)  # type: ignore[attr-defined]
    return lambda: plan(x, out=out)


def _torch(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (x,), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    return lambda: torch.cumsum(x, 0, dtype=x.dtype, out=out)


def _cupy(arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    x, out = cupy_view(arrays.inputs[0]), cupy_view(arrays.outputs[0])
    return on_cupy(lambda: module.cumsum(x, dtype=out.dtype, out=out))


def _cuda_compute(operator: Any, arrays: timing.Arrays) -> Any:
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    (x,), (out,) = arrays.inputs, arrays.outputs
    start = np.zeros(1, str(out.dtype).removeprefix("torch."))
    op = module.OpKind.PLUS if operator is km.add else operator
    given = {"d_in": x, "d_out": out, "op": op, "init_value": start}
    return prepared("make_inclusive_scan", given, num_items=x.numel())
