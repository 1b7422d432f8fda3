"""Places of random values in a sorted array of a million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS
from peers import peer
from several import goals_at, is_small, same_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_LENGTH: Final = 1 << 20
# Beyond, NumPy takes minutes.
_MOST: Final = 1 << 22


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    random = np.random.default_rng(1)
    for dtype in ("float32", "float64", "int32", "int64"):
        data = np.sort((random.random(_LENGTH) * (1 << 30)).astype(dtype))
        for elements in (n for n in budget.sizes if n <= _MOST):
            yield _case(data, (random.random(elements) * (1 << 30)).astype(dtype))


def _case(data: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> Case:
    plan = km.lower_bound.plan(data, x)  # type: ignore[attr-defined]
    return same_work(
        "lower_bound",
        x,
        {
            OURS: (lambda: plan(data, x)) if is_small(x.size) else lambda: km.lower_bound(data, x),
            "numpy": lambda: np.searchsorted(data, x),
            "torch": _torch(data, x),
        },
        goals_at(x.size, 10.0),
        moved=x.nbytes + 8 * x.size,
    )


def _torch(data: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> Callable[[], Any] | str:
    module = peer("torch")
    if isinstance(module, str):
        return module
    a, v = module.from_numpy(data), module.from_numpy(x)
    return lambda: module.searchsorted(a, v).numpy()
