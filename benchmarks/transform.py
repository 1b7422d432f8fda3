"""Element-wise expressions over contiguous arrays: two, three and four streams of memory."""

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


def _numpy_scale(x: Any, out: Any) -> Any:
    return np.add(np.multiply(x, 2, out=out), 1, out=out)


def _numpy_multiply_add(x: Any, y: Any, z: Any, out: Any) -> Any:
    return np.add(np.multiply(x, y, out=out), z, out=out)


def _numba_scale(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def scale(x: Any, out: Any) -> Any:
        two, one = x.dtype.type(2), x.dtype.type(1)
        for i in prange(x.size):
            out[i] = two * x[i] + one
        return out

    compiled: Callable[..., Any] = jit(scale)
    return compiled


def _numba_multiply_add(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def multiply_add(x: Any, y: Any, z: Any, out: Any) -> Any:
        for i in prange(x.size):
            out[i] = x[i] * y[i] + z[i]
        return out

    compiled: Callable[..., Any] = jit(multiply_add)
    return compiled


def _numba_exp(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def exponential(x: Any, out: Any) -> Any:
        for i in prange(x.size):
            out[i] = np.exp(x[i])
        return out

    compiled: Callable[..., Any] = jit(exponential)
    return compiled


EXPRESSIONS: Final = (
    Expression(
        name="2*x + 1",
        inputs=1,
        ours=lambda x, out: km.transform(x, lambda a: 2 * a + 1, out=out),
        numpy=_numpy_scale,
        out=np.empty_like,
        loop="scale",
        numba=_numba_scale,
        torch=lambda torch, x, out: torch.mul(x, 2, out=out).add_(1),
    ),
    Expression(
        name="x*y + z",
        inputs=3,
        ours=lambda x, y, z, out: km.transform((x, y, z), lambda a, b, c: a * b + c, out=out),
        numpy=_numpy_multiply_add,
        out=np.empty_like,
        loop="multiply_add",
        numba=_numba_multiply_add,
        torch=lambda torch, x, y, z, out: torch.addcmul(z, x, y, out=out),
    ),
    Expression(
        name="exp(x)",
        inputs=1,
        ours=lambda x, out: km.transform(x, np.exp, out=out),
        numpy=lambda x, out: np.exp(x, out=out),
        out=np.empty_like,
        loop="exp",
        numba=_numba_exp,
        torch=lambda torch, x, out: torch.exp(x, out=out),
    ),
)


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in apart(budget.sizes):
        goals = _GOALS if elements >= _LARGE else ()
        for dtype in ("float32", "float64"):
            for expression in EXPRESSIONS:
                yield case_of(expression, dtype, elements, goals)
