"""`topk`, `batched_topk` and `nth_element`: the first elements of an order without all of it.

The loops are in `host/topk.hpp`, launches on a device in `topk_cuda.py`; where many elements are
asked for, all are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.arguments import (
    arguments_of,
    backend_of,
    integer_of,
    moved_outputs,
)
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.moves import computed, moved
from kernelmill.algorithms.plan import Bound, Plan, Scope, build
from kernelmill.algorithms.series import SeriesPlan, run_series
from kernelmill.algorithms.sort import argsort, sort
from kernelmill.algorithms.sort_call import axis_of, check_order, element_of, returned
from kernelmill.algorithms.sort_host import apart, flat_strides, raw, room_of, rows_of
from kernelmill.algorithms.sort_numbers import PARTITIONED, restore_parts
from kernelmill.algorithms.source import assemble
from kernelmill.algorithms.topk_cuda import Asked, bind_cuda_topk
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.dtypes import int64
from kernelmill.errors import ArgumentError, ShapeError
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import array_of, as_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.plan import Built
    from kernelmill.algorithms.sort_host import Room
    from kernelmill.compiler.op import Op
    from kernelmill.runtime.backend import Backend

__all__ = ["batched_topk", "nth_element", "topk"]

# A share of the elements from which on all of them are sorted.
_SORTED_FROM: Final = 16
_SHORT: Final = 512
# As in host/topk.hpp.
_BLOCK: Final = 256
_MOST_RANGES: Final = 16
_LINE: Final = 64


def topk(
    x: Any,
    k: int,
    largest: bool = True,  # noqa: FBT001, FBT002 - as torch
    sorted: bool = True,  # noqa: A002, FBT001, FBT002 - as torch
    axis: int = -1,
    *,
    out: Any = None,
) -> Any:
    """Return the k largest or smallest elements, and where they are.

    NaN is larger than every number, as in torch; of equal elements the first ones are taken.

    Parameters
    ----------
    x
        An array of at least one dimension, of any type that has an order.
    k
        How many, at most the length of the axis.
    largest
        Whether the largest elements are meant.
    sorted
        Whether results are in order; they always are.
    axis
        Along which axis.
    out
        A tuple: an array for values, one of int64 for places.

    Returns
    -------
    tuple
        Values in the order asked for, and their places in int64; `out`, where that is given.

    Raises
    ------
    ArgumentError
        `k` is negative or larger than the axis is long.
    DTypeError, ShapeError, DeviceError, CompileError
        As `km.sort`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.topk(np.array([3.0, 9.0, 1.0, 9.0]), 2)
    (array([9., 9.]), array([1, 3]))
    >>> km.topk(np.array([3.0, 9.0, 1.0, 9.0]), 1, largest=False)
    (array([1.]), array([2]))
    """
    del sorted
    return _run(_Request("topk", integer_of(k, "k"), bool(largest), axis), x, out)


def batched_topk(
    x: Any,
    k: int,
    largest: bool = True,  # noqa: FBT001, FBT002 - as topk
    sorted: bool = True,  # noqa: A002, FBT001, FBT002 - as topk
    *,
    out: Any = None,
) -> Any:
    """Return the k largest or smallest elements of each row, and where they are in it.

    Parameters
    ----------
    x
        An array of at least two dimensions, of which the last one is a row.
    k, largest, sorted, out
        As `km.topk`.

    Returns
    -------
    tuple
        Values and places, k for each row; `out`, where that is given.

    Raises
    ------
    ArgumentError, DTypeError, ShapeError, DeviceError, CompileError
        As `km.topk`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> values, places = km.batched_topk(np.array([[3, 9, 1], [4, 2, 8]]), 1)
    >>> values.tolist(), places.tolist()
    ([[9], [8]], [[1], [2]])
    """
    del sorted
    return _run(_Request("batched_topk", integer_of(k, "k"), bool(largest), -1), x, out)


def nth_element(
    x: Any,
    n: int,
    *,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    out: Any = None,
) -> Any:
    """Return the elements with one at the place that it has in order, none after it before it.

    Parameters
    ----------
    x
        An array of one dimension.
    n
        The place that is to be right; a negative one counts from the end.
    comparator, descending
        As `km.sort`; with a comparator all elements are sorted.
    out
        Array for the result.

    Returns
    -------
    array
        The elements, `out` where that is given.

    Raises
    ------
    ArgumentError
        There is no such place.
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError, NotImplementedHere
        As `km.sort`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> float(km.nth_element(np.array([3.0, 9.0, 1.0, 7.0]), 1)[1])
    3.0
    """
    (x,) = computed((x,), "x")
    (given,) = arguments_of((x,), "x")
    shape = given.view.shape
    if len(shape) != 1:
        raise ShapeError(f"`x` has shape {shape}; expected: one dimension")
    place = integer_of(n, "n")
    if not -shape[0] <= place < shape[0]:
        raise ArgumentError(f"`n` is {place}; `x` has {shape[0]} elements")
    partitions = comparator is None and given.view.dtype.name in PARTITIONED and _on_host(given)
    if not partitions:
        return sort(x, comparator=comparator, descending=descending, out=out)
    (output,), result = moved_outputs(out, (element_of(given),), shape, [given])
    place %= shape[0]
    at = shape[0] - 1 - place if descending else place
    array = array_of(given.view)
    found = np.partition(array, at)
    restore_parts(array, found)
    np.copyto(array_of(output.view), found[::-1] if descending else found)
    return result


def _on_host(given: Argument) -> bool:
    """Return whether the processor computes with an array."""
    return given.view.place is None and current_backend().target == "host"


# ----------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, apart from the array; `name` is that of the function."""

    name: str
    k: int
    largest: bool
    axis: int


def _run(request: _Request, x: Any, out: Any) -> Any:
    return run_series((_run, request), partial(_prepare, request), (x,), out)


def _prepare(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    call = moved(inputs, out, "x")
    (x,) = arguments_of(call.inputs, ["x"])
    backend = backend_of([x], "sort")
    if request.name == "batched_topk" and len(x.view.shape) < 2:  # noqa: PLR2004 - rows of a batch
        raise ShapeError(f"`x` has shape {x.view.shape}; expected: rows, two dimensions or more")
    axis = axis_of(x.view.shape, request.axis, "x")
    type_ = element_of(x)
    check_order(type_, "x")
    length = x.view.shape[axis]
    if not 0 <= request.k <= length:
        raise ArgumentError(f"`k` is {request.k}; the limits are 0 and {length}, the length of `x`")
    shape = (*x.view.shape[:axis], request.k, *x.view.shape[axis + 1 :])
    outputs, result = moved_outputs(call.out, (type_, int64), shape, [x])
    if backend.target != "host":
        asked = Asked(x, tuple(outputs), axis, request.k, request.largest, backend)
        return returned(replace(bind_cuda_topk(asked), result=result), call)
    work = _Work(request, call.inputs[0], x, tuple(outputs), axis, backend)
    return replace(work.bind(), result=result)


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built and bound."""

    request: _Request
    given: Any = field(repr=False)  # Any: the array of the user
    x: Argument
    outputs: tuple[Argument, ...]
    axis: int
    backend: Backend

    def bind(self) -> Bound:
        """Bind it to the kernel, or to a sort where much of the array is asked for."""
        x, axis = self.x, self.axis
        k, length = self.request.k, x.view.shape[axis]
        rows = x.view.size // max(1, length)
        array = apart(x, axis, self.outputs)
        rooms = [room_of(o, axis) for o in self.outputs]
        built = self._built()
        if k * _SORTED_FROM > length > _SHORT:
            return self._bound(built, array, rooms, (rows, length, k), sorts=True)
        return self._bound(built, array, rooms, (rows, length, k), sorts=False)

    def _bound(
        self,
        built: Built,
        array: np.ndarray[Any, Any],
        rooms: Sequence[Room],
        shape: tuple[int, int, int],
        *,
        sorts: bool,
    ) -> Bound:
        views = tuple(as_view(raw(a), "x") for a in (array, *(r.array for r in rooms)))
        rows, length, k = shape
        item = 2 * max(self.x.view.dtype.itemsize, 8)  # a key and a place
        held = item * (4 * k + 2 * _BLOCK) * _MOST_RANGES + _LINE
        ends = partial(_by_sort, self, array, rooms) if sorts else partial(_settle, self, rooms)
        return Bound(
            built=built,
            functions=(),
            shape=shape,
            views=views,
            strides=flat_strides(views, 3),
            elements=0 if sorts or not k else rows * length,
            workspace=2 * held,
            result=None,
            flags=self.request.largest << 1,
            finish=ends,
        )

    def _built(self) -> Built:
        spelled = type_spelling(self.x.type, qualified=True)
        name = f"{self.request.name} ({self.x.type})"
        return build(
            ("topk", spelled),
            "topk",
            Scope(()),
            Cost(self.x.view.dtype.itemsize, 2),
            lambda: assemble(name, ["topk.hpp"], [], f"km::first_of<{spelled}>::run(call);"),
            backend=self.backend,
        )


def _settle(work: _Work, rooms: Sequence[Room], result: Any) -> Any:
    del work  # an array that stands for an iterator has lived until here
    for room in rooms:
        room.settle()
    return result


def _by_sort(work: _Work, array: np.ndarray[Any, Any], rooms: Sequence[Room], result: Any) -> Any:
    request = work.request
    found = as_view(argsort(work.given, descending=request.largest, axis=work.axis), "x")
    places = rows_of(found, work.axis)[..., : request.k]
    np.copyto(rooms[0].array, np.take_along_axis(array, places, -1))
    np.copyto(rooms[1].array, places)
    return _settle(work, rooms, result)


# ----------------------------------------------------------------------------- plans


def _planner(
    x: Any,
    k: int,
    largest: bool = True,  # noqa: FBT001, FBT002 - as topk
    sorted: bool = True,  # noqa: A002, FBT001, FBT002 - as topk
    axis: int = -1,
    *,
    out: Any = None,
) -> Plan:
    """Prepare a topk for arrays like this one.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.topk.plan(np.zeros(4), 1)(np.array([3.0, 9.0, 1.0, 7.0]))
    (array([9.]), array([1]))
    """
    del sorted
    request = _Request("topk", integer_of(k, "k"), bool(largest), axis)
    prepare = partial(_prepare, request)
    return SeriesPlan(prepare((x,), out), prepare, (x,))


topk.plan = _planner  # type: ignore[attr-defined]  # `km.topk.plan` is the public name
