"""Sums of segments of one length and of mixed lengths, and running sums of segments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS
from peers import peer, values
from several import goals_at, is_small, same_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases", "mixed"]

_LENGTHS: Final = (1, 8, 64, 1024)


def mixed(elements: int) -> np.ndarray[Any, Any]:
    """Return offsets of segments of 1 to 3, 8, 64 and 1024 elements and one of a million."""
    random = np.random.default_rng(1)
    share = max(1, elements // 4)
    lengths = np.concatenate(
        [
            random.integers(1, 4, share // 2),
            np.full(share // 8, 8),
            np.full(share // 64, 64),
            np.full(share // 1024, 1024),
            np.full(1, 1_000_000),
        ]
    )
    random.shuffle(lengths)
    offsets = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), elements)
    offsets[-1] = elements
    return np.unique(offsets)  # none is empty: np.add.reduceat gives something else there


def _ones(elements: int) -> np.ndarray[Any, Any]:
    """Return offsets of half of the elements one by one, and of the others together."""
    return np.append(np.arange(elements // 2 + 1), elements)


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in budget.sizes:
        (x,) = values(1, elements, "float32", 0.0, 1.0)
        for length in _LENGTHS:
            offsets = np.minimum(np.arange(0, elements + length, length), elements)
            yield _sums(f"sums of segments of {length}", x, offsets, 2.5 if length == 8 else 1.0)
        yield _sums("sums of segments of mixed lengths", x, mixed(elements), 1.0)
        yield _sums("sums of segments of 1 and one of half of all", x, _ones(elements), 1.0)


def _sums(name: str, x: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], ratio: float) -> Case:
    begins = offsets[:-1]
    plan = km.segmented_reduce.plan(x, offsets)  # type: ignore[attr-defined]
    ours = (
        (lambda: plan(x, offsets)) if is_small(x.size) else partial(km.segmented_reduce, x, offsets)
    )
    return same_work(
        name,
        x,
        {
            OURS: ours,
            "numpy": lambda: np.add.reduceat(x, begins),
            "torch": _torch(x, offsets),
        },
        goals_at(x.size, ratio),
        moved=x.nbytes + 12 * begins.size,
        tolerance=1e-3,
    )


def _torch(x: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> Callable[[], Any] | str:
    module = peer("torch")
    if isinstance(module, str):
        return module
    a, o = module.from_numpy(x), module.from_numpy(offsets)
    return lambda: module.segment_reduce(a, "sum", offsets=o).numpy()
