"""Waiting for several answers of a registry at the same time, in threads. Knows no registry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["MOST_REQUESTS", "both", "each"]

MOST_REQUESTS: Final = 16
_A = TypeVar("_A")
_B = TypeVar("_B")


def both(one: Callable[[], _A], other: Callable[[], _B]) -> tuple[_A, _B]:
    """Return the results of two functions that run at the same time.

    Examples
    --------
    >>> from kernelmill.package.parallel import both
    >>> both(lambda: 1, lambda: 2)
    (1, 2)
    """
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(other)
        return one(), second.result()


def each(function: Callable[[_A], _B], values: Iterable[_A]) -> Iterator[_B]:
    """Map a function over values, in their order, `MOST_REQUESTS` at a time.

    Examples
    --------
    >>> from kernelmill.package.parallel import each
    >>> list(each(str.upper, ["a", "b"]))
    ['A', 'B']
    """
    waiting = list(values)
    if len(waiting) < 2:  # noqa: PLR2004 - one needs no threads
        yield from map(function, waiting)
        return
    with ThreadPoolExecutor(min(MOST_REQUESTS, len(waiting))) as pool:
        yield from pool.map(function, waiting)
