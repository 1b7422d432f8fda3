"""Reductions of whole contiguous arrays: one operator, several at once, one of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import REFERENCE, Goal
from peers import Expression, apart, case_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_GOALS: Final = (Goal(REFERENCE, 0.9),)
_LARGE: Final = 1 << 24
_STATISTICS: Final = (km.add, km.minimum, km.maximum)
_larger = km.op(lambda a, b: max(b, a), commutative=True)


def _numba_sum(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def total(x: Any, out: Any) -> Any:
        found = out.dtype.type(0)
        for i in prange(x.size):
            found += x[i]
        out[0] = found
        return out

    compiled: Callable[..., Any] = jit(total)
    return compiled


def _numba_maximum(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def largest(x: Any, out: Any) -> Any:
        found = x[0]
        for i in prange(x.size):
            found = max(found, x[i])
        out[0] = found
        return out

    compiled: Callable[..., Any] = jit(largest)
    return compiled


def _numba_statistics(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def three(x: Any, out: Any) -> Any:
        total, least, most = x.dtype.type(0), x[0], x[0]
        for i in prange(x.size):
            total += x[i]
            least = min(least, x[i])
            most = max(most, x[i])
        out[0], out[1], out[2] = total, least, most
        return out

    compiled: Callable[..., Any] = jit(three)
    return compiled


def _numpy_statistics(x: Any, out: Any) -> Any:
    out[0], out[1], out[2] = np.sum(x), np.min(x), np.max(x)
    return out


def _our_statistics(x: Any, out: Any) -> Any:
    out[0], out[1], out[2] = km.reduce(x, _STATISTICS)
    return out


def _torch_statistics(torch: Any, x: Any, out: Any) -> Any:
    low, high = torch.aminmax(x)
    out[0], out[1], out[2] = torch.sum(x), low, high
    return out


def _one(x: Any) -> Any:
    return np.empty(1, np.sum(x[:1]).dtype)


EXPRESSIONS: Final = (
    (
        Expression(
            name="sum",
            inputs=1,
            ours=lambda x, _: km.reduce(x, km.add),
            numpy=lambda x, _: np.sum(x),
            out=_one,
            loop="sum",
            numba=_numba_sum,
            torch=lambda torch, x, _: torch.sum(x),
            reduces=True,
        ),
        ("float32", "float64", "int32"),
    ),
    (
        Expression(
            name="maximum",
            inputs=1,
            ours=lambda x, _: km.reduce(x, km.maximum),
            numpy=lambda x, _: np.max(x),
            out=lambda x: np.empty(1, x.dtype),
            loop="maximum",
            numba=_numba_maximum,
            torch=lambda torch, x, _: torch.amax(x),
            reduces=True,
        ),
        ("float32",),
    ),
    (
        Expression(
            name="sum, minimum and maximum",
            inputs=1,
            ours=_our_statistics,
            numpy=_numpy_statistics,
            out=lambda x: np.empty(3, x.dtype),
            loop="statistics",
            numba=_numba_statistics,
            torch=_torch_statistics,
            reduces=True,
        ),
        ("float32", "float64"),
    ),
    (
        Expression(
            name="a if a > b else b, commutative",
            inputs=1,
            ours=lambda x, _: km.reduce(x, _larger),
            numpy=lambda x, _: np.max(x),
            out=lambda x: np.empty(1, x.dtype),
            loop="maximum",
            reduces=True,
        ),
        ("float32",),
    ),
)


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in apart(budget.sizes):
        goals = _GOALS if elements >= _LARGE else ()
        for dtype in ("float32", "float64", "int32"):
            for expression, dtypes in EXPRESSIONS:
                if dtype in dtypes:
                    yield case_of(expression, dtype, elements, goals)
