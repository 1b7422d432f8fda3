"""Expressions that NumPy needs temporaries for, in one pass each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import FASTEST, REFERENCE, Goal
from peers import Expression, apart, case_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_GOALS: Final = (Goal(REFERENCE, 0.9), Goal("numpy", 4.0), Goal(FASTEST, 1.0))
_LARGE: Final = 1 << 24


def _numba_wave(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def wave(a: Any, b: Any, c: Any, out: Any) -> Any:
        for i in prange(a.size):
            out[i] = np.exp(-a[i] * a[i]) * np.sin(b[i]) + np.sqrt(c[i])
        return out

    compiled: Callable[..., Any] = jit(wave)
    return compiled


def _numba_distance(jit: Any) -> Callable[..., Any]:
    from numba import prange

    def distance(a: Any, b: Any, c: Any, out: Any) -> Any:
        total = out.dtype.type(0)
        for i in prange(a.size):
            total += (a[i] - b[i]) ** 2 * c[i]
        out[0] = total
        return out

    compiled: Callable[..., Any] = jit(distance)
    return compiled


EXPRESSIONS: Final = (
    Expression(
        name="exp(-a*a) * sin(b) + sqrt(c)",
        inputs=3,
        ours=lambda a, b, c, out: km.transform(
            (a, b, c), lambda x, y, z: np.exp(-x * x) * np.sin(y) + np.sqrt(z), out=out
        ),
        numpy=lambda a, b, c, _: np.exp(-a * a) * np.sin(b) + np.sqrt(c),
        out=np.empty_like,
        loop="wave",
        numba=_numba_wave,
        torch=lambda torch, a, b, c, _: torch.exp(-a * a) * torch.sin(b) + torch.sqrt(c),
        torch_compiled=lambda torch, a, b, c: torch.exp(-a * a) * torch.sin(b) + torch.sqrt(c),
        numexpr="exp(-a*a) * sin(b) + sqrt(c)",
        low=0.0,
    ),
    Expression(
        name="sum((a - b)**2 * c)",
        inputs=3,
        ours=lambda a, b, c, _: km.transform_reduce(
            (a, b, c), lambda x, y, z: (x - y) ** 2 * z, km.add
        ),
        numpy=lambda a, b, c, _: np.sum((a - b) ** 2 * c),
        out=lambda x: np.empty(1, x.dtype),
        loop="distance",
        numba=_numba_distance,
        torch=lambda torch, a, b, c, _: torch.sum((a - b) ** 2 * c),
        torch_compiled=lambda torch, a, b, c: torch.sum((a - b) ** 2 * c),
        numexpr="sum((a - b)**2 * c)",
        low=0.0,
        reduces=True,
    ),
)


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in apart(budget.sizes):
        goals = _GOALS if elements >= _LARGE else ()
        for dtype in ("float32", "float64"):
            for expression in EXPRESSIONS:
                yield case_of(expression, dtype, elements, goals)
