"""In which order threads and blocks of an emulated launch take turns: the record and who set it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Order", "Schedule", "current_schedule", "scheduled"]

Order: TypeAlias = Literal["in order", "reversed", "random"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who runs when.

    Parameters
    ----------
    order
        "in order", "reversed" or "random": of threads, of warps, and of blocks that are live at
        once. Blocks start in ticket order always.
    seed
        Of "random"; the same seed gives the same run.
    blocks
        How many blocks are live at once on one processor thread and take turns; 0 runs one to its
        end before the next, on all processor threads. A cooperative launch has all of them live.
    patience
        Seconds of nothing but spinning after which a launch is given up.

    Raises
    ------
    ArgumentError
        There is no such order, or a number is below 0.

    Examples
    --------
    >>> from kernelmill.runtime.emulator import Schedule
    >>> Schedule("random", seed=7).order
    'random'
    """

    order: Order = "in order"
    seed: int = 0
    blocks: int = 0
    patience: float = 10.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ArgumentError(f"order {self.order!r} does not exist; orders: {ORDERS}")
        if self.seed < 0 or self.blocks < 0 or self.patience <= 0:
            raise ArgumentError(f"{self!r}: seed and blocks are at least 0, patience is above 0")


_PLAIN: Final = Schedule()
_CURRENT: ContextVar[Schedule] = ContextVar("kernelmill_schedule", default=_PLAIN)


def current_schedule() -> Schedule:
    """Return the schedule of launches in this context."""
    return _CURRENT.get()


@contextmanager
def scheduled(schedule: Schedule) -> Iterator[Schedule]:
    """Run the launches inside the `with` by a schedule.

    Examples
    --------
    >>> from kernelmill.runtime.emulator import Schedule, scheduled
    >>> with scheduled(Schedule("reversed")) as schedule:
    ...     schedule.order
    'reversed'
    """
    token = _CURRENT.set(schedule)
    try:
        yield schedule
    finally:
        _CURRENT.reset(token)
