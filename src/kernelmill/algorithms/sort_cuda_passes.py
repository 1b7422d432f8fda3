"""The launches of a radix sort of many tiles on a device: digits counted, then a pass for each.

Which sorts take them is in `sort_cuda.py`; the numbers that tune them, in `policy.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.plan import Bound, Built, Scope, build
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.policy_radix import radix_count, radix_tile
from kernelmill.algorithms.sort_cuda_source import (
    COUNT_THREADS,
    RadixOrder,
    count_room,
    count_source,
    pass_room,
    pass_source,
    work_bytes,
)
from kernelmill.dtypes import DType, StructType, uint8, uint32, uint64
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.memory import View, as_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.policy_radix import RadixTile
    from kernelmill.runtime.backend import Backend, KernelSource

__all__ = [
    "NARROW",
    "PLACES",
    "Arrays",
    "Way",
    "as_rows",
    "built_for",
    "flags_of",
    "new",
    "number",
    "row_of",
    "step",
]

# What places of 32 bits are enough for; and beside a mark of two bits.
NARROW: Final = 1 << 31
_MARKED: Final = (1 << 30) - 1
_ALLOCATION: Final = 256
# As device/radix.cuh has them.
PLACES, _WIDE, _DROPPED = 1, 2, 4
_COUNTERS: Final = 2


# ----------------------------------------------------------------------------- memory


def new(like: View, nbytes: int) -> View:
    """Return memory where an array is, of its library, aligned as allocations are."""
    if like.place is None:
        raw = np.empty(nbytes + _ALLOCATION, np.uint8)
        start = -raw.ctypes.data % _ALLOCATION
        return as_view(raw[start : start + nbytes], "memory of a sort")
    from kernelmill.runtime.cuda.arrays import (  # noqa: PLC0415 - for such arrays only
        DeviceView,
        empty,
        view_of,
    )

    assert isinstance(like, DeviceView)
    made = empty((nbytes,), uint8, like.maker, device=like.device)
    return view_of(made, "memory of a sort")


def number(nbytes: int) -> DType:
    """Return the integer type of a payload."""
    return uint32 if nbytes == uint32.itemsize else uint64


def as_rows(view: View, shape: tuple[int, int], dtype: DType | StructType) -> View:
    """Return memory as rows without gaps."""
    size = dtype.itemsize
    return replace(view, shape=shape, strides=(shape[1] * size, size), dtype=dtype)


def row_of(view: View, index: int) -> View:
    """Return one of the rows without gaps; of what there is not, itself."""
    if not view.ptr:
        return view
    at = view.ptr + index * view.strides[0]
    return replace(view, ptr=at, shape=view.shape[1:], strides=view.strides[1:])


# ----------------------------------------------------------------------------- launches


@dataclass(frozen=True, slots=True)
class Arrays:
    """Operands: keys and payload, those to be written; address 0 for what there is not."""

    keys: View
    payload: View
    to: View
    payload_to: View

    @property
    def views(self) -> tuple[View, ...]:
        """All of them, as kernels have them."""
        return (self.keys, self.payload, self.to, self.payload_to)


def flags_of(arrays: Arrays, *, first: bool, last: bool, wide: bool) -> int:
    """Return the flags of a launch that reads or writes the arrays of the call."""
    flags = PLACES if first and not arrays.payload.ptr else 0
    flags |= _DROPPED if last and not arrays.to.ptr else 0
    return flags | (_WIDE if last and wide else 0)


def step(built: Built, shape: tuple[int, ...], views: tuple[View, ...], grid: Grid) -> Bound:
    """Return one launch of a call."""
    elements = 1
    for extent in shape:
        elements *= extent
    return Bound(
        built=built,
        functions=(),
        shape=shape,
        views=views,
        strides=((0,) * len(shape),) * len(views),
        elements=elements,
        workspace=0,
        result=None,
        flags=0,
        grid=grid,
    )


def built_for(
    key: tuple[object, ...], backend: Backend, moved: int, source: Callable[[], KernelSource]
) -> Built:
    """Return the kernel for a key; `moved` is the bytes that an element takes."""
    return build(key, "sort", Scope(()), Cost(moved, 1), source, backend=backend)


@dataclass(frozen=True, slots=True)
class Way:
    """How rows of one length go through their passes.

    `place` is the bytes of a place, `memory` what tiles tell each other; passes write by turns to
    the result and to `keys` and `payloads`; `beside` stands for sorted keys that nobody wants.
    """

    order: RadixOrder
    payload: int
    length: int
    backend: Backend
    tile: RadixTile
    place: int
    memory: View
    keys: View
    payloads: View
    beside: View
    wide: bool

    @classmethod
    def of(
        cls,
        order: RadixOrder,
        payload: int,
        length: int,
        backend: Backend,
        arrays: Arrays,
        *,
        wide: bool,
    ) -> Way:
        """Return the way of rows of so many elements, with memory for one of them."""
        size, like, passes = order.type.itemsize, arrays.keys, order.passes
        tile = radix_tile(chip_of(backend.arch), size, payload, length, dear=order.dear)
        place = 4 if length <= _MARKED else 8
        memory = new(like, work_bytes(-(-length // tile.elements), place))
        nothing = replace(like, ptr=0, shape=(0,), strides=(1,), dtype=uint8)
        keys = payloads = beside = nothing
        if passes > 1:
            keys = _line(new(like, length * size), length, order.type)
            if payload:
                payloads = _line(new(like, length * payload), length, number(payload))
        if passes > 2 and not arrays.to.ptr:  # noqa: PLR2004 - one between two others
            beside = _line(new(like, length * size), length, order.type)
        return cls(
            order, payload, length, backend, tile, place, memory, keys, payloads, beside, wide
        )

    @property
    def tiles(self) -> int:
        """How many tiles a row has."""
        return -(-self.length // self.tile.elements)

    def row(self, arrays: Arrays) -> list[Bound]:
        """Return the launches that sort one row."""
        passes = self.order.passes
        steps = [self._count(arrays)]
        keys, payload = arrays.keys, arrays.payload
        for index in range(passes):
            last = index == passes - 1
            ends_there = (passes - 1 - index) % 2 == 0
            to, payload_to = self.keys, self.payloads
            if ends_there:
                to, payload_to = arrays.to, arrays.payload_to
                to = to if to.ptr or last else self.beside
            flags = flags_of(arrays, first=index == 0, last=last, wide=self.wide)
            steps.append(self._pass(index, Arrays(keys, payload, to, payload_to), flags))
            keys, payload = to, payload_to
        return steps

    def _count(self, arrays: Arrays) -> Bound:
        """Bind the count of all digits."""
        order, place = self.order, self.place
        copies, counted = radix_count(chip_of(self.backend.arch), order.passes, self.length)
        built = built_for(
            ("radix count", order, place, copies),
            self.backend,
            order.type.itemsize,
            partial(count_source, order, place, copies),
        )
        a_block = COUNT_THREADS * counted // order.type.itemsize
        blocks = min(self.backend.multiprocessors, -(-self.length // a_block))
        grid = Grid(
            blocks,
            COUNT_THREADS,
            (self.tiles, 0, 0),
            tickets=_COUNTERS + order.passes * 256 * place // 4,
            shared=count_room(order, copies),
        )
        return step(built, (self.length,), (arrays.keys, self.memory), grid)

    def _pass(self, index: int, arrays: Arrays, flags: int) -> Bound:
        """Bind one pass."""
        order, tile = self.order, self.tile
        built = built_for(
            ("radix pass", order, self.payload, self.place, tile),
            self.backend,
            2 * (order.type.itemsize + self.payload),
            partial(pass_source, order, self.payload, self.place, tile),
        )
        grid = Grid(
            self.tiles + tile.scanners,
            tile.threads,
            (self.tiles, index, flags),
            shared=pass_room(tile, order.type.itemsize, self.payload),
            together=True,
        )
        return step(built, (self.length,), (*arrays.views, self.memory), grid)


def _line(view: View, length: int, dtype: DType) -> View:
    """Return memory as one row."""
    return replace(view, shape=(length,), strides=(dtype.itemsize,), dtype=dtype)
