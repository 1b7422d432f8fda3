"""`segmented_sort`: each segment of an array in order, of any lengths, in one call.

The loops are in `host/sort_merge.hpp`: short segments by the hundreds, long ones by all threads.
Launches on a device are in `segmented_cuda.py` and `merges_segments.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    moved_outputs,
    rules_of,
)
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.merges_segments import bind_merge_segments
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Plan, build, execute
from kernelmill.algorithms.segmented_cuda import bind_radix_segments
from kernelmill.algorithms.series import run_series
from kernelmill.algorithms.sort_call import (
    SortRequest,
    check_order,
    check_values,
    comparing,
    element_of,
    returned,
    several_values,
    value_names,
)
from kernelmill.algorithms.sort_cuda import has_digits
from kernelmill.algorithms.sort_host import (
    HostSort,
    apart,
    flat_strides,
    less_of,
    merge_workspace,
    raw,
    room_of,
    settled,
)
from kernelmill.algorithms.source import assemble
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.dtypes import DType
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.memory import array_of, as_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.plan import Built
    from kernelmill.algorithms.sort_host import Less
    from kernelmill.compiler.op import Op
    from kernelmill.runtime.backend import Backend

__all__ = ["segmented_sort"]


def segmented_sort(
    x: Any,
    offsets: Any,
    *,
    values: Any = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    out: Any = None,
) -> Any:
    """Sort each segment of an array by itself; stable.

    Parameters
    ----------
    x
        An array of one dimension.
    offsets
        Integers that do not decrease: segment i begins at `offsets[i]` and ends before
        `offsets[i + 1]`. What is before the first and behind the last stays as it is.
    values
        An array, or a tuple of arrays, that go with the elements.
    comparator, descending
        As `km.sort`.
    out
        Array for the result; with values a tuple, as `km.sort_by_key`.

    Returns
    -------
    array or tuple
        The elements; with values a tuple of them and of the values. `out`, where that is given.

    Raises
    ------
    ArgumentError
        Offsets are out of range or decrease.
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError, NotImplementedHere
        As `km.sort`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.segmented_sort(np.array([3, 1, 2, 9, 8]), np.array([0, 3, 5]))
    array([1, 2, 3, 8, 9])
    """
    several = () if values is None else several_values(values)
    prepare = partial(_prepare, _Request(comparator, bool(descending)))
    if comparator is not None:  # what it captured is read at each call
        made = execute(prepare((x, offsets, *several), out))
    else:
        made = run_series((segmented_sort, bool(descending)), prepare, (x, offsets, *several), out)
    if out is not None or values is None:
        return made
    return made[0], made[1:] if type(values) is tuple else made[1]


# ----------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, apart from the arrays."""

    comparator: Op | Callable[..., Any] | None
    descending: bool


def _prepare(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call, elements, offsets and values, and bind them to a kernel."""
    call = moved(inputs, out, "x")
    names = ["x", "offsets", *value_names(max(0, len(inputs) - 2))]
    x, offsets, *values = given = arguments_of(call.inputs, names)
    backend = backend_of(given, "segmented_sort")
    _check_shapes(x, offsets)
    check_values(x, values)
    type_ = element_of(x)
    compare = None
    if request.comparator is None:
        check_order(type_, "x")
    else:
        compare = comparing(request.comparator, (type_, type_), rules_of(given[:1]))
    sorted_ = [x, *values]
    wanted = tuple(element_of(a) for a in sorted_)
    outputs, result = moved_outputs(call.out, wanted, x.view.shape, sorted_)
    if backend.target != "host":
        name: Literal["sort", "sort_by_key"] = "sort_by_key" if values else "sort"
        asked = SortRequest(name, request.comparator, request.descending)
        work = HostSort(asked, x, tuple(values), tuple(outputs), 0, compare, backend)
        bind = bind_radix_segments if has_digits(work) else bind_merge_segments
        return returned(replace(bind(work, offsets), result=result), call)
    less = less_of(type_, compare, descending=request.descending)
    bound = _Work(x, offsets, tuple(values), tuple(outputs), less, backend).bind()
    return replace(bound, result=result)


def _check_shapes(x: Argument, offsets: Argument) -> None:
    for a in (x, offsets):
        if len(a.view.shape) != 1:
            raise ShapeError(f"`{a.name}` has shape {a.view.shape}; expected: one dimension")
    type_ = offsets.view.dtype
    if not isinstance(type_, DType) or not type_.is_integer:
        raise DTypeError(f"`offsets` has elements of {type_}; expected: integers")
    if not offsets.view.size:
        raise ShapeError("`offsets` is empty; expected: one more than there are segments")
    if offsets.view.place is not None:
        return  # nobody waits for a device to look at them: any are served there
    found, length = array_of(offsets.view), x.view.size
    if found.min() < 0 or found.max() > length:
        at = int(np.argmax((found < 0) | (found > length)))
        raise ArgumentError(
            f"`offsets[{at}]` is {found[at]}; the limits are 0 and {length}, the length of `x`"
        )
    if bool(np.any(found[:-1] > found[1:])):
        at = int(np.argmax(found[:-1] > found[1:]))
        raise ArgumentError(
            f"`offsets` must not decrease: offsets[{at}] is {found[at]}, "
            f"offsets[{at + 1}] is {found[at + 1]}"
        )


# ----------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built and bound."""

    x: Argument
    offsets: Argument
    values: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    less: Less
    backend: Backend

    def bind(self) -> Bound:
        """Bind it; what no segment holds is copied at once."""
        size = self.x.view.size
        array = apart(self.x, 0, self.outputs)
        bounds = apart(self.offsets, 0, self.outputs)
        values = [apart(v, 0, self.outputs) for v in self.values]
        rooms = [room_of(o, 0) for o in self.outputs]
        results = [rooms[0].array]
        covered = bool(bounds[0] == 0 and bounds[-1] == size)
        if not covered:
            np.copyto(results[0], array)
        places: np.ndarray[Any, Any] | None = None
        if self.values:
            places = np.empty(size, np.int64) if covered else np.arange(size)
            results.append(places)
        views = tuple(as_view(raw(a), "x") for a in (array, bounds, *results))
        index = 8 if self.values else 0
        segments = bounds.size - 1
        return Bound(
            built=self._built(index),
            functions=self.less.functions,
            shape=(segments,),
            views=views,
            strides=flat_strides(views, 1),
            elements=size if segments else 0,
            workspace=merge_workspace(element_of(self.x), index, size),
            result=None,
            flags=size << 2,
            finish=partial(settled, self, rooms, values, places),
        )

    def _built(self, index: int) -> Built:
        spelled = type_spelling(self.x.type, qualified=True)
        numbers = f"km::u{8 * index}" if index else "km::nothing_beside"
        of_offsets = type_spelling(self.offsets.type, qualified=True)
        name = f"segmented_sort ({self.x.type})"
        sorts = f"km::merge_sort<{spelled}, {numbers}, {of_offsets}>"
        run = f"{sorts}::segments(call, {self.less.text});"
        return build(
            ("segmented sort", sorts, self.less.key),
            "segmented_sort",
            self.less.scope,
            Cost(2 * (self.x.view.dtype.itemsize + index), 8 * (self.less.flops + 4)),
            lambda: assemble(name, ["sort_merge.hpp"], self.less.printed, run),
            backend=self.backend,
        )


# ----------------------------------------------------------------------------- plans


def _planner(
    x: Any,
    offsets: Any,
    *,
    values: Any = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    out: Any = None,
) -> Plan:
    """Prepare a segmented_sort for arrays like these; the plan takes elements, offsets, values.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> sorts = km.segmented_sort.plan(np.zeros(3), np.array([0, 3]))
    >>> sorts(np.array([3.0, 1.0, 2.0]), np.array([0, 2]))
    array([1., 3., 2.])
    """
    request = _Request(comparator, bool(descending))
    several = () if values is None else several_values(values)
    bound = _prepare(request, (x, offsets, *several), out)
    return Plan(bound, partial(_prepare, request), fixed=None)


segmented_sort.plan = _planner  # type: ignore[attr-defined]  # a public name
