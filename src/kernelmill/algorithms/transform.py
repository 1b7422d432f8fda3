"""`transform`: an operator applied to each element of one or several arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from kernelmill import events
from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
    specialized,
    values_of,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.fusion import fuse_masked, fuse_transform, holds_iterators, stored_type
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import (
    Bound,
    Built,
    Plan,
    Scope,
    build,
    execute,
    lately,
    remember,
)
from kernelmill.algorithms.source import (
    TILE_THREADS,
    loop_for,
    tile_side,
    transform_source,
)
from kernelmill.algorithms.weave import Roots
from kernelmill.compiler.op import Op, Specialized, as_op, root_of
from kernelmill.dtypes import DType, StructType, can_store, promotion
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.memory import QUICK_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.layout import Layout
    from kernelmill.algorithms.source import Loop
    from kernelmill.dtypes import Type
    from kernelmill.runtime.backend import Target

__all__ = ["bind_operands", "plan_as", "transform"]

_MOST_BLOCKS: Final = (1 << 31) - 1
# Plans of one layout differ in what shares memory; some such calls no plan serves.
_PLANS_OF_A_LAYOUT: Final = 4
PlanKind = TypeVar("PlanKind", bound=Plan)


def transform(
    inputs: Any, op: Op | Callable[..., Any], *, out: Any = None, where: Any = None
) -> Any:
    """Apply an operator to each element.

    Parameters
    ----------
    inputs
        An array, or a tuple of arrays that are taken together: the operator has one parameter for
        each. Shapes broadcast as in NumPy; Python scalars are weak (NEP 50). NumPy arrays,
        buffers, DLPack exporters and torch tensors of any strides; or arrays in the memory of one
        CUDA device (torch, CuPy, DLPack, `__cuda_array_interface__`), which then computes. NumPy
        arrays are copied to it, and to a CUDA device that is the current one; results go back to
        NumPy when all arrays were of NumPy. Beside arrays of one dimension iterators are taken,
        see `km.iterators`.
    op
        A function of the operator language. When it returns a tuple there are several results.
    out
        Array or iterator, or tuple of them, to write to. Its dtype may differ from the operator's
        within NumPy's rule "same_kind". It may be one of the inputs; an input that overlaps it
        otherwise is copied first.
    where
        Which elements to write; the others of `out` stay as they are. A predicate of the elements
        of `inputs`; or a stencil, an array of truths that broadcasts to them; or `(stencil,
        predicate)`, a predicate of the elements of a stencil of any type.

    Returns
    -------
    array or tuple of arrays
        `out`, or new arrays in the library of the first input and in its memory order.

    Raises
    ------
    OperatorError
        The operator language refuses the operator.
    ShapeError, DTypeError, ArgumentError, DeviceError
        The arrays do not fit each other, the operator or the device.
    CompileError
        There is no usable compiler, or it failed.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(4, dtype=np.float32)
    >>> km.transform((x, x), lambda a, b: 2 * a + b)
    array([0., 3., 6., 9.], dtype=float32)
    >>> km.transform(x, lambda v: -v, out=x, where=lambda v: v > 1)
    array([ 0.,  1., -2., -3.], dtype=float32)
    """
    arrays = inputs if type(inputs) is tuple else (inputs,)
    if where is not None:
        return execute(_masked(as_op(op), arrays, out, where))
    key = _quick_key(arrays, op, out)
    laid = None
    if key is not None:
        done = _lately(key, op, arrays, out)
        if done is None:
            laid = _laid_key(key, arrays, out)
            done = _lately(laid, op, arrays, out) if laid is not None else None
        if done is not None:
            return done
    bound = _prepare(as_op(op), arrays, out)
    if key is not None and bound.is_plain:
        if laid is None or _is_flat(bound):
            laid = key
        if laid is key or len(lately(laid)) < _PLANS_OF_A_LAYOUT:
            remember(laid, _plan(as_op(op), bound, Plan))
    return execute(bound)


def plan(inputs: Any, op: Op | Callable[..., Any], *, out: Any = None) -> Plan:
    """Prepare a transform for arrays like these; see `transform` for the parameters.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(4.0)
    >>> twice = km.transform.plan(x, lambda v: 2 * v, out=x)
    >>> twice(x, out=x)
    array([0., 2., 4., 6.])
    """
    return plan_as(Plan, inputs, op, out)


def plan_as(kind: type[PlanKind], inputs: Any, op: Op | Callable[..., Any], out: Any) -> PlanKind:
    """Prepare a transform as `plan` does, as a plan of this kind."""
    arrays = inputs if type(inputs) is tuple else (inputs,)
    operator = as_op(op)
    return _plan(operator, _prepare(operator, arrays, out), kind)


transform.plan = plan  # type: ignore[attr-defined]  # `km.transform.plan` is the public name


# ----------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class _Signature:
    """What the text of an element-wise kernel depends on."""

    operator: Specialized
    inputs: tuple[tuple[Any, layouts.Access], ...]
    outputs: tuple[tuple[Type, layouts.Access], ...]
    loop: Loop


def _prepare(op: Op, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    if holds_iterators(inputs, out):
        return _fused(op, inputs, out)
    call = moved(inputs, out, "inputs")
    given = arguments_of(call.inputs, "inputs", wide=True)
    backend_of(given, "transform")
    with promotion(rules_of(given)):
        bound = _bind(op, given, call.out)
    return replace(bound, finish=call.back) if call.returns else bound


def _bind(op: Op, given: list[Argument], out: Any) -> Bound:
    operator, given = specialized(op, given)
    results = _results(operator, given, out, op.name)
    names, shapes = [a.name for a in given], [a.view.shape for a in given]
    shape = layouts.broadcast(names, shapes)
    outputs, result = outputs_of(out, results, shape, given)
    shape = outputs[0].view.shape
    given = [a.apart_from(outputs) for a in given]
    bound = bind_operands(op, operator, given, outputs, shape)
    return replace(
        bound,
        functions=(op.function,),
        result=result,
        scalar=out is None and not shape and _is_numpy(given),
        values=values_of(operator.translation.program, given),
    )


def _fused(op: Op, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Bind a call with iterators: they are part of its operator."""
    fused = fuse_transform(op, inputs, out)
    backend_of(fused.given, "transform")
    bound = bind_operands(op, fused.operator, fused.given, fused.outputs, fused.shape)
    return replace(
        bound,
        functions=(fused.function,),
        result=fused.result,
        elements=bound.elements if fused.outputs else 0,
        finish=fused.call.back if fused.call.returns else None,
    )


def _masked(op: Op, inputs: tuple[Any, ...], out: Any, where: Any) -> Bound:
    """Bind a call that writes some elements: the operator then gives all, new or as they were."""
    fused = fuse_masked(op, inputs, out, where)
    backend_of(fused.given, "transform")
    bound = bind_operands(op, fused.operator, fused.given, fused.outputs, fused.shape)
    finish = fused.call.back if fused.call.returns else None
    return replace(bound, functions=(fused.function,), result=fused.result, finish=finish)


def bind_operands(
    op: Op,
    operator: Specialized,
    given: list[Argument],
    outputs: list[Argument],
    shape: tuple[int, ...],
) -> Bound:
    """Return the call of an operator on operands; function and result are still missing."""
    layout = layouts.elementwise(shape, [a.operand for a in given], [o.operand for o in outputs])
    built = _built(op, operator, given, outputs, layout)
    return Bound(
        built=built,
        functions=(),
        shape=layout.shape,
        views=tuple(a.view for a in (*given, *outputs)),
        strides=layout.strides,
        elements=math.prod(shape),
        workspace=0,
        result=None,
        grid=_tiles(given, built.backend.target, layout),
    )


def _is_numpy(given: list[Argument]) -> bool:
    """Whether a 0-d result is a NumPy array, which the user gets as a scalar."""
    return given[0].view.library != "torch" and not any(a.view.place for a in given)


def _is_whole(results: tuple[Type, ...], dtype: DType | StructType) -> bool:
    """Whether several results are the fields of one struct."""
    if len(results) == 1 or not isinstance(dtype, StructType):
        return False
    types = [f.type for f in dtype.fields]
    return len(types) == len(results) and all(map(can_store, results, types))


def _results(
    operator: Specialized, inputs: list[Argument], out: Any, name: str
) -> tuple[DType | StructType, ...]:
    """Return the element types to store: the operator's own, or those of `out`."""
    natural = operator.stored
    if out is None:
        return natural
    given = given_outputs(out, inputs)
    if len(given) == 1 and _is_whole(natural, given[0].view.dtype):
        return (given[0].view.dtype,)
    if len(given) != len(natural):
        raise ArgumentError(f"{name} has {len(natural)} results, `out` has {len(given)} arrays")
    stored = tuple(o.view.dtype for o in given)
    for result, dtype in zip(operator.results, stored, strict=True):
        if not can_store(result, dtype):
            raise DTypeError(
                f"{name} returns {result}, `out` has {dtype}: not of the same kind",
                hint="convert in the operator, for example `np.int32(...)`",
            )
    return stored


def _taken(
    given: list[Argument], target: Target, layout: Layout
) -> tuple[tuple[Type, layouts.Access], ...]:
    """Return type and access of each input."""
    patterns = layout.patterns[: len(given)]
    return tuple((a.type, a.access(target, p)) for a, p in zip(given, patterns, strict=True))


def _tiles(given: list[Argument], target: Target, layout: Layout) -> Grid | None:
    """Return the blocks of a call that goes tile by tile, one for each; None for other calls."""
    taken = _taken(given, target, layout)
    if loop_for(target, len(layout.shape), taken) != "tiled":
        return None
    side = tile_side(taken)
    around = math.prod(layout.shape[:-2])
    blocks = around * math.prod(-(-extent // side) for extent in layout.shape[-2:])
    return Grid(min(blocks, _MOST_BLOCKS), TILE_THREADS, ())


def _built(
    op: Op,
    operator: Specialized,
    given: list[Argument],
    outputs: list[Argument],
    layout: Layout,
) -> Built:
    count = len(given)
    backend = backend_of(given, "transform")
    target = backend.target
    taken = _taken(given, target, layout)
    loop = loop_for(target, len(layout.shape), taken)
    made = tuple(
        (stored_type(o), o.access(target, p))
        for o, p in zip(outputs, layout.patterns[count:], strict=True)
    )
    moved = [a.operand.itemsize for a in (*given, *outputs) if a.view.size > 1 or count == 1]
    program = operator.translation.program
    types = ", ".join(f"{type_} {pattern}" for type_, pattern in (*taken, *made))
    return build(
        _Signature(operator, taken, made, loop),
        "transform",
        Scope((operator,)),
        Cost(max(1, sum(moved)), count_flops(program)),
        lambda: transform_source(f"transform {op.name} ({types})", program, taken, made, loop),
        backend=backend,
    )


# ----------------------------------------------------------------------------- plan and launch


def _quick_key(arrays: tuple[Any, ...], op: object, out: Any) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind.

    Code is named by its address, since its hash takes longer than all the rest; plans keep it.
    """
    root = id(op.__code__) if type(op) is FunctionType else root_of(op)
    if type(out) is tuple:
        key, operands = [transform, root, len(out)], (*arrays, *out)
    elif out is None:
        key, operands = [transform, root, 0], arrays
    else:
        key, operands = [transform, root, 1], (*arrays, out)
    for x in operands:
        kind = type(x)
        if kind is np.ndarray:
            key.append(x.dtype)
        elif kind in QUICK_TYPES:  # element types are told apart by the launchers
            key.append(kind)
        else:
            return None
    return tuple(key)


def _laid_key(
    key: tuple[object, ...], arrays: tuple[Any, ...], out: Any
) -> tuple[object, ...] | None:
    """Return what tells this call apart from others by its layout, if all arrays are of NumPy."""
    parts: list[object] = [key]
    for x in (*arrays, *(out if type(out) is tuple else () if out is None else (out,))):
        if type(x) is not np.ndarray:
            return None
        parts += (x.shape, x.strides)
    return tuple(parts)


def _lately(key: tuple[object, ...], op: object, arrays: tuple[Any, ...], out: Any) -> Any:
    """Run a plan that served such a call before; None where there is none that serves this one."""
    for found in lately(key):
        launch = found.told_launch if events.active else found.try_launch
        done = launch((op,), arrays, out)
        if done is not None:
            return done
    return None


def _is_flat(bound: Bound) -> bool:
    """Whether the arrays of a call are contiguous and of one shape, so that any other would do.

    On a device they may be others beside scalars, which are handed over.
    """
    by_value = bound.built.backend.target == "cuda" and any(bound.values)
    arrays = [v for v in bound.views if v.place is not None] if by_value else bound.views
    return len(bound.shape) <= 1 and all(
        view.is_c_contiguous and view.shape == arrays[0].shape for view in arrays
    )


def _plan(op: Op, bound: Bound, kind: type[PlanKind]) -> PlanKind:
    """Make the plan of a bound call; contiguous arrays of one shape get the short way.

    Others get it too, for their very shapes and strides; beside scalars, on a device only.
    """
    lacks = isinstance(bound.functions[0], Roots) or (
        bound.built.backend.target == "host" and any(bound.values)
    )
    fixed = None if lacks else not _is_flat(bound)
    return kind(bound, partial(_prepare, op), fixed=fixed)
