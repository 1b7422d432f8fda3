"""The time that a family may take, divided over its rows; and the order in which they are measured.

What is asked of most comes first, so that what a run has no time for is what matters least.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from harness import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from harness import Budget

__all__ = ["Allowance", "in_order"]

# The sizes in the order in which they are measured, each for all types; other sizes follow.
_FIRST: Final = (1 << 28, 1 << 20, 1 << 12, 1 << 24, 1 << 16)
# A row costs as much as making it ready does, and more the larger it is: one of so many elements
# twice as much as a small one.
_TWICE: Final = 1 << 26
# Where time is short, a row is timed for this share of the usual time, not for less.
_LEAST: Final = 0.25


def in_order(
    made: Iterable[Any], is_asked: Callable[[Any], bool] = lambda _: True
) -> Generator[tuple[Any, list[int] | None], None, None]:
    """Yield what is asked of a family, by size, each with the sizes of those that follow.

    A family that makes whole cases keeps its own order, and does not know what follows: None.

    Examples
    --------
    >>> from harness import Later
    >>> rows = [Later("sum", "f4", 1 << n, print) for n in (12, 20, 28)]
    >>> [(row.elements, later) for row, later in in_order(rows)]
    [(268435456, [1048576, 4096]), (1048576, [4096]), (4096, [])]
    """
    rest = iter(made)
    first = next(rest, None)
    if isinstance(first, Case):
        for case in chain((first,), rest):
            if is_asked(case):
                yield case, None
    elif first is not None:
        ordered = sorted(filter(is_asked, (first, *rest)), key=_rank)
        sizes = [found.elements for found in ordered]
        for number, found in enumerate(ordered):
            yield found, sizes[number + 1 :]


def _rank(made: Any) -> int:
    return _FIRST.index(made.elements) if made.elements in _FIRST else len(_FIRST)


def _weight(elements: int) -> float:
    return 1 + elements / _TWICE


@dataclass(slots=True)
class Allowance:
    """What is left of some seconds, from now on; None is as much time as it takes.

    Examples
    --------
    >>> from harness import QUICK
    >>> plenty = Allowance(None)
    >>> plenty.of_next(1000, (), QUICK) == QUICK
    True
    >>> Allowance(0.0).of_next(1000, (), QUICK) is None
    True
    """

    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _row: float = field(init=False)
    _preparing: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._start = self._row = self.clock()

    def left(self) -> float:
        """Return the seconds that are left."""
        if self.seconds is None:
            return float("inf")
        return self.seconds - (self.clock() - self._start)

    def of_next(self, elements: int, later: Sequence[int], budget: Budget) -> Budget | None:
        """Return how long the next row is measured, None where no time is left.

        `elements` is its size, `later` those of the rows that follow.
        """
        self._row = self.clock()
        left = self.left()
        if left <= 0:
            return None
        if self.seconds is None:
            return budget
        weight = _weight(elements)
        mine = left * weight / (weight + sum(map(_weight, later)))
        spare = mine - (statistics.median(self._preparing) if self._preparing else 0.0)
        share = min(1.0, max(_LEAST, spare / budget.case_seconds))
        return replace(budget, share=share, case_seconds=share * budget.case_seconds)

    def spent(self, budget: Budget) -> None:
        """Note that a row is done: what it took beside the time it was measured for."""
        self._preparing.append(max(0.0, self.clock() - self._row - budget.case_seconds))
