"""From the arguments of a sort to a bound call: checks, the order, outputs.

The public functions are in `sort.py`, what the processor does in `sort_host.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from kernelmill.algorithms.arguments import (
    arguments_of,
    backend_of,
    integer_of,
    moved_outputs,
    rules_of,
)
from kernelmill.algorithms.merges_sort import bind_merge_sort
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.orders import check_comparator
from kernelmill.algorithms.sort_cuda import bind_cuda_sort, has_digits
from kernelmill.algorithms.sort_host import HostSort, bind_sort
from kernelmill.compiler.op import as_op, specialize
from kernelmill.dtypes import DType, StructType, int64, promotion
from kernelmill.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.moves import Moved
    from kernelmill.algorithms.plan import Bound
    from kernelmill.compiler.op import Op, Specialized

__all__ = [
    "Algorithm",
    "SortRequest",
    "axis_of",
    "check_order",
    "check_values",
    "comparing",
    "element_of",
    "prepare_sort",
    "returned",
    "several_values",
    "value_names",
]

Algorithm: TypeAlias = Literal["auto", "radix", "merge"]


@dataclass(frozen=True, slots=True)
class SortRequest:
    """What is asked for, apart from the arrays; `name` is that of the function."""

    name: Literal["sort", "argsort", "sort_by_key"]
    comparator: Op | Callable[..., Any] | None = None
    descending: bool = False
    stable: bool = True
    bits: tuple[int, int] | None = None
    algorithm: Algorithm = "auto"
    axis: int = -1

    @property
    def first(self) -> str:
        """The name of the argument that is sorted."""
        return "keys" if self.name == "sort_by_key" else "x"


# ----------------------------------------------------------------------------- checks


def element_of(given: Argument) -> DType | StructType:
    """Return the type of an array's elements."""
    assert isinstance(given.type, (DType, StructType))
    return given.type


def axis_of(shape: tuple[int, ...], axis: int, name: str) -> int:
    """Return an axis from 0 on; raises ShapeError where there is none."""
    rank, found = len(shape), integer_of(axis, "axis")
    if not rank:
        raise ShapeError(f"`{name}` has no dimension; expected: at least one")
    if not -rank <= found < rank:
        raise ShapeError(f"`axis` is {found}; `{name}` has {rank} dimensions")
    return found % rank


def comparing(comparator: Any, types: tuple[Any, Any], rules: Any) -> Specialized:
    """Return a comparator for elements of two types; raises DTypeError if it returns no bool.

    Its `op` is this comparator, whose scope is read, not the first one with the same text.
    """
    given = as_op(comparator, name="comparator")
    with promotion(rules):
        found = specialize(given, types)
    check_comparator(found)
    return replace(found, op=given)


def check_order(type_: DType | StructType, name: str) -> None:
    """Refuse elements that have no order of their own."""
    if not isinstance(type_, DType):
        raise DTypeError(
            f"`{name}` has elements of {type_}, which have no order",
            hint="pass `key=` or `comparator=`",
        )


def _check_options(request: SortRequest, type_: DType | StructType) -> None:
    if request.algorithm not in get_args(Algorithm):
        raise ArgumentError(
            f"`algorithm` is {request.algorithm!r}; expected: 'auto', 'radix' or 'merge'"
        )
    if request.comparator is None:
        check_order(type_, request.first)
    elif request.algorithm == "radix":
        raise ArgumentError(
            "`algorithm` is 'radix', which compares nothing, and there is a comparator",
            hint="leave out one of them",
        )
    if request.bits is None:
        return
    if request.comparator is not None or request.algorithm == "merge":
        raise ArgumentError("`bits` are those of a radix sort, which takes no comparator")
    if type(request.bits) not in (tuple, list) or len(request.bits) != 2:  # noqa: PLR2004 - a pair
        raise ArgumentError(f"`bits` is {request.bits!r}; expected: a pair, first and behind last")
    low, high = (integer_of(b, f"bits[{i}]") for i, b in enumerate(request.bits))
    width = 8 * type_.itemsize
    if not 0 <= low <= high <= width:
        raise ArgumentError(
            f"`bits` are ({low}, {high}); the limits are 0 and {width}, and the first comes first"
        )


def value_names(count: int) -> list[str]:
    """Return how errors call values that come beside what is sorted."""
    return ["values"] if count == 1 else [f"values[{i}]" for i in range(count)]


def several_values(values: Any) -> tuple[Any, ...]:
    """Return values as a tuple of arrays; raises ArgumentError where there are none."""
    several = values if type(values) is tuple else (values,)
    if not several:
        raise ArgumentError("`values` is empty; at least one array is needed")
    return several


def check_values(keys: Argument, values: Sequence[Argument]) -> None:
    """Raise ShapeError where there is not a value for each element."""
    for a in values:
        if a.view.shape != keys.view.shape:
            raise ShapeError(
                f"`{a.name}` has shape {a.view.shape}, `{keys.name}` has {keys.view.shape}; "
                f"there is a value for each {'key' if keys.name == 'keys' else 'element'}"
            )


# ----------------------------------------------------------------------------- the call


def prepare_sort(request: SortRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call, what is sorted and then values, and bind them."""
    call = moved(inputs, out, request.first)
    names = [request.first]
    if request.name == "sort_by_key":
        names += value_names(max(1, len(inputs) - 1))
    keys, *values = given = arguments_of(call.inputs, names)
    backend = backend_of(given, "sort")
    axis = axis_of(keys.view.shape, request.axis, keys.name)
    type_ = element_of(keys)
    _check_options(request, type_)
    check_values(keys, values)
    compare = None
    if request.comparator is not None:
        compare = comparing(request.comparator, (type_, type_), rules_of(given))
    wanted = (int64,) if request.name == "argsort" else tuple(element_of(a) for a in given)
    outputs, result = moved_outputs(call.out, wanted, keys.view.shape, given)
    work = HostSort(request, keys, tuple(values), tuple(outputs), axis, compare, backend)
    return returned(replace(_binder(work)(work), result=result), call)


def _binder(work: HostSort) -> Callable[[HostSort], Bound]:
    """Return what binds a sort: on the processor, by comparison, or by digits."""
    if work.backend.target == "host":
        return bind_sort
    return bind_cuda_sort if has_digits(work) else bind_merge_sort


def returned(bound: Bound, call: Moved) -> Bound:
    """Return a call whose results go to the host when all its launches are done, if they do."""
    if not call.returns:
        return bound
    return replace(bound, finish=partial(_returned, bound.finish, call))


def _returned(finish: Callable[[Any], Any] | None, call: Moved, result: Any) -> Any:
    return call.back(finish(result) if finish else result)
