"""One case of several ways to do the same on the processor: the first result, of NumPy, is right.

The families that use it say what is done; the timing is in `harness.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harness import OURS, Case, Contender, Goal, largest_error

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["goals_at", "is_small", "same_work"]

# Never slower than NumPy from here on; below, no more than a microsecond.
_NEVER_SLOWER: Final = 1 << 16
_LARGE: Final = 1 << 24


def is_small(elements: int) -> bool:
    """Return whether the call itself is what costs; what is asked there is asked of a plan."""
    return elements < _NEVER_SLOWER


def goals_at(elements: int, ratio: float) -> tuple[Goal, ...]:
    """Return what is asked at a size; `ratio` times NumPy's speed where arrays are large."""
    if is_small(elements):
        return (Goal("numpy", seconds=1e-6),)
    return (Goal("numpy", ratio if elements >= _LARGE else 1.0),)


def same_work(
    name: str,
    x: np.ndarray[Any, Any],
    contenders: dict[str, Callable[[], Any] | str],
    goals: tuple[Goal, ...],
    *,
    moved: int,
    tolerance: float = 0.0,
) -> Case:
    """Make a case of functions that return their results; texts say why there is none."""
    found = tuple(Contender(n, run) for n, run in contenders.items() if not isinstance(run, str))
    wanted = np.array(next(c for c in found if c.name == "numpy").run())
    scale = float(np.max(np.abs(wanted), initial=1.0))

    def error(contender: Contender) -> float:
        got = np.asarray(contender.run())
        if got.shape != wanted.shape:
            return float("inf")
        return largest_error(got, wanted, scale, whole=contender.name == OURS)

    return Case(
        name=name,
        dtype=x.dtype.name,
        elements=x.size,
        contenders=found,
        goals=goals,
        bytes=moved,
        tolerance=tolerance,
        skipped={n: text for n, text in contenders.items() if isinstance(text, str)},
        error=error,
    )
