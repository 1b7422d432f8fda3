"""Sorts by comparison on a device: the launches of `device/merge_sort.cuh`, and their operands.

Texts are in `merges_source.py`, tiles in `policy_merges.py`; sorts by digits, in `sort_cuda.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.merges_source import (
    RUNS,
    SPREAD,
    MergeOrder,
    pass_source,
    room_of_block,
    split_source,
    tiles_source,
    work_bytes,
)
from kernelmill.algorithms.orders import own_order
from kernelmill.algorithms.plan import Bound, Built, build
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.policy_merges import SPLIT_THREADS, merge_tile, split_blocks
from kernelmill.algorithms.refusals import WIDE
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_cuda import Call, absent
from kernelmill.algorithms.sort_cuda_passes import Arrays, as_rows, flags_of, new, number, step
from kernelmill.compiler.op import specialize
from kernelmill.runtime.backend import CompilesAhead, Grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.policy_merges import MergeTile
    from kernelmill.algorithms.sort_host import HostSort
    from kernelmill.runtime.backend import Backend, KernelSource
    from kernelmill.runtime.memory import View

__all__ = ["MergeCall", "bind_merge_sort", "fitting_tile", "order_of"]


def bind_merge_sort(work: HostSort) -> Bound:
    """Bind a sort by comparison on a device to its launches: the first, and what follows it.

    Raises
    ------
    NotImplementedHere
        Elements have more bytes than a tile holds.
    """
    order, name = order_of(work), work.request.name
    tile = fitting_tile(name, order, work.length, work.backend, pays=name != "sort")
    call = MergeCall(work, order.chip, order=order, tile=tile)
    call.bind()
    return bound_steps(call.steps)


def order_of(work: HostSort) -> MergeOrder:
    """Return the order of a sort: that of its comparator, else the elements' own."""
    compare = work.compare
    if compare is None:
        compare = specialize(own_order([work.type], [work.keys.name]), (work.type, work.type))
    return MergeOrder(work.type, compare, work.request.descending, chip_of(work.backend.arch))


def fitting_tile(
    name: str, order: MergeOrder, length: int, backend: Backend, *, pays: bool
) -> MergeTile:
    """Return the tile of a merge; raises NotImplementedHere where none holds its elements."""
    tile = merge_tile(order.chip, order.itemsize, length, pays=pays)
    if tile is None:
        raise WIDE.error(name=name, bytes=order.type.itemsize, device=backend.name)
    return tile


# Texts that were compiled together; so many are remembered, then it begins anew.
_COMPILED: Final[set[tuple[object, ...]]] = set()
_MOST_COMPILED: Final = 1024


@dataclass(slots=True, kw_only=True)
class MergeCall(Call):
    """A call whose elements are compared."""

    order: MergeOrder
    tile: MergeTile

    @property
    def tiles(self) -> int:
        """How many tiles a row has."""
        return -(-self.work.length // self.tile.elements)

    def bind(self) -> None:
        """Bind all launches of the call."""
        work, passes = self.work, self.passes
        nbytes = self.payload_bytes()
        # Keys of a tile are gone before it is written over; others are only if they go beside it.
        in_place = passes % 2 == 1 or not work.values
        unit = work.type.alignment
        keys = self.input(work.keys, unit, in_place=in_place)
        payload = self.payload(keys, nbytes, in_place=in_place)
        to = absent(keys)
        if work.wants_keys:
            to = self.output(work.outputs[0], unit)
        arrays = Arrays(keys, payload.read, to, payload.written)
        self.merge(arrays, passes, nbytes, wide=payload.wide)
        self.steps += [*self.takes(payload), *self.later]

    @property
    def passes(self) -> int:
        """How many passes there are behind the sort of tiles."""
        passes, runs = 0, self.tiles
        while runs > 1:
            passes, runs = passes + 1, -(-runs // RUNS)
        return passes

    def merge(self, arrays: Arrays, passes: int, payload: int, *, wide: bool) -> None:
        """Bind the launches that sort: tiles first, to where the passes end in the results."""
        rows, size = self.work.shape[0], self.work.keys.view.size
        memory = beside = payload_beside = keys_beside = absent(arrays.keys)
        if passes:
            memory = new(arrays.keys, work_bytes(rows * self.tiles))
            beside = self.items()
            if payload:
                payload_beside = as_rows(
                    new(arrays.keys, size * payload), self.work.shape, number(payload)
                )
        if passes > 1 and not arrays.to.ptr:  # between two passes
            keys_beside = self.items()
        if passes:
            self._compile(payload)
        ends = (arrays.to, arrays.payload_to), (beside, payload_beside)
        keys, carried = arrays.keys, arrays.payload
        for index in range(passes + 1):
            last = index == passes
            to, payload_to = ends[(passes - index) % 2]
            if not to.ptr and not last:
                to = keys_beside
            now = Arrays(keys, carried, to, payload_to)
            flags = flags_of(now, first=index == 0, last=last, wide=wide)
            self.steps += self._launch(now, index, memory, flags, payload)
            keys, carried = to, payload_to

    def _compile(self, payload: int) -> None:
        """Compile the texts of the launches side by side, where nobody has done that."""
        order, tile, backend = self.order, self.tile, self.work.backend
        key = (backend.name, tile, payload, order.key)
        functions = order.compare.translation.program.functions
        if key in _COMPILED or any(f.raw is not None for f in functions):
            return
        if not isinstance(backend, CompilesAhead):
            return
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED.add(key)
        backend.compile_ahead(
            [
                tiles_source(order, payload, tile),
                split_source(order, tile, "row_runs"),
                pass_source(order, payload, tile, "row_runs"),
            ]
        )

    def items(self) -> View:
        """Return memory for what is merged, of all rows."""
        work = self.work
        made = new(work.keys.view, work.keys.view.size * self.order.itemsize)
        return made if self.order.parted else as_rows(made, work.shape, self.order.type)

    def _launch(
        self, arrays: Arrays, index: int, memory: View, flags: int, payload: int
    ) -> list[Bound]:
        """Bind the sort of tiles, which is number 0, or the launches of a pass."""
        order, tile, shape = self.order, self.tile, self.work.shape
        width = tile.elements * RUNS ** (index - 1) if index else 0
        blocks = shape[0] * self.tiles
        numbers = (self.tiles, width, index, flags, blocks)
        views = (*arrays.views, memory)
        room = room_of_block(tile, order.itemsize, payload)
        grid = Grid(max(1, blocks), tile.threads, numbers, shared=room)
        if not index:
            sorts = self.built(("tiles", payload), partial(tiles_source, order, payload, tile))
            return [self.launch(sorts, views, grid)]
        splits = self.built(("splits",), partial(split_source, order, tile, "row_runs"))
        merges = self.built(
            ("pass", payload), partial(pass_source, order, payload, tile, "row_runs")
        )
        count, spread = split_blocks(blocks)
        told = (self.tiles, width, index, flags | SPREAD * spread, blocks)
        searching = Grid(count, SPLIT_THREADS, told)
        return [self.launch(splits, views, searching), self.launch(merges, views, grid)]

    def launch(self, built: Built, views: tuple[View, ...], grid: Grid) -> Bound:
        """Return one launch of the call."""
        found = step(built, self.work.shape, views, grid)
        return replace(found, functions=(self.order.compare.op.function,))

    def built(self, key: tuple[object, ...], source: Callable[[], KernelSource]) -> Built:
        """Return the kernel for a key; its text depends on the order and the tile too."""
        order = self.order
        cost = Cost(2 * order.itemsize, 2 * order.flops + 8)
        full = ("merge", *key, self.tile, order.key)
        return build(full, "sort", order.scope, cost, source, backend=self.work.backend)
