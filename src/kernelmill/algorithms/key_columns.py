"""Keys and values of a call by key: arrays or iterators, as columns that a kernel reads.

What is done with them is in `scans_by_key.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.arguments import Argument, backend_of, rules_of
from kernelmill.algorithms.feed_nodes import Ground
from kernelmill.algorithms.feeds import Feed, moved_feeds, read_feeds
from kernelmill.algorithms.lines import lines_of
from kernelmill.algorithms.moves import Moved, moved
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Access
    from kernelmill.dtypes import DType, PromotionTable, StructType
    from kernelmill.runtime.backend import Backend

__all__ = ["Column", "Taken", "access_of", "moved_columns"]


@dataclass(frozen=True, slots=True)
class Column:
    """Keys or values: an array, or a feed where something is computed."""

    type: DType | StructType
    arguments: tuple[Argument, ...]
    feed: Feed | None = None

    @classmethod
    def of(cls, feed: Feed) -> Column:
        """Return what is read of an input."""
        return cls(feed.type, feed.arguments, None if feed.is_plain else feed)

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """Strides of the operands in the one dimension, in bytes."""
        return self.feed.strides if self.feed else tuple(a.view.strides for a in self.arguments)

    @property
    def nbytes(self) -> int:
        """Bytes that move for one element."""
        return self.type.itemsize if self.feed is None else self.feed.nbytes

    def apart_from(self, outputs: Sequence[Argument], *, elementwise: bool) -> Column:
        """Return the column with arrays copied that an output overlaps."""
        if self.feed is None:
            (given,) = self.arguments
            return replace(self, arguments=(given.apart_from(outputs, elementwise=elementwise),))
        sinks = [
            Feed("out", o.name, o.view.dtype, None, (o,), self.feed.target, written=1)
            for o in outputs
        ]
        feed = self.feed.apart_from(sinks, elementwise=elementwise)
        return replace(self, arguments=feed.arguments, feed=feed)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a call reads, and where it runs; `arguments` decide in which library results are."""

    keys: Column
    values: Column
    length: int
    arguments: list[Argument]
    backend: Backend
    rules: PromotionTable


def moved_columns(name: str, inputs: tuple[Any, ...], out: Any) -> tuple[Moved, Taken]:
    """Return the arguments of a call where it runs, and what it reads."""
    outs = out if type(out) is tuple else (out,)
    if any(is_iterator(x) or type(x) is tuple for x in (*inputs, *outs)):
        call = moved_feeds(inputs, out, "keys")
        return call, _fed(name, call.inputs)
    call = moved(inputs, out, "keys")
    keys, values = lines_of(call.inputs, ("keys", "values"), name)
    first, second = (Column(a.view.dtype, (a,)) for a in (keys, values))
    backend = backend_of((keys, values), "scan")
    rules = rules_of((values,))
    return call, Taken(first, second, values.view.shape[0], [values, keys], backend, rules)


def _fed(name: str, inputs: tuple[Any, ...]) -> Taken:
    """Return what is read where some of it is computed."""
    feeds = read_feeds(inputs, ("keys", "values"), "scan")
    length = feeds.length
    if length is None:
        raise ArgumentError(
            f"{name} got iterators without an end",
            hint="give one of them a length, or pass an array beside them",
        )
    given = feeds.arguments or [Ground.of((), length).index()]  # it says where the call runs
    keys, values = map(Column.of, feeds.read)
    return Taken(keys, values, length, given, feeds.backend, feeds.rules)


def access_of(given: Argument, backend: Backend) -> Access:
    """Return how a kernel reaches an array of one dimension."""
    view = given.view
    adjacent = view.size <= 1 or view.strides[0] == view.dtype.itemsize
    return given.access(backend.target, "contiguous" if adjacent else "strided")
