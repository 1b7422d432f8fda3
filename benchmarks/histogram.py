"""Histograms of 256 bins, of floats and bytes, counts of integers, sums of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS
from peers import peer, values
from several import goals_at, is_small, same_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in budget.sizes:
        (x,) = values(1, elements, "float32", 0.0, 1.0)
        yield _even("histogram of 256 bins", x, 1.0)
        skewed = np.where(np.arange(elements) % 10 == 0, x, np.float32(0.3))
        yield _even("histogram of 256 bins, 90 % of one value", skewed, 1.0)
        yield _counts("bincount", (x * 256).astype(np.uint8), 17.0)
        yield _counts("bincount", (x * 1000).astype(np.int64), 1.0)
        yield _weights(x)


# The plan of a bincount has as many bins as it is told.
_PLANNED: Final = {"uint8": 256, "int64": 1000}


def _even(name: str, x: np.ndarray[Any, Any], ratio: float) -> Case:
    def ours() -> Any:
        return km.histogram(x, 256, range=(0.0, 1.0))[0]

    plan = km.histogram.plan(x, 256, range=(0.0, 1.0))  # type: ignore[attr-defined]
    return same_work(
        name,
        x,
        {
            OURS: (lambda: plan(x)) if is_small(x.size) else ours,
            "numpy": lambda: np.histogram(x, 256, range=(0.0, 1.0))[0],
            "torch": _torch(lambda torch, t: torch.histc(t, 256, 0.0, 1.0), x),
        },
        goals_at(x.size, ratio),
        moved=x.nbytes,
        tolerance=0.01,  # torch puts values near edges elsewhere
    )


def _counts(name: str, x: np.ndarray[Any, Any], ratio: float) -> Case:
    plan = km.bincount.plan(x, minlength=_PLANNED[x.dtype.name])  # type: ignore[attr-defined]
    length = int(x.max()) + 1
    return same_work(
        name,
        x,
        {
            OURS: (lambda: plan(x)[:length]) if is_small(x.size) else lambda: km.bincount(x),
            "numpy": lambda: np.bincount(x),
            "torch": _torch(lambda torch, t: torch.bincount(t), x),
        },
        goals_at(x.size, ratio),
        moved=x.nbytes,
    )


def _weights(x: np.ndarray[Any, Any]) -> Case:
    places = (x * 1000).astype(np.int64)
    weights = x.astype(np.float64)
    length = int(places.max()) + 1
    plan = km.bincount.plan(places, weights, length)  # type: ignore[attr-defined]

    def ours() -> Any:
        return km.bincount(places, weights=weights)

    return same_work(
        "sums of weights in 1000 bins",
        places,
        {
            OURS: (lambda: plan(places, weights)) if is_small(x.size) else ours,
            "numpy": lambda: np.bincount(places, weights=weights),
        },
        goals_at(x.size, 1.0),
        moved=2 * weights.nbytes,
        tolerance=1e-9,
    )


def _torch(call: Callable[[Any, Any], Any], x: np.ndarray[Any, Any]) -> Callable[[], Any] | str:
    module = peer("torch")
    if isinstance(module, str):
        return module
    tensor = module.from_numpy(x)
    return lambda: call(module, tensor).numpy()
