"""`radix_sort`, `merge_sort` and `segmented_sort`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final

import numpy as np

from kernelmill.algorithms import iterators as native
from kernelmill.algorithms import segmented_sort as segments
from kernelmill.algorithms import sort as orders
from kernelmill.algorithms.transform import transform
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import (
    WORKSPACE,
    Algorithm,
    check_stream,
    kept,
    ordered_on,
)
from kernelmill.compat.cuda_compute.op import OpKind, operator_for
from kernelmill.compiler.op import Op, as_op

__all__ = [
    "DoubleBuffer",
    "SortOrder",
    "make_merge_sort",
    "make_radix_sort",
    "make_segmented_sort",
    "merge_sort",
    "radix_sort",
    "segmented_sort",
]


class SortOrder(Enum):
    """Whether the smallest or the largest key comes first."""

    ASCENDING = 0
    DESCENDING = 1


class DoubleBuffer:
    """Two arrays, of which one holds what is sorted and the other one is room for it."""

    def __init__(self, d_current: Any, d_alternate: Any) -> None:
        self.d_buffers = [d_current, d_alternate]
        self.selector = 0

    def current(self) -> Any:
        """Return the array that holds the elements."""
        return self.d_buffers[self.selector]

    def alternate(self) -> Any:
        """Return the other array."""
        return self.d_buffers[1 - self.selector]


# ----------------------------------------------------------------------------- arrays


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The arrays of a call: what is sorted, and where it goes; values are None without any."""

    keys: Any
    values: Any
    out_keys: Any
    out_values: Any
    buffers: tuple[DoubleBuffer, ...] = ()

    @property
    def arrays(self) -> tuple[Any, ...]:
        given = (self.keys, self.values, self.out_keys, self.out_values)
        return tuple(a for a in given if a is not None)

    def outputs(self, count: int) -> tuple[Any, ...]:
        """Return what takes so many keys, and as many values if there are some."""
        pairs = ((self.out_keys, self.keys), (self.out_values, self.values))
        return tuple(
            elements.writing(out, count, elements.type_of(given))
            for out, given in pairs
            if given is not None
        )

    def written(self) -> None:
        """Let buffers tell that the results are in the array that was the alternate one."""
        for buffer in self.buffers:
            buffer.selector = 1 - buffer.selector


def _arrays(d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any) -> _Sorted:
    buffered = isinstance(d_in_keys, DoubleBuffer)
    if d_in_values is not None and isinstance(d_in_values, DoubleBuffer) is not buffered:
        keys, values = type(d_in_keys).__name__, type(d_in_values).__name__
        raise TypeError(
            f"d_in_keys is a {keys} and d_in_values a {values}; both are one, or neither"
        )
    if not buffered:
        if (d_in_values is None) != (d_out_values is None):
            raise TypeError("d_in_values and d_out_values are given together, or neither is")
        return _Sorted(d_in_keys, d_in_values, d_out_keys, d_out_values)
    if d_in_values is None:
        return _Sorted(d_in_keys.current(), None, d_in_keys.alternate(), None, (d_in_keys,))
    return _Sorted(
        d_in_keys.current(),
        d_in_values.current(),
        d_in_keys.alternate(),
        d_in_values.alternate(),
        (d_in_keys, d_in_values),
    )


def _ordered(given: _Sorted, count: int, **options: Any) -> None:  # Any: those of `km.sort`
    """Sort so many keys, and their values with them, into the outputs."""
    keys = elements.array_of(given.keys, count)
    outputs = given.outputs(count)
    if given.values is None:
        orders.sort(keys, out=outputs[0], **options)
    else:
        values = elements.array_of(given.values, count)
        orders.sort_by_key(keys, values, out=outputs, **options)


# ----------------------------------------------------------------------------- algorithms


@dataclass(frozen=True, slots=True)
class RadixSort(Algorithm):
    """Keys in their order, by some of their bits, and values in that of their keys."""

    descending: bool = False
    tag: ClassVar[str] = "radix_sort"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: int,
        begin_bit: int | None = None,
        end_bit: int | None = None,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        if temp_storage is None:
            return WORKSPACE
        if num_items:
            width = 8 * elements.type_of(given.keys).itemsize
            bits = (begin_bit or 0, width if end_bit is None else end_bit)
            some = None if bits == (0, width) else bits
            with ordered_on(stream, *given.arrays):
                _ordered(given, num_items, descending=self.descending, bits=some)
            given.written()
        return WORKSPACE


@dataclass(frozen=True, slots=True)
class MergeSort(Algorithm):
    """Keys in the order of a comparator, and values in that of their keys; stable."""

    tag: ClassVar[str] = "merge_sort"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_values: Any,
        d_out_keys: Any,
        d_out_values: Any,
        num_items: int,
        op: Any,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        if temp_storage is not None and num_items:
            with ordered_on(stream, *given.arrays):
                _ordered(given, num_items, **_order_of(op, given.keys))
            given.written()
        return WORKSPACE


def _order_of(given: Any, keys: Any) -> dict[str, Any]:  # Any: an operator and keys
    """Return the options of `km.sort` for a comparator."""
    found = elements.type_of(keys)
    less = operator_for(given, (found, found))
    if given in _DIRECTIONS:
        return {"descending": _DIRECTIONS[given]}
    return {"comparator": _truth_of(less) if callable(given) else less}


# For numbers, the two orders that need no comparator.
_DIRECTIONS: Final = {OpKind.LESS: False, OpKind.GREATER: True}


def _truth_of(compare: Op) -> Op:
    """Return a comparator that returns a bool, where one returns a number."""
    return as_op(lambda a, b: bool(compare(a, b)))


@dataclass(frozen=True, slots=True)
class SegmentedSort(Algorithm):
    """Keys of each segment in their order, and values in that of their keys.

    What is in no segment is not written.
    """

    descending: bool = False
    tag: ClassVar[str] = "segmented_sort"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: int,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        if temp_storage is None:
            return WORKSPACE
        if num_items and num_segments:
            with ordered_on(stream, *given.arrays):
                bounds = (start_offsets_in, end_offsets_in)
                starts, ends = (elements.on_host(o, num_segments) for o in bounds)
                _sort_segments(given, num_items, starts, ends, descending=self.descending)
            given.written()
        return WORKSPACE


def _sort_segments(given: _Sorted, count: int, starts: Any, ends: Any, *, descending: bool) -> None:
    """Sort segments: together where each begins where the one before ended, else gathered."""
    filled = bool(starts[0] == 0 and ends[-1] == count and np.all(starts[1:] == ends[:-1]))
    lengths = np.maximum(ends - starts, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = None
    if not filled or offsets[-1] != count:
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    sorted_ = [a for a in (given.keys, given.values) if a is not None]
    taken = [_gathered(a, count, places) for a in sorted_]
    outputs = given.outputs(count)
    if places is not None:
        outputs = tuple(native.permutation(out, places) for out in outputs)
    values = taken[1] if len(taken) > 1 else None
    made = segments.segmented_sort(taken[0], offsets, values=values, descending=descending)
    for found, out in zip(made if len(taken) > 1 else (made,), outputs, strict=True):
        transform(found, lambda v: v, out=out)


def _gathered(given: Any, count: int, places: Any) -> Any:  # Any: arrays, and places or None
    array = elements.array_of(given, count)
    return array if places is None else transform(native.permutation(array, places), lambda v: v)


# ----------------------------------------------------------------------------- makers


_RADIX: Final = {
    SortOrder.ASCENDING: lambda: RadixSort(descending=False),
    SortOrder.DESCENDING: lambda: RadixSort(descending=True),
}
_SEGMENTED: Final = {
    SortOrder.ASCENDING: lambda: SegmentedSort(descending=False),
    SortOrder.DESCENDING: lambda: SegmentedSort(descending=True),
}


def make_radix_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any,
    d_in_values: Any,
    d_out_values: Any,
    order: SortOrder,
    compute_capability: Any = None,
) -> Any:
    """Return `radix_sort` for arguments like these.

    Raises
    ------
    TypeError
        Only one of keys and values is a `DoubleBuffer`, or only one array of values is given.
    """
    del compute_capability  # kernels are compiled for the device that runs them
    given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    return kept(_RADIX[SortOrder(order)], *given.arrays)


def make_merge_sort(
    *,
    d_in_keys: Any,
    d_in_values: Any = None,
    d_out_keys: Any,
    d_out_values: Any = None,
    op: Any,
    compute_capability: Any = None,
) -> Any:
    """Return `merge_sort` for arguments like these."""
    del compute_capability
    given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    return kept(MergeSort, *given.arrays, op)


def make_segmented_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    start_offsets_in: Any,
    end_offsets_in: Any,
    order: SortOrder,
    compute_capability: Any = None,
) -> Any:
    """Return `segmented_sort` for arguments like these."""
    del compute_capability
    given = _arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
    return kept(_SEGMENTED[SortOrder(order)], *given.arrays, start_offsets_in, end_offsets_in)


# ----------------------------------------------------------------------------- in one call


def radix_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any,
    d_in_values: Any = None,
    d_out_values: Any = None,
    num_items: int,
    order: SortOrder,
    begin_bit: int | None = None,
    end_bit: int | None = None,
    stream: Any = None,
) -> None:
    """Write the keys in their order, by the bits from `begin_bit` to `end_bit`, and their values.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> keys, values = np.array([3, 1, 2]), np.array([30.0, 10.0, 20.0])
    >>> buffers = cc.DoubleBuffer(keys, np.zeros(3, int)), cc.DoubleBuffer(values, np.zeros(3))
    >>> cc.radix_sort(d_in_keys=buffers[0], d_out_keys=None, d_in_values=buffers[1],
    ...               d_out_values=None, num_items=3, order=cc.SortOrder.DESCENDING)
    >>> buffers[0].current(), buffers[1].current()
    (array([3, 2, 1]), array([30., 20., 10.]))
    """
    given = {
        "d_in_keys": d_in_keys,
        "d_out_keys": d_out_keys,
        "d_in_values": d_in_values,
        "d_out_values": d_out_values,
    }
    make_radix_sort(**given, order=order)(
        temp_storage=b"",
        **given,
        num_items=num_items,
        begin_bit=begin_bit,
        end_bit=end_bit,
        stream=stream,
    )


def merge_sort(
    *,
    d_in_keys: Any,
    d_in_values: Any = None,
    d_out_keys: Any,
    d_out_values: Any = None,
    num_items: int,
    op: Any,
    stream: Any = None,
) -> None:
    """Write the keys in the order of `op`, whether one comes before another, and their values.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x = np.array([5, 8, 6, 7])
    >>> cc.merge_sort(d_in_keys=x, d_out_keys=x, num_items=4, op=lambda a, b: a % 2 < b % 2)
    >>> x
    array([8, 6, 5, 7])
    """
    given = {
        "d_in_keys": d_in_keys,
        "d_in_values": d_in_values,
        "d_out_keys": d_out_keys,
        "d_out_values": d_out_values,
        "op": op,
    }
    make_merge_sort(**given)(temp_storage=b"", **given, num_items=num_items, stream=stream)


def segmented_sort(
    *,
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    num_items: int,
    num_segments: int,
    start_offsets_in: Any,
    end_offsets_in: Any,
    order: SortOrder,
    stream: Any = None,
) -> None:
    """Write the keys of each segment in their order, and their values.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, offsets = np.array([3, 1, 2, 9, 8]), np.array([0, 3, 5])
    >>> cc.segmented_sort(d_in_keys=x, d_out_keys=x, num_items=5, num_segments=2,
    ...                   start_offsets_in=offsets[:-1], end_offsets_in=offsets[1:],
    ...                   order=cc.SortOrder.ASCENDING)
    >>> x
    array([1, 2, 3, 8, 9])
    """
    given = {
        "d_in_keys": d_in_keys,
        "d_out_keys": d_out_keys,
        "d_in_values": d_in_values,
        "d_out_values": d_out_values,
        "start_offsets_in": start_offsets_in,
        "end_offsets_in": end_offsets_in,
    }
    make_segmented_sort(**given, order=order)(
        temp_storage=b"",
        **given,
        num_items=num_items,
        num_segments=num_segments,
        stream=stream,
    )
