"""`argmin` and `argmax`: where the least or greatest elements are, as NumPy says it.

On the host, contiguous sequences go through a loop of their own, `host/extremes.hpp`; all others,
and devices, reduce pairs of an element and its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from kernelmill import events
from kernelmill.algorithms import element_nodes as nodes
from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
)
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.feed_nodes import Ground, Leaf, struct_of
from kernelmill.algorithms.folds import plan_fold
from kernelmill.algorithms.fusion import fuse_inputs
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Plan, Scope, build, execute, key_of, lately, remember
from kernelmill.algorithms.reductions import Options, bind_reduction, request_of
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.algorithms.source import assemble
from kernelmill.algorithms.weave import Roots, weave
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.op import Op, op
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    bfloat16,
    bool_,
    float16,
    float32,
    int32,
    int64,
    promotion,
    uint8,
)
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.backend import KEPT_SHIFT

if TYPE_CHECKING:
    from kernelmill.algorithms.feed_nodes import Strand
    from kernelmill.algorithms.layout import ReductionLayout
    from kernelmill.algorithms.plan import Built
    from kernelmill.dtypes import Type

__all__ = ["argmax", "argmin"]

Name: TypeAlias = Literal["argmin", "argmax"]


def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None) -> Any:
    """Return where the least element is: the first of equal ones, the first NaN if there is one.

    Parameters
    ----------
    x
        An array of numbers of any layout, or an iterator.
    axis
        The axis along which to look; None for the place in the flattened array.
    keepdims
        Keep the axis with extent 1.
    out
        Array of integers for the results.

    Returns
    -------
    scalar or array
        Of int64, in the library of `x`.

    Raises
    ------
    ArgumentError
        There are no elements to look at.
    DTypeError
        Elements are structs.
    ShapeError, DeviceError, CompileError
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.argmin(np.array([3, 1, 2, 1]))
    np.int64(1)
    >>> km.argmin(np.array([[3, 1], [2, 5]]), axis=1)
    array([1, 0])
    """
    return _extreme("argmin", x, axis, keepdims=keepdims, out=out)


def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None) -> Any:
    """Return where the greatest element is; all else as `km.argmin`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.argmax(np.array([3.0, np.nan, 7.0]))
    np.int64(1)
    """
    return _extreme("argmax", x, axis, keepdims=keepdims, out=out)


# ----------------------------------------------------------------------------- the two operators
# On pairs of an element and its place. A NaN is the only value that is not equal to itself.


def _lesser(a: Any, b: Any) -> Any:
    first = a[1] < b[1]
    number = b[0] == b[0]
    before = (a[0] < b[0]) | ((a[0] == b[0]) & first) | ((a[0] != a[0]) & (number | first))
    return a if before else b


def _greater(a: Any, b: Any) -> Any:
    first = a[1] < b[1]
    number = b[0] == b[0]
    before = (a[0] > b[0]) | ((a[0] == b[0]) & first) | ((a[0] != a[0]) & (number | first))
    return a if before else b


_OPERATORS: Final[dict[Name, Op]] = {
    "argmin": op(_lesser, commutative=True, name="argmin"),
    "argmax": op(_greater, commutative=True, name="argmax"),
}
_FOLDS: Final[dict[Name, str]] = {"argmin": "minimum", "argmax": "maximum"}
# Types that the loop of the host compares in another one.
_COMPARED: Final[dict[DType, DType]] = {float16: float32, bfloat16: float32, bool_: uint8}
_PIECE: Final = 16384  # as host/extremes.hpp has it
_PART: Final = 16
_MOST_PLACES: Final = 1 << 31


# ----------------------------------------------------------------------------- a call


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for, apart from the arrays."""

    name: Name
    axis: int | None
    keepdims: bool


def _extreme(name: Name, x: Any, axis: int | None, *, keepdims: bool, out: Any) -> Any:
    key: tuple[object, ...] | None = None
    if axis is None or type(axis) is int:
        key = key_of([name, axis, keepdims], (x,) if out is None else (x, out))
    if key is not None and not events.active:
        for found in lately(key):
            done = found.try_launch((), (x,), out)
            if done is not None:
                return done
    asked = _Asked(name, axis, keepdims)
    bound = _prepare(asked, (x,), out)
    if key is not None and bound.is_plain and len(bound.views) == 2:  # noqa: PLR2004 - x, places
        remember(key, Plan(bound, partial(_prepare, asked), fixed=True))
    return execute(bound)


def _prepare(asked: _Asked, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    (x,) = inputs
    if asked.axis is not None and not isinstance(asked.axis, (int, np.integer)):
        raise ArgumentError(f"`axis` is {asked.axis!r}; expected: an integer, or None")
    if is_iterator(x) or type(x) is tuple:
        return _of_iterator(asked, x, out)
    call = moved(inputs, out, "x")
    (given,) = arguments_of(call.inputs, "x")
    backend_of((given,), "reduce")
    _check(asked.name, given.view.dtype)
    if not given.view.shape:
        raise ArgumentError(f"`x` is a scalar; {asked.name} takes an array")
    _check_places(call.out, [given])
    with promotion(rules_of((given,))):
        bound = _bind(asked, given, call.out)
    return replace(bound, finish=call.back) if call.returns else bound


def _check(name: str, type_: Type) -> None:
    if isinstance(type_, StructType):
        raise DTypeError(
            f"elements of {name} are {type_}; expected: numbers",
            hint="reduce pairs: km.reduce(km.iterators.zip(x, km.iterators.counting()), op)",
        )


def _check_places(out: Any, given: list[Argument]) -> None:
    for output in () if out is None else given_outputs(out, given):
        dtype = output.view.dtype
        if not isinstance(dtype, DType) or not dtype.is_integer:
            raise DTypeError(f"`{output.name}` has elements of {dtype}; places are integers")


def _bind(asked: _Asked, x: Argument, out: Any) -> Bound:
    shape = x.view.shape
    axes = layouts.normalize_axes(asked.axis, len(shape))
    length = math.prod(shape[a] for a in axes)
    results = math.prod(n for a, n in enumerate(shape) if a not in axes)
    if length == 0 and results:
        raise ArgumentError(f"{asked.name} of no elements, along axes of extents {shape}")
    index = _index(x, axes)
    if x.view.place is None and _is_host(x):
        bound = _quick(asked, x, index, axes, out)
        if bound is not None:
            return bound
    return _as_pairs(asked, [x, index], out, length)


def _is_host(x: Argument) -> bool:
    return backend_of((x,), "reduce").target == "host"


def _index(x: Argument, axes: tuple[int, ...]) -> Leaf:
    """Return the place of an element along the axes as an operand."""
    steps, step = [0] * len(x.view.shape), 1
    for axis in reversed(axes):
        steps[axis] = step
        step *= max(1, x.view.shape[axis])
    made = Ground({0: x}, "host", 0).index()
    view = replace(made.view, shape=x.view.shape, strides=tuple(steps))
    return replace(made, view=view)


def _as_pairs(asked: _Asked, given: list[Argument], out: Any, length: int) -> Bound:
    """Reduce pairs of an element and its place; only the place is stored."""
    types = [a.type for a in given]
    place = int32 if length < _MOST_PLACES else int64
    items = (nodes.Leaf(0, types[0]), nodes.Stored(nodes.Leaf(1, int64), place))
    pair = struct_of(TupleType((types[0], place)))
    params = [("value", types[0]), ("place", int64)]
    mapped = weave("pair", nodes.Pack(items, pair), params, (), ())
    return _reduced(asked, given, mapped, Roots((), ()), out)


def _reduced(asked: _Asked, given: list[Argument], mapped: Any, roots: Any, out: Any) -> Bound:
    operator = _OPERATORS[asked.name]
    options = Options(None, asked.axis, asked.keepdims, None, "run_to_run")
    request = request_of((operator,), None, options)
    fold = plan_fold(operator, mapped.result, None, None)
    fold = replace(fold, out=int64, field="f1")
    bound = bind_reduction(request, given, mapped, [fold], out)
    return replace(bound, functions=(operator.function, roots))


def _of_iterator(asked: _Asked, x: Any, out: Any) -> Bound:
    """Bind a call for an iterator: its elements are made where they are compared."""

    def paired(strand: Strand, value: nodes.Node, type_: Any) -> nodes.Node:
        _check(asked.name, type_)
        place = strand.operand(strand.ground.index(), int64)
        return nodes.Pack((value, place), struct_of(TupleType((type_, int64))))

    fused = fuse_inputs(None, (x,), out, "x", paired)
    if fused.shape == (0,):
        raise ArgumentError(f"{asked.name} of no elements")
    backend_of(fused.given, "reduce")
    _check_places(fused.call.out, fused.given)
    with promotion(fused.rules):
        bound = _reduced(asked, fused.given, fused.operator, fused.function, fused.call.out)
    return replace(bound, finish=fused.call.back if fused.call.returns else None)


# ----------------------------------------------------------------------------- the loop of the host


def _quick(
    asked: _Asked, x: Argument, index: Leaf, axes: tuple[int, ...], out: Any
) -> Bound | None:
    """Bind a call to the loop for contiguous sequences; None where they are not."""
    shape = x.view.shape
    made = tuple(
        1 if a in axes else n for a, n in enumerate(shape) if asked.keepdims or a not in axes
    )
    outputs, result = outputs_of(out, (int64,), made, (x,), exact=True)
    (output,) = outputs
    kept = [a for a in range(len(shape)) if a not in axes]
    placed = output.on_axes(kept) if asked.keepdims else output
    layout = layouts.reduction(
        shape, axes, [x.operand, index.operand], [placed.operand], ordered=False
    )
    if output.view.dtype != int64 or not _in_sequences(x, layout):
        return None
    x = x.apart_from(outputs, elementwise=False)
    pieces = -(-layout.shape[-1] // _PIECE)
    rows = math.prod(layout.shape[:-1])
    return Bound(
        built=_quick_kernel(asked.name, x),
        functions=(),
        shape=layout.shape,
        views=(x.view, output.view),
        strides=(layout.strides[0], layout.strides[2]),
        elements=math.prod(shape),
        workspace=rows * pieces * _PART if pieces > 1 else 0,
        result=result,
        flags=layout.kept << KEPT_SHIFT,
        scalar=out is None and not made and isinstance(result, np.ndarray),
    )


def _in_sequences(x: Argument, layout: ReductionLayout) -> bool:
    """Return whether elements follow each other in memory as their places do."""
    steps = layout.strides[1]
    dtype = x.view.dtype
    assert isinstance(dtype, DType)
    return (
        dtype.kind != "complex"
        and layout.form == "rows"
        and layout.patterns[0] == "contiguous"
        and steps[-1:] == (1,)
        and not any(steps[:-1])
    )


def _quick_kernel(name: Name, x: Argument) -> Built:
    dtype = x.view.dtype
    assert isinstance(dtype, DType)
    compared = type_spelling(_COMPARED.get(dtype, dtype), qualified=True)
    stored = type_spelling(dtype, qualified=True)
    fold = f"km::fold::{_FOLDS[name]}<{compared}>"
    launch = f"km::extremes<{fold}, {compared}, {stored}>::run(call);"
    return build(
        (name, dtype),
        "reduce",
        Scope(()),
        Cost(dtype.itemsize, 1),
        lambda: assemble(f"{name} ({dtype} contiguous)", ["extremes.hpp"], [], launch),
        backend=backend_of((x,), "reduce"),
    )


def _planner(x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None) -> Plan:
    """Prepare an argmin for arrays like `x`; see `argmin` for the parameters.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([3, 1, 2])
    >>> first = km.argmin.plan(x)
    >>> first(x)
    np.int64(1)
    """
    return _plan(_Asked("argmin", axis, keepdims), x, out)


def _greatest_planner(
    x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None
) -> Plan:
    """Prepare an argmax; see `argmax` for the parameters."""
    return _plan(_Asked("argmax", axis, keepdims), x, out)


def _plan(asked: _Asked, x: Any, out: Any) -> Plan:
    bound = _prepare(asked, (x,), out)
    fixed = True if len(bound.views) == 2 else None  # noqa: PLR2004 - x, places
    return Plan(bound, partial(_prepare, asked), fixed=fixed)


argmin.plan = _planner  # type: ignore[attr-defined]  # `km.argmin.plan` is the public name
argmax.plan = _greatest_planner  # type: ignore[attr-defined]  # likewise
