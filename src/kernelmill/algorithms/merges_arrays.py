"""`merge` on a device: one pass of `device/merge_sort.cuh` over two arrays, and its operands.

The function and its checks are in `merge.py`, sorts by comparison in `merges_sort.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.merges_source import (
    SPREAD,
    begin_source,
    pass_source,
    room_of_block,
    split_source,
    work_bytes,
)
from kernelmill.algorithms.plan import Built, build
from kernelmill.algorithms.policy_merges import SPLIT_THREADS, split_blocks
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_cuda import absent, copied, taken
from kernelmill.algorithms.sort_cuda_passes import (
    NARROW,
    PLACES,
    new,
    number,
    step,
)
from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.merges_source import MergeOrder
    from kernelmill.algorithms.plan import Bound
    from kernelmill.algorithms.policy_merges import MergeTile
    from kernelmill.dtypes import DType, StructType
    from kernelmill.runtime.backend import Backend, KernelSource
    from kernelmill.runtime.memory import View

__all__ = ["ArrayMerge"]

# Payloads that are carried along; others are taken by their places afterwards.
_CARRIED: Final = (4, 8)


@dataclass(slots=True)
class ArrayMerge:
    """A merge on its way to launches: pairs of arrays, elements first, and an output for each."""

    pairs: Sequence[tuple[Argument, Argument]]
    outputs: Sequence[Argument]
    order: MergeOrder
    tile: MergeTile
    backend: Backend
    steps: list[Bound] = field(default_factory=list)
    later: list[Bound] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many elements the result has."""
        return self.outputs[0].view.size

    @property
    def _carried(self) -> int:
        """Whether values are carried along: where there is one for each element, of a word."""
        return len(self.pairs) == 2 and all(  # noqa: PLR2004 - elements and one value
            a.view.dtype.itemsize in _CARRIED for a in self.pairs[1]
        )

    def bind(self) -> Bound:
        """Bind all launches of the call."""
        keys = [self._read(a) for a in self.pairs[0]]
        results = [self._written(o) for o in self.outputs]
        like = results[0]
        nothing = absent(like)
        memory = new(like, work_bytes(-(-self.size // self.tile.elements)))
        values, beside, payload, flags = (nothing, nothing), nothing, 0, 0
        if self._carried:
            ((first, second),) = self.pairs[1:]
            payload, beside = first.view.dtype.itemsize, results[1]
            values = (self._read(first), self._read(second))
        elif len(self.pairs) > 1:
            payload, flags = 4 if self.size <= NARROW else 8, PLACES
            beside = _line(like, number(payload), self.size)
        self._merge((*keys, *values, like, beside, memory), payload, flags)
        if flags:
            for pair, result in zip(self.pairs[1:], results[1:], strict=True):
                whole = self._joined(pair)
                shape = (1, self.size)
                self.steps.append(taken(whole, beside, result, shape, self.backend))
        self.steps += self.later
        return bound_steps(self.steps)

    # ------------------------------------------------------------------ operands

    def _read(self, given: Argument) -> View:
        """Return an input that lies without gaps, and under no output."""
        made = given.apart_from(self.outputs, elementwise=False).view
        if made.is_c_contiguous and made.ptr % _unit(made) == 0:
            return made
        beside = _line(made, made.dtype, made.size)
        self.steps.append(copied(given.name, made, beside))
        return beside

    def _written(self, given: Argument) -> View:
        """Return where a result is written: in its array, or beside it and copied."""
        view = given.view
        if view.is_c_contiguous and view.ptr % _unit(view) == 0:
            return view
        made = _line(view, view.dtype, view.size)
        self.later.append(copied(given.name, made, view))
        return made

    def _joined(self, pair: tuple[Argument, Argument]) -> View:
        """Return two arrays of values behind each other."""
        first = pair[0].view
        made = _line(first, first.dtype, self.size)
        for a, at in zip(pair, (0, first.nbytes), strict=True):
            part = replace(made, ptr=made.ptr + at, shape=a.view.shape)
            self.steps.append(copied(a.name, a.view, part))
        return made

    # ------------------------------------------------------------------ launches

    def _merge(self, views: tuple[View, ...], payload: int, flags: int) -> None:
        order, tile = self.order, self.tile
        tiles = -(-self.size // tile.elements)
        numbers = (tiles, 0, 0, flags, tiles)
        splits = self._built(("splits",), partial(split_source, order, tile, "array_runs"))
        merges = self._built(
            ("pass", payload), partial(pass_source, order, payload, tile, "array_runs")
        )
        room = room_of_block(tile, order.type.itemsize, payload)
        blocks, spread = split_blocks(tiles)
        told = (tiles, 0, 0, flags | SPREAD * spread, tiles)
        launches = [
            (splits, Grid(blocks, SPLIT_THREADS, told)),
            (merges, Grid(max(1, tiles), tile.threads, numbers, shared=room)),
        ]
        if blocks > 1:
            begins = self._built(("begin",), partial(begin_source, order, tile))
            launches.insert(0, (begins, Grid(1, SPLIT_THREADS, numbers)))
        for built, grid in launches:
            shape = (views[0].size, views[1].size)
            bound = replace(step(built, shape, views, grid), elements=self.size)
            self.steps.append(replace(bound, functions=(order.compare.op.function,)))

    def _built(self, key: tuple[object, ...], source: Callable[[], KernelSource]) -> Built:
        order = self.order
        cost = Cost(2 * order.type.itemsize, order.flops + 8)
        full = ("merge arrays", *key, self.tile, order.key)
        return build(full, "merge", order.scope, cost, source, backend=self.backend)


def _line(like: View, dtype: DType | StructType, size: int) -> View:
    """Return new memory for so many elements, where an array is."""
    made = new(like, size * dtype.itemsize)
    return replace(made, shape=(size,), strides=(dtype.itemsize,), dtype=dtype)


def _unit(view: View) -> int:
    """Return what an address of elements is a multiple of: words are moved as such."""
    size = view.dtype.itemsize
    return size if size in _CARRIED else view.dtype.alignment
