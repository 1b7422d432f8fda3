"""`merge`, sets and `is_sorted`: arrays that are in order already.

The loops are in `host/sort_merge.hpp`; sets are searched, selected and merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill.algorithms import iterators
from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    moved_outputs,
    rules_of,
)
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.merges_arrays import ArrayMerge
from kernelmill.algorithms.merges_sort import fitting_tile
from kernelmill.algorithms.merges_source import MergeOrder
from kernelmill.algorithms.moves import computed, moved
from kernelmill.algorithms.orders import own_order
from kernelmill.algorithms.plan import Bound, Plan, build, execute
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.reduce import transform_reduce
from kernelmill.algorithms.search import lower_bound, upper_bound
from kernelmill.algorithms.select import select
from kernelmill.algorithms.sort_call import check_order, comparing, element_of, returned
from kernelmill.algorithms.sort_host import apart, flat_strides, less_of, raw, room_of, settled
from kernelmill.algorithms.source import assemble
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.op import WELL_KNOWN, specialize
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.memory import array_of, as_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.plan import Built
    from kernelmill.algorithms.sort_host import Less
    from kernelmill.compiler.op import Op
    from kernelmill.runtime.backend import Backend

__all__ = ["is_sorted", "merge", "set_difference", "set_intersection", "set_union"]


def merge(
    a: Any,
    b: Any,
    *,
    values: Any = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    out: Any = None,
) -> Any:
    """Return the elements of two sorted arrays in order; of equal ones those of the first lead.

    Parameters
    ----------
    a, b
        Arrays of one dimension and type, each in order. Where they are not, the result holds their
        elements in some order.
    values
        What goes with the elements: a tuple of two, for `a` and for `b`, each an array or a tuple
        of arrays.
    comparator, descending
        As `km.sort`.
    out
        Array for the result; with values a tuple: one for the elements, then one for each of the
        values.

    Returns
    -------
    array or tuple
        The elements; with values a tuple of them and of the values, an array or a tuple of arrays
        as given. `out`, where that is given.

    Raises
    ------
    DTypeError
        Types that differ, or have no order and there is no comparator.
    ShapeError, ArgumentError
        Arrays of other dimensions; values that are not two of one form.
    OperatorError, DeviceError, CompileError
        As `km.transform`.
    NotImplementedHere
        Elements of more than 256 bytes, for arrays of a GPU.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.merge(np.array([1, 4, 6]), np.array([2, 4]))
    array([1, 2, 4, 4, 6])
    >>> km.merge(np.array([1, 4]), np.array([4]), values=(np.array([10, 20]), np.array([30])))
    (array([1, 4, 4]), array([10, 20, 30]))
    """
    request = _Request(comparator, bool(descending))
    if values is None:
        return execute(_prepare(request, (a, b), out))
    first, second, several = _pairs(values)
    if out is not None and (type(out) is not tuple or len(out) != 1 + len(first)):
        raise ArgumentError(
            f"`out` takes the elements and {len(first)} arrays of values: a tuple of "
            f"{1 + len(first)}"
        )
    made = execute(_prepare(request, (a, b, *first, *second), out))
    if out is not None:
        return out
    return made[0], made[1:] if several else made[1]


def _pairs(values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
    if type(values) is not tuple or len(values) != 2:  # noqa: PLR2004 - of the first and the second
        raise ArgumentError("`values` is not a tuple of two: for `a` and for `b`")
    several = type(values[0]) is tuple
    if several != (type(values[1]) is tuple):
        raise ArgumentError("`values` has a tuple of arrays on one side and not on the other")
    first, second = (v if several else (v,) for v in values)
    if len(first) != len(second) or not first:
        raise ArgumentError(
            f"`values` has {len(first)} arrays for `a` and {len(second)} for `b`; "
            "expected: as many, at least one"
        )
    return first, second, several


def set_union(a: Any, b: Any, *, comparator: Op | Callable[..., Any] | None = None) -> Any:
    """Return what is in either of two sorted arrays; what is m and n times there, max(m, n) times.

    Parameters
    ----------
    a, b
        As `km.merge`. As in C++, equal elements are counted: sets hold each once.
    comparator
        As `km.sort`.

    Returns
    -------
    array
        Elements in order; of equal ones those of `a` lead.

    Raises
    ------
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError, NotImplementedHere
        As `km.merge`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.set_union(np.array([1, 2, 2]), np.array([2, 3]))
    array([1, 2, 2, 3])
    """
    a, b = _sets(a, b)
    rest = select(b, flags=transform(_found(b, a, comparator), _is_left))
    return merge(a, rest, comparator=comparator)


def set_intersection(a: Any, b: Any, *, comparator: Op | Callable[..., Any] | None = None) -> Any:
    """Return what is in both of two sorted arrays, from the first one; min(m, n) of equal ones.

    Parameters
    ----------
    a, b, comparator
        As `set_union`.

    Returns
    -------
    array
        Elements of `a` in order.

    Raises
    ------
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError
        As `km.lower_bound`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.set_intersection(np.array([1, 2, 2]), np.array([2, 3]))
    array([2])
    """
    a, b = _sets(a, b)
    return select(a, flags=transform(_found(a, b, comparator), _is_matched))


def set_difference(a: Any, b: Any, *, comparator: Op | Callable[..., Any] | None = None) -> Any:
    """Return what is in the first of two sorted arrays only; max(m - n, 0) of equal ones.

    Parameters
    ----------
    a, b, comparator
        As `set_union`.

    Returns
    -------
    array
        Elements of `a` in order; of equal ones the last.

    Raises
    ------
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError
        As `km.lower_bound`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.set_difference(np.array([1, 2, 2]), np.array([2, 3]))
    array([1, 2])
    """
    a, b = _sets(a, b)
    return select(a, flags=transform(_found(a, b, comparator), _is_left))


def _sets(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two arrays of one dimension, of which one or the other may be an iterator."""
    both = computed((a, b), "a")
    _check_lines(arguments_of(both, ("a", "b")))
    return both[0], both[1]


def _found(a: Any, b: Any, comparator: Any) -> tuple[Any, ...]:
    """Return for each element of the first its place, that of its equals, and where they stand."""
    own = lower_bound(a, a, comparator)
    return iterators.counting(), own, lower_bound(b, a, comparator), upper_bound(b, a, comparator)


def _is_matched(i: Any, own: Any, low: Any, high: Any) -> Any:
    return i - own < high - low


def _is_left(i: Any, own: Any, low: Any, high: Any) -> Any:
    return i - own >= high - low


def is_sorted(
    x: Any,
    *,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
) -> bool:
    """Return whether no element comes before the one in front of it.

    Parameters
    ----------
    x
        An array of one dimension; one of no or one element is sorted.
    comparator, descending
        As `km.sort`.

    Returns
    -------
    bool
        Whether `km.sort` would change nothing.

    Raises
    ------
    DTypeError, ShapeError, OperatorError, DeviceError, CompileError
        As `km.sort`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.is_sorted(np.array([1, 3, 3])), km.is_sorted(np.array([2, 1]))
    (True, False)
    """
    (x,) = computed((x,), "x")
    given = arguments_of((x,), "x")
    _check_lines(given)
    type_ = element_of(given[0])
    if comparator is None:
        comparator = own_order([type_], ["x"])
    else:
        comparing(comparator, (type_, type_), rules_of(given))
    if given[0].view.size < 2:  # noqa: PLR2004 - nothing to compare
        return True
    pair = (x[:-1], x[1:]) if descending else (x[1:], x[:-1])
    return not bool(transform_reduce(pair, comparator, WELL_KNOWN["logical_or"]))


# ----------------------------------------------------------------------------- checks and kernel


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, apart from the arrays."""

    comparator: Op | Callable[..., Any] | None
    descending: bool


def _prepare(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call, elements and then values, and bind them to a kernel."""
    call = moved(inputs, out, "a")
    count = len(inputs) // 2 - 1
    given = arguments_of(call.inputs, _names(count))
    backend = backend_of(given, "merge")
    _check_lines(given)
    a, b = given[:2]
    type_ = element_of(a)
    pairs = tuple(zip((a, *given[2 : 2 + count]), (b, *given[2 + count :]), strict=True))
    for first, second in pairs:
        _check_pair(first, second, (a, b))
    compare = None
    if request.comparator is None:
        check_order(type_, "a")
    else:
        compare = comparing(request.comparator, (type_, type_), rules_of(given))
    wanted = tuple(element_of(first) for first, _ in pairs)
    shape = (a.view.size + b.view.size,)
    outputs, result = moved_outputs(call.out, wanted, shape, given)
    if backend.target == "host":
        less = less_of(type_, compare, descending=request.descending)
        return replace(_bind(pairs, outputs, less, backend), result=result)
    if compare is None:
        compare = specialize(own_order([type_], ["a"]), (type_, type_))
    order = MergeOrder(type_, compare, request.descending, chip_of(backend.arch))
    tile = fitting_tile("merge", order, shape[0], backend, pays=len(pairs) > 1)
    bound = ArrayMerge(pairs, outputs, order, tile, backend).bind()
    return returned(replace(bound, result=result), call)


def _names(count: int) -> list[str]:
    if not count:
        return ["a", "b"]
    several = [f"[{i}]" for i in range(count)] if count > 1 else [""]
    return ["a", "b", *(f"values[{k}]{i}" for k in (0, 1) for i in several)]


def _check_lines(given: Sequence[Argument]) -> None:
    for x in given:
        if len(x.view.shape) != 1:
            raise ShapeError(f"`{x.name}` has shape {x.view.shape}; expected: one dimension")


def _check_pair(first: Argument, second: Argument, keys: tuple[Argument, Argument]) -> None:
    if first.view.dtype != second.view.dtype:
        raise DTypeError(
            f"`{first.name}` has elements of {first.view.dtype}, `{second.name}` of "
            f"{second.view.dtype}; merged arrays have one type",
            hint="convert one of them",
        )
    for x, key in zip((first, second), keys, strict=True):
        if x.view.shape != key.view.shape:
            raise ShapeError(
                f"`{x.name}` has shape {x.view.shape}, `{key.name}` has {key.view.shape}; "
                "there is a value for each element"
            )


def _bind(
    pairs: Sequence[tuple[Argument, Argument]],
    outputs: Sequence[Argument],
    less: Less,
    backend: Backend,
) -> Bound:
    arrays = [apart(x, 0, outputs) for x in pairs[0]]
    rooms = [room_of(o, 0) for o in outputs]
    results = [rooms[0].array]
    places: np.ndarray[Any, Any] | None = None
    if len(pairs) > 1:
        places = np.empty(rooms[0].array.shape, np.int64)
        results.append(places)
    views = tuple(as_view(raw(x), "a") for x in (*arrays, *results))
    values = [_joined(first, second) for first, second in pairs[1:]]
    return Bound(
        built=_built(pairs[0][0], less, backend, sourced=places is not None),
        functions=less.functions,
        shape=(arrays[0].size, arrays[1].size),
        views=views,
        strides=flat_strides(views, 2),
        elements=rooms[0].array.size,
        workspace=0,
        result=None,
        flags=0,
        finish=partial(settled, pairs, rooms, values, places),
    )


def _joined(first: Argument, second: Argument) -> np.ndarray[Any, Any]:
    """Return two arrays behind each other; NumPy would lay structs out anew."""
    parts = [array_of(first.view), array_of(second.view)]
    made = np.empty(sum(p.size for p in parts), parts[0].dtype)
    return np.concatenate(parts, out=made)


def _built(a: Argument, less: Less, backend: Backend, *, sourced: bool) -> Built:
    spelled = type_spelling(a.type, qualified=True)
    told = "true" if sourced else "false"
    name = f"merge ({a.type})"
    run = f"km::merge_sorted<{spelled}, {told}>::run(call, {less.text});"
    return build(
        ("merge", spelled, told, less.key),
        "merge",
        less.scope,
        Cost(2 * a.view.dtype.itemsize, less.flops + 4),
        lambda: assemble(name, ["sort_merge.hpp"], less.printed, run),
        backend=backend,
    )


# ----------------------------------------------------------------------------- plans


def _planner(
    a: Any,
    b: Any,
    *,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    out: Any = None,
) -> Plan:
    """Prepare a merge of arrays like these, without values.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.merge.plan(np.zeros(2), np.zeros(1))(np.array([1.0, 3.0]), np.array([2.0]))
    array([1., 2., 3.])
    """
    request = _Request(comparator, bool(descending))
    return Plan(_prepare(request, (a, b), out), partial(_prepare, request), fixed=None)


merge.plan = _planner  # type: ignore[attr-defined]  # `km.merge.plan` is the public name
