"""`segmented_sort` on a device by digits: the launches of `device/segmented_sort.cuh` for a call.

Sorts of segments by comparison are in `merges_segments.py`, checks in `segmented_sort.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.plan import Bound, execute
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.policy_radix import segmented_rows
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_cuda import Call, absent, taken, whole_order
from kernelmill.algorithms.sort_cuda_passes import (
    Arrays,
    Way,
    as_rows,
    built_for,
    flags_of,
    new,
    number,
    step,
)
from kernelmill.algorithms.sort_cuda_source import (
    SEGMENTS_LISTED,
    SEGMENTS_WARPS,
    rows_room,
    segments_source,
    warps_room,
)
from kernelmill.dtypes import DType, uint8
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.memory import array_of

if TYPE_CHECKING:
    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.sort_cuda import Payload
    from kernelmill.algorithms.sort_cuda_source import RadixOrder
    from kernelmill.algorithms.sort_host import HostSort
    from kernelmill.runtime.memory import View

__all__ = ["bind_radix_segments"]

# As device/segmented_sort.cuh has them.
_HEAD: Final = 64
_LONG: Final = 16
_KINDS: Final = 5
_COUNT: Final = 4


def bind_radix_segments(work: HostSort, offsets: Argument) -> Bound:
    """Bind a sort of segments to its launches: the first one, and what follows it.

    Segments as long as a whole array are, are sorted as arrays: then the host waits to be told
    where they lie.
    """
    chip = chip_of(work.backend.arch)
    call = _Segments(work, chip, order=whole_order(work), offsets=offsets)
    return call.bind()


@dataclass(slots=True, kw_only=True)
class _Segments(Call):
    """A call on its way to launches."""

    order: RadixOrder
    offsets: Argument

    def bind(self) -> Bound:
        """Bind all launches of the call."""
        work, nbytes = self.work, self.payload_bytes()
        in_place = self.order.passes % 2 == 0
        keys = self.input(work.keys, work.type.itemsize, in_place=in_place)
        payload = self.payload(keys, nbytes, in_place=False)
        to = self.output(work.outputs[0], work.type.itemsize)
        arrays = Arrays(keys, payload.read, to, payload.written)
        flags = flags_of(arrays, first=True, last=True, wide=payload.wide)
        lists = self._launches(arrays, nbytes, flags)
        takes = self.takes(payload)
        if work.length < segmented_rows(self.chip).long:
            self.steps += [*takes, *self.later]
            return bound_steps(self.steps)
        first, *others = self.steps
        longs = _Longs(self, arrays, payload, lists)
        finish = partial(_long_ones_too, tuple(others), longs, tuple(takes), tuple(self.later))
        return replace(first, finish=finish)

    def _launches(self, arrays: Arrays, payload: int, flags: int) -> View:
        """Bind the launches; returns the lists."""
        order, work, size = self.order, self.work, self.work.type.itemsize
        policy, many = segmented_rows(self.chip), work.backend.multiprocessors
        segments = max(0, self.offsets.view.size - 1)
        longs = work.length // policy.long + 1
        lists = new(arrays.keys, _HEAD + _LONG * longs + _COUNT * _KINDS * max(1, segments))
        between = between_payload = absent(arrays.keys)
        if order.passes > 1:
            between = as_rows(new(arrays.keys, work.length * size), work.shape, work.type)
            if payload:
                made = new(arrays.keys, work.length * payload)
                between_payload = as_rows(made, work.shape, number(payload))
        views = (*arrays.views, self.line(self.offsets), lists, between, between_payload)
        tile = policy.tile
        numbers = (segments, policy.long, flags)
        seen = max(1, -(-max(segments, work.length // policy.looked) // SEGMENTS_LISTED))
        listing = min(policy.listing * many, seen)
        parts = (
            ("listed", Grid(1, SEGMENTS_LISTED, (segments, 0, flags))),
            ("listed", Grid(listing, SEGMENTS_LISTED, numbers)),
            ("of_blocks", Grid(policy.of_blocks * many, tile.threads, numbers,
                               shared=rows_room(tile, size, payload))),
            ("of_warps", Grid(policy.of_warps * many, SEGMENTS_WARPS, numbers,
                              shared=warps_room(size))),
        )  # fmt: skip
        given = self.offsets.view.dtype
        assert isinstance(given, DType), "offsets are integers"
        for part, grid in parts:
            built = built_for(
                ("segments", part, order, payload, given, tile),
                work.backend,
                2 * (size + payload),
                partial(segments_source, part, order, payload, given, tile),
            )
            self.steps.append(step(built, (work.length,), views, grid))
        return lists


# ----------------------------------------------------------------------------- long segments


@dataclass(frozen=True, slots=True)
class _Longs:
    """What is known of segments that are sorted as arrays."""

    call: _Segments
    arrays: Arrays
    payload: Payload
    lists: View

    def found(self) -> np.ndarray[Any, Any]:
        """Return first elements and lengths; waits for the device."""
        most = self.call.work.length // segmented_rows(self.call.chip).long + 1
        size = _HEAD + _LONG * most
        head = replace(self.lists, shape=(size,), strides=(1,), dtype=uint8)
        told = _on_host(head)
        count = min(int(told[: 4 * (_KINDS + 1)].view(np.uint32)[_KINDS]), most)
        return told[_HEAD:].view(np.int64).reshape(-1, 2)[:count]

    def sort(self, begin: int, length: int) -> list[Bound]:
        """Sort one segment as an array; returns launches that take values by places in it."""
        work, nbytes = self.call.work, self.payload.nbytes
        arrays = Arrays(*(_part(view, begin, length) for view in self.arrays.views))
        way = Way.of(self.call.order, nbytes, length, work.backend, arrays, wide=False)
        for bound in way.row(arrays):
            execute(bound)
        places = arrays.payload_to
        return [
            taken(
                _part(values, begin, length),
                places,
                _part(output, begin, length),
                (1, length),
                work.backend,
            )
            for values, output in self.payload.taken
        ]


def _part(view: View, begin: int, length: int) -> View:
    """Return some elements of a row; of what there is not, itself."""
    if not view.ptr:
        return view
    size = view.dtype.itemsize
    return replace(view, ptr=view.ptr + begin * size, shape=(length,), strides=(size,))


def _on_host(view: View) -> np.ndarray[Any, Any]:
    if view.place is None:
        return array_of(view).copy()
    from kernelmill.runtime.cuda.arrays import DeviceView  # noqa: PLC0415 - for such arrays only
    from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415

    assert isinstance(view, DeviceView)
    return to_host(view)


def _long_ones_too(
    steps: tuple[Bound, ...],
    longs: _Longs,
    takes: tuple[Bound, ...],
    later: tuple[Bound, ...],
    result: Any,
) -> Any:
    """Launch what follows the first kernel, and sorts of long segments."""
    for bound in steps:
        execute(bound)
    # Places in a long segment are counted from its first element on, and taken again by these.
    again = [b for begin, length in longs.found().tolist() for b in longs.sort(begin, length)]
    for bound in (*takes, *again, *later):
        execute(bound)
    return result
