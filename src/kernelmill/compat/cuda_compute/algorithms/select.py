"""`select`, `three_way_partition` and `unique_by_key`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kernelmill.algorithms import partition, unique
from kernelmill.algorithms import select as selection
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import (
    WORKSPACE,
    Algorithm,
    check_stream,
    kept,
    ordered_on,
)
from kernelmill.compat.cuda_compute.op import operator_for
from kernelmill.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.dtypes import StructType

__all__ = [
    "make_select",
    "make_three_way_partition",
    "make_unique_by_key",
    "select",
    "three_way_partition",
    "unique_by_key",
]


def _write_all(
    run: Callable[[Any], Any],
    outputs: tuple[tuple[Any, DType | StructType], ...],
    d_num_selected: Any,
    count: int,
    *,
    counts: int = 1,
) -> None:
    """Run into the outputs, without waiting, where the numbers go to an array of integers.

    Else the results are written after. `outputs` are what is written to, each with the type that is
    written.
    """
    numbers = elements.type_of(d_num_selected)
    counted = elements.is_array_of(d_num_selected, numbers)
    if counted and isinstance(numbers, DType) and numbers.is_integer:
        buffers = (elements.room(out, count, type_) for out, type_ in outputs)
        run((*buffers, elements.writing(d_num_selected, counts)))
        return
    found = run(None)
    parts = found if isinstance(found, tuple) else (found,)
    for part, (out, type_) in zip(parts, outputs, strict=True):
        elements.store(part, out, len(part), type_)
    elements.store_numbers([len(part) for part in parts[:counts]], d_num_selected)


@dataclass(frozen=True, slots=True)
class Select(Algorithm):
    """The elements for which `cond` holds, in order, and their number."""

    tag: ClassVar[str] = "select"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        d_num_selected_out: Any,
        cond: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None:
            found = elements.type_of(d_in)
            with ordered_on(stream, d_in, d_out):
                _write_all(
                    lambda out: selection.select(
                        elements.reading(d_in, num_items), operator_for(cond, (found,)), out=out
                    ),
                    ((d_out, found),),
                    d_num_selected_out,
                    num_items,
                )
        return WORKSPACE


@dataclass(frozen=True, slots=True)
class ThreeWayPartition(Algorithm):
    """Elements of the first kind, of the second one, and the others; and how many of the two."""

    tag: ClassVar[str] = "three_way_partition"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_first_part_out: Any,
        d_second_part_out: Any,
        d_unselected_out: Any,
        d_num_selected_out: Any,
        select_first_part_op: Any,
        select_second_part_op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None:
            found = elements.type_of(d_in)
            parts = (d_first_part_out, d_second_part_out, d_unselected_out)
            with ordered_on(stream, d_in, *parts):
                _write_all(
                    lambda out: partition.three_way_partition(
                        elements.reading(d_in, num_items),
                        operator_for(select_first_part_op, (found,)),
                        operator_for(select_second_part_op, (found,)),
                        out=out,
                    ),
                    tuple((part, found) for part in parts),
                    d_num_selected_out,
                    num_items,
                    counts=2,
                )
        return WORKSPACE


@dataclass(frozen=True, slots=True)
class UniqueByKey(Algorithm):
    """The first key of each run of equal ones, its item, and the number of runs."""

    tag: ClassVar[str] = "unique_by_key"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        d_out_num_selected: Any,
        op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None:
            key, item = elements.type_of(d_in_keys), elements.type_of(d_in_items)
            with ordered_on(stream, d_in_keys, d_out_keys):
                _write_all(
                    lambda out: unique.unique_by_key(
                        elements.reading(d_in_keys, num_items),
                        elements.reading(d_in_items, num_items),
                        equal=operator_for(op, (key, key)),
                        out=out,
                    ),
                    ((d_out_keys, key), (d_out_items, item)),
                    d_out_num_selected,
                    num_items,
                )
        return WORKSPACE


def make_select(
    *,
    d_in: Any,
    d_out: Any,
    d_num_selected_out: Any,
    cond: Any,
    compute_capability: Any = None,
) -> Any:
    """Return `select` for arguments like these."""
    del compute_capability  # kernels are compiled for the device that runs them
    return kept(Select, d_in, d_out, d_num_selected_out, cond)


def make_three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    compute_capability: Any = None,
) -> Any:
    """Return `three_way_partition` for arguments like these."""
    del compute_capability
    parts = (d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out)
    return kept(ThreeWayPartition, d_in, *parts, select_first_part_op, select_second_part_op)


def make_unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    compute_capability: Any = None,
) -> Any:
    """Return `unique_by_key` for arguments like these."""
    del compute_capability
    outputs = (d_out_keys, d_out_items, d_out_num_selected)
    return kept(UniqueByKey, d_in_keys, d_in_items, *outputs, op)


def select(
    *,
    d_in: Any,
    d_out: Any,
    d_num_selected_out: Any,
    cond: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Write the elements for which `cond` holds to `d_out`, and their number.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, y, count = np.arange(6), np.zeros(6, np.int64), np.zeros(1, np.int32)
    >>> cc.select(d_in=x, d_out=y, d_num_selected_out=count, cond=lambda v: v % 2, num_items=6)
    >>> y[:count[0]]
    array([1, 3, 5])
    """
    made = make_select(d_in=d_in, d_out=d_out, d_num_selected_out=d_num_selected_out, cond=cond)
    made(
        temp_storage=b"",
        d_in=d_in,
        d_out=d_out,
        d_num_selected_out=d_num_selected_out,
        cond=cond,
        num_items=num_items,
        stream=stream,
    )


def three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Write elements to the first output for which the first predicate holds, and so on.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, (a, b, c) = np.arange(6), np.zeros((3, 6), np.int64)
    >>> counts = np.zeros(2, np.int64)
    >>> cc.three_way_partition(
    ...     d_in=x, d_first_part_out=a, d_second_part_out=b, d_unselected_out=c,
    ...     d_num_selected_out=counts, select_first_part_op=lambda v: v < 2,
    ...     select_second_part_op=lambda v: v > 4, num_items=6)
    >>> a[:counts[0]], b[:counts[1]], c[:6 - counts.sum()]
    (array([0, 1]), array([5]), array([2, 3, 4]))
    """
    ThreeWayPartition()(
        temp_storage=b"",
        d_in=d_in,
        d_first_part_out=d_first_part_out,
        d_second_part_out=d_second_part_out,
        d_unselected_out=d_unselected_out,
        d_num_selected_out=d_num_selected_out,
        select_first_part_op=select_first_part_op,
        select_second_part_op=select_second_part_op,
        num_items=num_items,
        stream=stream,
    )


def unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Write the first key of each run of keys that `op` calls equal, and its item.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> keys, items = np.array([3, 3, 5]), np.array([1, 2, 3])
    >>> count = np.zeros(1, np.int64)
    >>> cc.unique_by_key(d_in_keys=keys, d_in_items=items, d_out_keys=keys, d_out_items=items,
    ...                  d_out_num_selected=count, op=cc.OpKind.EQUAL_TO, num_items=3)
    >>> keys[:2], items[:2], count
    (array([3, 5]), array([1, 3]), array([2]))
    """
    UniqueByKey()(
        temp_storage=b"",
        d_in_keys=d_in_keys,
        d_in_items=d_in_items,
        d_out_keys=d_out_keys,
        d_out_items=d_out_items,
        d_out_num_selected=d_out_num_selected,
        op=op,
        num_items=num_items,
        stream=stream,
    )
