"""Sorts on the processor: which way is taken, and the kernels of `host/sort_*.hpp` for it.

Plain numbers are sorted by vectors, where the processor has them, else by NumPy; places, values and
other types by a radix sort; comparators by a merge sort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms import iterators
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.plan import Bound, Built, Scope, build
from kernelmill.algorithms.sort_numbers import (
    PARTITIONED,
    SPLIT_FROM,
    has_vectors,
    sort_numbers,
    split_kernel,
    vector_kernel,
)
from kernelmill.algorithms.source import assemble, storing
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import HOST
from kernelmill.dtypes import DType, StructType, bool_
from kernelmill.runtime.backend import Kernel, KernelSource, Launch
from kernelmill.runtime.memory import View, array_of, as_view, may_overlap
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.sort_call import SortRequest
    from kernelmill.compiler.op import Specialized
    from kernelmill.runtime.backend import Backend

__all__ = [
    "HostSort",
    "Less",
    "Room",
    "apart",
    "bind_sort",
    "contiguous",
    "flat_strides",
    "less_of",
    "merge_workspace",
    "radix_kernel",
    "radix_of_row",
    "radix_workspace",
    "raw",
    "room_of",
    "rows_of",
    "settled",
    "take",
]

# Payloads that a radix sort carries along; others are taken by their places afterwards.
_CARRIED: Final = (4, 8)
_MOST_PLACES: Final = (1 << 32) - 1
_COUNTS: Final = 16 * 256 * 8  # bytes of the counters of a digit, see host/sort_radix.hpp
_LINE: Final = 64
# Bytes of keys of a row for each thread that takes part.
_SHARED_BYTES: Final = 128 << 10
_DESCENDING: Final = 17
_PLACES_ONLY: Final = 2


@dataclass(frozen=True, slots=True)
class HostSort:
    """A sort whose arguments are checked, along one axis."""

    request: SortRequest
    keys: Argument
    values: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    axis: int
    compare: Specialized | None
    backend: Backend

    @property
    def type(self) -> DType | StructType:
        """The type of what is sorted."""
        found = self.keys.view.dtype
        assert isinstance(found, (DType, StructType))
        return found

    @property
    def length(self) -> int:
        """Elements that are sorted together."""
        return self.keys.view.shape[self.axis]

    @property
    def shape(self) -> tuple[int, int]:
        """How many such rows there are, and their length."""
        return self.keys.view.size // max(1, self.length), self.length

    @property
    def wants_keys(self) -> bool:
        """Whether sorted elements are among the results."""
        return self.request.name != "argsort"

    def values_apart(self) -> list[np.ndarray[Any, Any]]:
        """Return the rows of all values, copied where they are written before they are read."""
        return [apart(v, self.axis, self.outputs) for v in self.values]

    @property
    def merges(self) -> bool:
        """Whether elements are compared by an operator or in the order of one."""
        return self.compare is not None or self.request.algorithm == "merge"


def bind_sort(work: HostSort) -> Bound:
    """Bind a sort to the way that is quickest for it."""
    if work.merges:
        return _bind_merge(work)
    request = work.request
    plain = request.name == "sort" and request.bits is None and request.algorithm == "auto"
    if plain and work.type.name in PARTITIONED:
        return _bind_numbers(work)
    return _bind_radix(work)


# ----------------------------------------------------------------------------- rows


def contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in C order and aligned, copied where it is neither."""
    return np.require(array, requirements=("C", "A"))


def rows_of(view: View, axis: int) -> np.ndarray[Any, Any]:
    """Return an array with one axis last, as it lies in memory."""
    return np.moveaxis(array_of(view), axis, -1)


@dataclass(frozen=True, slots=True)
class Room:
    """Where results are computed: in the array of the user, or beside it."""

    target: np.ndarray[Any, Any]
    array: np.ndarray[Any, Any]

    def settle(self) -> None:
        """Copy what was computed beside the target into it."""
        if self.array is not self.target:
            np.copyto(self.target, self.array)


def room_of(output: Argument, axis: int) -> Room:
    """Return room for the rows of an output, beside it where a kernel cannot write to it."""
    target = rows_of(output.view, axis)
    fits = target.flags.c_contiguous and target.flags.aligned
    return Room(target, target if fits else np.empty(target.shape, target.dtype))


def apart(given: Argument, axis: int, outputs: Sequence[Argument]) -> np.ndarray[Any, Any]:
    """Return the rows of an input, copied where an output lies over them."""
    rows = contiguous(rows_of(given.view, axis))
    overlaid = any(may_overlap(given.view, o.view) for o in outputs)
    is_view = np.may_share_memory(rows, array_of(given.view))
    return rows.copy() if overlaid and is_view else rows


def flat_strides(views: tuple[View, ...], rank: int) -> tuple[tuple[int, ...], ...]:
    """Return strides for kernels of contiguous arrays, which read none."""
    return ((0,) * rank,) * len(views)


# ----------------------------------------------------------------------------- plain numbers


def _bind_numbers(work: HostSort) -> Bound:
    """Bind a sort of plain numbers: by vectors, else by NumPy, of large arrays in parts."""
    name, rows = work.type.name, work.shape[0]
    cost = Cost(2 * work.type.itemsize, max(1, work.length).bit_length())
    built = None
    if rows <= 1:
        built = vector_kernel(work.type, work.backend)
        if not has_vectors(built):
            large = work.length >= SPLIT_FROM
            built = split_kernel(work.type, work.backend) if large else None
    if built is None:
        source = KernelSource(f"sort ({name}) by numpy.sort", "// numpy.sort\n")
        built = Built("sort", Kernel(source, 0), Scope(()), cost, work.backend)
    built = replace(built, cost=cost, nature=("sort", name, work.request.descending))
    views = (work.keys.view, work.outputs[0].view)
    return Bound(
        built=built,
        functions=(),
        shape=work.shape,
        views=views,
        strides=flat_strides(views, 2),
        elements=0,
        workspace=0,
        result=None,
        finish=partial(_by_numbers, work, built),
    )


def _by_numbers(work: HostSort, kernel: Built, result: Any) -> Any:
    x, to = (np.moveaxis(array_of(v.view), work.axis, -1) for v in (work.keys, work.outputs[0]))
    if may_overlap(work.keys.view, work.outputs[0].view):
        x = x.copy()
    sort_numbers(x, to, kernel, descending=work.request.descending)
    return result


# ----------------------------------------------------------------------------- radix


def radix_workspace(itemsize: int, elements: int, payload: int, *, keys: bool) -> int:
    """Return the bytes that host/sort_radix.hpp works in."""
    arrays = (itemsize,) * (1 if keys else 2) + (payload,)
    return _COUNTS * itemsize + sum(elements * size + _LINE for size in arrays)


def _bind_radix(work: HostSort) -> Bound:
    request, axis = work.request, work.axis
    carried = len(work.values) == 1 and work.values[0].view.dtype.itemsize in _CARRIED
    given = [work.keys, *(work.values if carried else ())]
    arrays = [apart(a, axis, work.outputs) for a in given]
    rooms = [room_of(o, axis) for o in work.outputs]
    taken = rooms if request.name != "sort_by_key" or carried else rooms[:1]
    results = [r.array for r in taken]
    values: list[np.ndarray[Any, Any]] = []
    places: np.ndarray[Any, Any] | None = None
    if work.values and not carried:
        values = work.values_apart()
        places = np.empty(arrays[0].shape, np.int64)
        results.append(places)
    payload = 0
    if work.request.name != "sort":
        wide = 8 if work.length > _MOST_PLACES else 4
        payload = work.values[0].view.dtype.itemsize if carried else wide
    built = radix_kernel(request.name, work.type, payload, work.backend, carried=carried)
    low, high = request.bits or (0, 8 * work.type.itemsize)
    views = tuple(as_view(raw(a), "x") for a in (*arrays, *results))
    return Bound(
        built=built,
        functions=(),
        shape=work.shape,
        views=views,
        strides=flat_strides(views, 2),
        elements=work.keys.view.size,
        workspace=radix_workspace(
            work.type.itemsize, work.keys.view.size, payload, keys=work.wants_keys
        ),
        result=None,
        flags=low << 1 | high << 9 | request.descending << _DESCENDING,
        finish=partial(_settled, work, rooms, values, places),
    )


def raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array as bytes, for types that have no place of their own."""
    return array.reshape(-1).view(np.uint8)


def radix_kernel(
    name: str, type_: DType | StructType, payload: int, backend: Backend, *, carried: bool
) -> Built:
    """Return the radix sort of a public function, for payloads of so many bytes or places."""
    key = type_spelling(type_, qualified=True)
    number, result = f"km::u{8 * payload}", "km::i64"
    if not payload:
        number = result = "km::nothing"
    elif carried:
        result = number
    places = "true" if payload and not carried else "false"
    keys = "true" if name != "argsort" else "false"
    told = f"{name} ({type_}) by radix"
    run = f"km::radix_sort<{key}, {number}, {result}, {places}, {keys}>::run(call);"
    moved = type_.itemsize * (type_.itemsize + payload)
    return build(
        ("radix", key, number, result, places, keys),
        "sort",
        Scope(()),
        Cost(2 * moved, 8 * type_.itemsize),
        lambda: assemble(told, ["sort_radix.hpp"], [], run),
        backend=backend,
    )


def radix_of_row(
    kernel: Built,
    arrays: tuple[np.ndarray[Any, Any], ...],
    payload: int,
    *,
    keys: bool,
    descending: bool,
) -> None:
    """Sort one contiguous array, the first; the others are the operands behind it."""
    x = arrays[0]
    threads = min(native().thread_count(), 1 + x.nbytes // _SHARED_BYTES)
    address = native().address
    kernel.backend.launch(
        kernel.kernel,
        Launch(
            shape=(1, x.size),
            pointers=tuple(address(a)[0] for a in arrays),
            strides=((0, 0),) * len(arrays),
            captures=b"",
            workspace=radix_workspace(x.itemsize, x.size, payload, keys=keys),
            threads=threads,
            flags=x.itemsize << 12 | descending << _DESCENDING,
            release_gil=False,
        ),
    )


def settled(
    _: object,  # whose memory is read: it lives until here
    rooms: Sequence[Room],
    values: Sequence[np.ndarray[Any, Any]],
    places: np.ndarray[Any, Any] | None,
    result: Any,
) -> Any:
    """Copy what was computed beside the outputs into them, and take values by their places."""
    for room in rooms if places is None else rooms[:1]:
        room.settle()
    if places is not None:
        for value, room in zip(values, rooms[1:], strict=True):
            take(value, places.reshape(-1), room.array)
            room.settle()
    return result


def _settled(
    work: HostSort,
    rooms: Sequence[Room],
    values: Sequence[np.ndarray[Any, Any]],
    places: np.ndarray[Any, Any] | None,
    result: Any,
) -> Any:
    """Do what `settled` does, where places are those in rows."""
    rows, length = work.shape
    if places is not None and rows > 1:
        places = places.reshape(rows, length) + length * np.arange(rows)[:, None]
    return settled(work, rooms, values, places, result)


def take(x: np.ndarray[Any, Any], places: np.ndarray[Any, Any], to: np.ndarray[Any, Any]) -> None:
    """Write the elements at some places of an array, one after the other, to another."""
    if places.size:
        transform(iterators.permutation(x.reshape(-1), places), _same, out=to.reshape(-1))


def _same(value: Any) -> Any:
    return value


# ----------------------------------------------------------------------------- merge


@dataclass(frozen=True, slots=True)
class Less:
    """An order as C++: what is printed before it, and how it is made of a call.

    `functions` are those whose captured scalars are read at each call.
    """

    key: tuple[object, ...]
    scope: Scope
    printed: tuple[Any, ...]
    text: str
    structs: str
    flops: int
    functions: tuple[object, ...] = ()


def less_of(type_: DType | StructType, compare: Specialized | None, *, descending: bool) -> Less:
    """Return the order of elements: by an operator of the user, else their own."""
    spelled = type_spelling(type_, qualified=True)
    turned = "true" if descending else "false"
    if compare is None:
        text = f"km::own_less<{spelled}, {turned}>{{}}"
        return Less((spelled, turned), Scope(()), (), text, "", 4)
    program = storing(compare.translation.program, (bool_,))
    text = f"km::op_less<km::Op, {spelled}, {turned}>{{km::Op(call->captures)}}"
    kept, printed = compare.kept, (print_program(program, HOST),)
    flops, functions = count_flops(program), (compare.op.function,)
    return Less((kept, turned), Scope((kept,)), printed, text, "", flops, functions)


def _bind_merge(work: HostSort) -> Bound:
    request, axis = work.request, work.axis
    array = apart(work.keys, axis, work.outputs)
    rooms = [room_of(o, axis) for o in work.outputs]
    taken = rooms if request.name != "sort_by_key" else rooms[:1]
    results = [r.array for r in taken]
    values = work.values_apart()
    places: np.ndarray[Any, Any] | None = None
    if work.values:
        places = np.empty(array.shape, np.int64)
        results.append(places)
    numbered = request.name != "sort"
    index = 0
    if numbered:
        index = 8 if work.length > _MOST_PLACES else 4
    less = less_of(work.type, work.compare, descending=request.descending)
    views = tuple(as_view(raw(a), "x") for a in (array, *results))
    size = work.keys.view.size
    return Bound(
        built=_merge_kernel(work, less, index),
        functions=less.functions,
        shape=work.shape,
        views=views,
        strides=flat_strides(views, 2),
        elements=size,
        workspace=merge_workspace(work.type, index, size),
        result=None,
        flags=0 if work.wants_keys else _PLACES_ONLY,
        finish=partial(_settled, work, rooms, values, places),
    )


def merge_workspace(type_: DType | StructType, index: int, elements: int) -> int:
    """Return the bytes that host/sort_merge.hpp works in: items, which are padded, twice."""
    unit = max(type_.alignment, index, 1)
    item = -(-(type_.itemsize + index) // unit) * unit
    return 2 * (elements * item + _LINE)


def _merge_kernel(work: HostSort, less: Less, index: int) -> Built:
    spelled = type_spelling(work.type, qualified=True)
    numbers = f"km::u{8 * index}" if index else "km::nothing_beside"
    name = f"{work.request.name} ({work.type}) by merging"
    run = f"km::merge_sort<{spelled}, {numbers}, km::i64>::rows(call, {less.text});"
    levels = max(1, work.length).bit_length()
    return build(
        ("merge sort", spelled, numbers, less.key),
        "sort",
        less.scope,
        Cost(2 * (work.type.itemsize + index), levels * (less.flops + 4)),
        lambda: assemble(name, ["sort_merge.hpp"], less.printed, run),
        backend=work.backend,
    )
