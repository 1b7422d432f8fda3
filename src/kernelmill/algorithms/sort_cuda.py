"""Sorts on a device: which kernels of `device/radix*.cuh` a call takes, and on what operands.

The launches of a sort of many tiles are in `sort_cuda_passes.py`, texts in `sort_cuda_source.py`;
what a call is, in `sort_call.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms.arguments import Argument
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.policy_radix import radix_ranks, radix_row
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_cuda_passes import (
    NARROW,
    Arrays,
    Way,
    as_rows,
    built_for,
    flags_of,
    new,
    number,
    row_of,
    step,
)
from kernelmill.algorithms.sort_cuda_source import (
    RANKED,
    TAKE_THREADS,
    TAKEN,
    RadixOrder,
    ranks_room,
    ranks_source,
    rows_room,
    rows_source,
    take_source,
)
from kernelmill.algorithms.transform import bind_operands
from kernelmill.compiler.op import as_op, specialize
from kernelmill.dtypes import DType, int64, uint8
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.memory import may_overlap

if TYPE_CHECKING:
    from kernelmill.algorithms.plan import Bound
    from kernelmill.algorithms.policy import Chip
    from kernelmill.algorithms.policy_radix import RadixTile, RanksPolicy
    from kernelmill.algorithms.sort_host import HostSort
    from kernelmill.runtime.backend import Backend
    from kernelmill.runtime.memory import View

__all__ = [
    "Call",
    "Payload",
    "absent",
    "bind_cuda_sort",
    "copied",
    "has_digits",
    "taken",
    "whole_order",
]

# Payloads that are carried along; others are taken by their places afterwards.
_CARRIED: Final = (4, 8)
_LARGEST_KEY: Final = 8
_WORD: Final = 8
_BYTE_BITS: Final = 8


def bind_cuda_sort(work: HostSort) -> Bound:
    """Bind a sort by digits on a device to its launches: the first one, and what follows it."""
    order = whole_order(work)
    if work.request.bits is not None:
        low, high = work.request.bits
        order = replace(order, first=low, end=high) if low < high else replace(order, end=0)
    call = _RadixCall(work, chip_of(work.backend.arch), order=order)
    call.bind()
    return bound_steps(call.steps)


def has_digits(work: HostSort) -> bool:
    """Return whether a device sorts elements by their digits; others are compared."""
    return not work.merges and work.type.itemsize <= _LARGEST_KEY


def whole_order(work: HostSort) -> RadixOrder:
    """Return the order of a sort by all bits of its elements."""
    assert isinstance(work.type, DType), "other types have no order of their own"
    return RadixOrder(work.type, 0, _BYTE_BITS * work.type.itemsize, work.request.descending)


def absent(like: View) -> View:
    """Return the view of an operand that there is not."""
    return replace(like, ptr=0, shape=(0,), strides=(1,), dtype=uint8)


# ----------------------------------------------------------------------------- a call


@dataclass(frozen=True, slots=True)
class Payload:
    """What is moved with keys: bytes of one, where it is read and written; 0 bytes for nothing.

    `taken` are values that are taken by their places afterwards, which are then the payload.
    """

    nbytes: int
    read: View
    written: View
    taken: tuple[tuple[View, View], ...] = ()

    @property
    def wide(self) -> bool:
        """Whether the result has wider places than those that are moved."""
        return self.nbytes > 0 and self.written.dtype.itemsize > self.nbytes


@dataclass(slots=True)
class Call:
    """One call on its way to launches: `steps` are those so far, `later` come behind them."""

    work: HostSort
    chip: Chip
    steps: list[Bound] = field(default_factory=list)
    later: list[Bound] = field(default_factory=list)

    # ------------------------------------------------------------------ operands

    @property
    def _carries(self) -> bool:
        """Whether the values are a payload that is moved with the keys."""
        values = self.work.values
        return len(values) == 1 and values[0].view.dtype.itemsize in _CARRIED

    def payload_bytes(self) -> int:
        """Return the bytes that are moved beside a key; 0 for none."""
        work = self.work
        if work.request.name == "sort":
            return 0
        if self._carries:
            return work.values[0].view.dtype.itemsize
        return 4 if work.length <= NARROW else 8

    def payload(self, keys: View, nbytes: int, *, in_place: bool) -> Payload:
        """Return what is moved beside keys, and where to."""
        work, nothing = self.work, absent(keys)
        if not nbytes:
            return Payload(0, nothing, nothing)
        if self._carries:
            read = self.input(work.values[0], nbytes, in_place=in_place)
            return Payload(nbytes, read, self.output(work.outputs[1], nbytes))
        if not work.values:
            return Payload(nbytes, nothing, self.output(work.outputs[0], int64.itemsize))
        places = as_rows(new(keys, keys.size * nbytes), work.shape, number(nbytes))
        taken = tuple(
            (
                self.input(v, v.view.dtype.alignment, in_place=False),
                self.output(o, v.view.dtype.alignment),
            )
            for v, o in zip(work.values, work.outputs[1:], strict=True)
        )
        return Payload(nbytes, nothing, places, taken)

    def takes(self, payload: Payload) -> list[Bound]:
        """Return the launches that take values by the places that were sorted."""
        work = self.work
        return [
            taken(values, payload.written, output, work.shape, work.backend)
            for values, output in payload.taken
        ]

    def line(self, given: Argument) -> View:
        """Return an array of one dimension, copied where it has gaps or is written over."""
        view = given.view
        over = any(may_overlap(view, o.view) for o in self.work.outputs)
        if view.is_c_contiguous and view.ptr % view.dtype.alignment == 0 and not over:
            return view
        size = view.dtype.itemsize
        made = replace(new(view, view.nbytes), shape=view.shape, strides=(size,), dtype=view.dtype)
        self.steps.append(copied(given.name, view, made))
        return made

    def _moved(self, view: View) -> View:
        """Return a view with the axis that is sorted along at its end."""
        axes = [a for a in range(len(view.shape)) if a != self.work.axis] + [self.work.axis]
        return replace(
            view,
            shape=tuple(view.shape[a] for a in axes),
            strides=tuple(view.strides[a] for a in axes),
        )

    def input(self, given: Argument, unit: int, *, in_place: bool) -> View:
        """Return an input as rows, copied where it does not lie like that or is written over."""
        view, outputs = self._moved(given.view), self.work.outputs
        over = [o.view for o in outputs if may_overlap(given.view, o.view)]
        stays = not over or (in_place and all(_same(given.view, o) for o in over))
        if stays and view.is_c_contiguous and view.ptr % unit == 0:
            return as_rows(view, self.work.shape, view.dtype)
        made, to = self._beside(view)
        self.steps.append(copied(given.name, view, to))
        return made

    def output(self, given: Argument, unit: int) -> View:
        """Return where a result is written as rows: in its array, or beside it and copied."""
        view = self._moved(given.view)
        if view.is_c_contiguous and view.ptr % unit == 0:
            return as_rows(view, self.work.shape, view.dtype)
        made, whole = self._beside(view)
        self.later.append(copied(given.name, whole, view))
        return made

    def _beside(self, view: View) -> tuple[View, View]:
        """Return new memory for what is seen: as rows, and in its own shape."""
        size = view.dtype.itemsize
        made = new(view, view.nbytes)
        steps, step = [], size
        for extent in reversed(view.shape):
            steps.append(step)
            step *= extent
        whole = replace(made, shape=view.shape, strides=tuple(reversed(steps)), dtype=view.dtype)
        return as_rows(made, self.work.shape, view.dtype), whole


@dataclass(slots=True, kw_only=True)
class _RadixCall(Call):
    """A call whose digits are sorted."""

    order: RadixOrder

    def bind(self) -> None:
        """Bind all launches of the call."""
        work = self.work
        nbytes = self.payload_bytes()
        # What compares elements with each other looks at all bits.
        ranks = radix_ranks(self.chip, *work.shape) if self.order.is_whole else None
        row = None
        if ranks is None:
            row = radix_row(self.chip, work.type.itemsize, nbytes, work.length)
        # What is read is gone before anything is written over it.
        in_place = row is not None or (ranks is None and self.order.passes % 2 == 0)
        keys = self.input(work.keys, work.type.itemsize, in_place=in_place)
        payload = self.payload(keys, nbytes, in_place=in_place)
        to = absent(keys)
        if work.wants_keys:
            to = self.output(work.outputs[0], work.type.itemsize)
        arrays = Arrays(keys, payload.read, to, payload.written)
        if ranks is not None:
            self.steps.append(self._ranks(ranks, arrays, nbytes, wide=payload.wide))
        elif row is not None:
            self.steps.append(self._rows(row, arrays, nbytes, wide=payload.wide))
        else:
            self._passes(arrays, nbytes, wide=payload.wide)
        self.steps += [*self.takes(payload), *self.later]

    # ------------------------------------------------------------------ launches

    def _rows(self, tile: RadixTile, arrays: Arrays, payload: int, *, wide: bool) -> Bound:
        """Bind the launch that sorts every row by one block."""
        order, work = self.order, self.work
        built = built_for(
            ("radix rows", order, payload, tile),
            work.backend,
            2 * (order.type.itemsize + payload),
            partial(rows_source, order, payload, tile),
        )
        room = rows_room(tile, order.type.itemsize, payload)
        flags = flags_of(arrays, first=True, last=True, wide=wide)
        grid = Grid(max(1, work.shape[0]), tile.threads, (1, 0, flags), shared=room)
        return step(built, work.shape, arrays.views, grid)

    def _ranks(self, ranks: RanksPolicy, arrays: Arrays, payload: int, *, wide: bool) -> Bound:
        """Bind the launch that compares the elements of a row with each other."""
        order, (rows, length) = self.order, self.work.shape
        built = built_for(
            ("radix ranks", order, payload, ranks.warps),
            self.work.backend,
            2 * (order.type.itemsize + payload),
            partial(ranks_source, order, payload, ranks.warps),
        )
        blocks = max(1, rows * -(-length // RANKED))
        flags = flags_of(arrays, first=True, last=True, wide=wide)
        room = ranks_room(length, order.type.itemsize)
        grid = Grid(blocks, RANKED * ranks.warps, (1, 0, flags), shared=room)
        return step(built, self.work.shape, arrays.views, grid)

    def _passes(self, arrays: Arrays, payload: int, *, wide: bool) -> None:
        """Bind the launches that sort rows of many tiles, one row after the other."""
        order, (rows, length) = self.order, self.work.shape
        way = Way.of(order, payload, length, self.work.backend, arrays, wide=wide)
        for index in range(rows):
            self.steps += way.row(Arrays(*(row_of(a, index) for a in arrays.views)))


def _same(a: View, b: View) -> bool:
    """Return whether elements of two views lie in the same places."""
    return (a.ptr, a.shape, a.strides, a.dtype.itemsize) == (
        b.ptr,
        b.shape,
        b.strides,
        b.dtype.itemsize,
    )


def taken(given: View, places: View, to: View, shape: tuple[int, int], backend: Backend) -> Bound:
    """Bind the launch that takes values of rows by places in them."""
    dtype, place = given.dtype, places.dtype.itemsize
    word = gcd(dtype.itemsize, dtype.alignment, _WORD)
    built = built_for(
        ("take", dtype.itemsize, word, place),
        backend,
        2 * dtype.itemsize + place,
        partial(take_source, dtype.itemsize, word, place),
    )
    grid = Grid(max(1, -(-given.size // TAKEN)), TAKE_THREADS, (1, 0, 0))
    return step(built, shape, (given, places, to), grid)


def copied(name: str, source: View, target: View) -> Bound:
    """Bind the launch that copies elements from one array to another."""
    op = as_op(_itself, name="copy")
    given = Argument(name, source, source.dtype)
    to = Argument(name, target, target.dtype)
    bound = bind_operands(op, specialize(op, (source.dtype,)), [given], [to], source.shape)
    return replace(bound, functions=(op.function,))


def _itself(value: Any) -> Any:
    return value
