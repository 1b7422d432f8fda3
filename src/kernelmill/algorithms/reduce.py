"""`reduce` and `transform_reduce`: all elements, or those along axes, combined into one.

The order in which elements combine is fixed: `docs/reference/reduction-tree.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
    weak_limits,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.folds import Fold, element_program, element_types, plan_fold
from kernelmill.algorithms.plan import (
    Bound,
    Built,
    Plan,
    Scope,
    aligned,
    build,
    execute,
    quick,
    remember,
)
from kernelmill.algorithms.source import FoldText, reduce_source, storing
from kernelmill.compiler.op import WELL_KNOWN, Op, Specialized, as_op, root_of, specialize
from kernelmill.dtypes import DType, StructType, can_store, promotion
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.backend import KEPT_SHIFT
from kernelmill.runtime.memory import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.layout import ReductionLayout

__all__ = ["reduce", "transform_reduce"]

Operators: TypeAlias = "Op | Callable[..., Any] | tuple[Op | Callable[..., Any], ...]"
# Elements of a chunk of the reduction tree; the same number stands in host/reduce_tree.hpp.
CHUNK: Final = 16384
_PLAIN_AXES: Final = (type(None), int, tuple)
_ADD: Final = WELL_KNOWN["add"]


def reduce(
    x: Any,
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Combine elements with an associative operator.

    Parameters
    ----------
    x
        An array of any layout.
    op
        `km.add` and the like, a Python function, or a tuple of them: then there are several
        results from one pass. A Python function counts as non-commutative, and keeps the order of
        the elements, unless `km.op(f, commutative=True)` says otherwise.
    init
        A value that is combined with the result, on its left; a tuple for several operators.
    axis
        One or several axes; all by default.
    keepdims
        Keep the reduced axes with extent 1.
    dtype
        Type in which to accumulate and return. By default the operator's own; `km.add` and
        `km.multiply` of narrow integers take 64 bits, as `np.sum` does, and those of float16
        accumulate in float32.
    out
        Array, or tuple of arrays, for the results.

    Returns
    -------
    scalar, array or tuple
        In the library of `x`. The same bits for any number of threads and instruction set.

    Raises
    ------
    ArgumentError
        There are no elements, no `init`, and the operator has no identity.
    OperatorError, ShapeError, DTypeError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([[1, 5, 3], [4, 2, 6]])
    >>> km.reduce(x, km.maximum, axis=1)
    array([5, 6])
    >>> km.reduce(x, (km.add, km.minimum))
    (np.int64(21), np.int64(1))
    """
    return _reduce((x,), None, op, _Options(init, axis, keepdims, dtype), out)


def transform_reduce(
    inputs: Any,
    transform: Op | Callable[..., Any],
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Apply an operator to each element and reduce the results, in one pass without temporaries.

    Parameters
    ----------
    inputs
        An array, or a tuple of arrays that broadcast: `transform` has one parameter for each.
    transform
        What to reduce of each element. With a tuple of operators it may return a tuple, one value
        for each operator.
    op, init, axis, keepdims, dtype, out
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> a, b = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0])
    >>> km.transform_reduce((a, b), lambda x, y: (x - y) ** 2)
    np.float64(10.0)
    """
    arrays = inputs if type(inputs) is tuple else (inputs,)
    return _reduce(arrays, transform, op, _Options(init, axis, keepdims, dtype), out)


class _Options(NamedTuple):
    """The options of a call."""

    init: Any
    axis: int | Sequence[int] | None
    keepdims: bool
    dtype: Any


def _reduce(
    arrays: tuple[Any, ...],
    transform: Op | Callable[..., Any] | None,
    op: Operators,
    options: _Options,
    out: Any,
) -> Any:
    ops = op if type(op) is tuple else (op,)
    used = ops if transform is None else (*ops, transform)
    key = _quick_key(arrays, used, options, out)
    if key is not None and not events.active:
        found = quick(key)
        if found is not None:
            done = found.try_launch(used, arrays, out)
            if done is not None:
                return done
    request = _request(ops, transform, options)
    bound = _prepare(request, arrays, out)
    if key is not None:
        remember(key, _plan(request, bound))
    return execute(bound)


def _planner(
    x: Any,
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Plan:
    """Prepare a reduction of arrays like `x`; see `reduce` for the parameters.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(5)
    >>> total = km.reduce.plan(x)
    >>> total(x)
    np.int64(10)
    """
    ops = op if type(op) is tuple else (op,)
    request = _request(ops, None, _Options(init, axis, keepdims, dtype))
    return _plan(request, _prepare(request, (x,), out))


def _transform_planner(
    inputs: Any,
    transform: Op | Callable[..., Any],
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Plan:
    """Prepare a transform_reduce; see `transform_reduce` for the parameters."""
    ops = op if type(op) is tuple else (op,)
    arrays = inputs if type(inputs) is tuple else (inputs,)
    request = _request(ops, transform, _Options(init, axis, keepdims, dtype))
    return _plan(request, _prepare(request, arrays, out))


reduce.plan = _planner  # type: ignore[attr-defined]  # `km.reduce.plan` is the public name
transform_reduce.plan = _transform_planner  # type: ignore[attr-defined]  # likewise


# ----------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, apart from the arrays."""

    ops: tuple[Op, ...]
    transform: Op | None
    inits: tuple[object, ...]
    options: _Options

    @property
    def functions(self) -> tuple[object, ...]:
        """The callables whose captured scalars the kernel reads, in the order of its scope."""
        used = self.ops if self.transform is None else (*self.ops, self.transform)
        return tuple(o.function for o in used)


def _request(
    ops: tuple[Any, ...], transform: Op | Callable[..., Any] | None, options: _Options
) -> _Request:
    if not ops:
        raise ArgumentError("`op` is an empty tuple; a reduction takes at least one operator")
    init = options.init
    inits = init if type(init) is tuple else (init,) * len(ops)
    if len(inits) != len(ops):
        raise ArgumentError(f"`init` has {len(inits)} values for {len(ops)} operators")
    mapped = None if transform is None else as_op(transform, name="transform")
    return _Request(tuple(as_op(o) for o in ops), mapped, inits, options)


@dataclass(frozen=True, slots=True)
class _Signature:
    """What the text of a reduction depends on."""

    scope: tuple[Specialized, ...]
    inputs: tuple[tuple[Any, layouts.Pattern], ...]
    outputs: tuple[DType | StructType, ...]
    form: layouts.Form
    folds: tuple[tuple[str, bool, bool], ...]


def _prepare(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    if request.transform is None and (len(inputs) != 1 or type(inputs[0]) is tuple):
        count = len(inputs[0]) if len(inputs) == 1 else len(inputs)
        raise ArgumentError(
            f"a reduction takes one array, got {count}",
            hint="`km.transform_reduce` takes several, with an operator that joins them",
        )
    given = arguments_of(inputs, "inputs" if request.transform else "x")
    backend_of(given, "reduce")
    with promotion(rules_of(given)):
        mapped, folds = _folds(request, given)
        return _bind(request, given, mapped, folds, out)


def _folds(request: _Request, given: list[Argument]) -> tuple[Specialized | None, list[Fold]]:
    """Specialize the operators for the elements."""
    types = tuple(a.type for a in given)
    mapped = specialize(request.transform, types) if request.transform else None
    if mapped is not None:
        weak_limits(mapped.translation.program, given)
    elements = element_types(mapped, types, len(request.ops))
    if len(elements) != len(request.ops):
        raise ArgumentError(
            f"`transform` returns {len(elements)} values for {len(request.ops)} operators",
            hint="return one value, or one for each operator",
        )
    folds = [
        plan_fold(op, element, init, request.options.dtype)
        for op, element, init in zip(request.ops, elements, request.inits, strict=True)
    ]
    return mapped, folds


def _bind(
    request: _Request,
    given: list[Argument],
    mapped: Specialized | None,
    folds: list[Fold],
    out: Any,
) -> Bound:
    shape = layouts.broadcast([a.name for a in given], [a.view.shape for a in given])
    axes = layouts.normalize_axes(request.options.axis, len(shape))
    keepdims = request.options.keepdims
    made = tuple(1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes)
    outputs, result = outputs_of(out, _stored(folds, out, given), made, given, exact=True)
    given = [a.apart_from(outputs, elementwise=False) for a in given]
    kept = [
        o.on_axes([a for a in range(len(shape)) if a not in axes]) if keepdims else o
        for o in outputs
    ]
    layout = layouts.reduction(
        shape,
        axes,
        [a.operand for a in given],
        [o.operand for o in kept],
        ordered=any(f.ordered for f in folds),
    )
    built = _built(given, mapped, folds, [o.view.dtype for o in outputs], layout)
    elements, results = math.prod(shape), math.prod(made)
    if elements == 0 and results:
        _fill_empty(folds, outputs)
    return Bound(
        built=built,
        functions=request.functions,
        shape=layout.shape,
        views=tuple(a.view for a in (*given, *outputs)),
        strides=layout.strides,
        elements=elements,
        workspace=_workspace(elements, results, folds),
        result=result,
        flags=layout.kept << KEPT_SHIFT,
        tail=_tail(folds),
        scalar=out is None and made == () and isinstance(_first(result), np.ndarray),
    )


def _first(result: Any) -> Any:
    return result[0] if type(result) is tuple else result


def _stored(
    folds: Sequence[Fold], out: Any, inputs: Sequence[Argument]
) -> tuple[DType | StructType, ...]:
    """Return the element types to store: the folds' own, or those of `out`."""
    if out is None:
        return tuple(f.out for f in folds)
    given = given_outputs(out, inputs)
    if len(given) != len(folds):
        raise ArgumentError(f"`out` has {len(given)} arrays for {len(folds)} operators")
    stored = tuple(o.view.dtype for o in given)
    for fold, dtype in zip(folds, stored, strict=True):
        if not can_store(fold.out, dtype):
            raise DTypeError(
                f"{fold.op.name} gives {fold.out}, `out` has {dtype}: not of the same kind",
                hint="pass an `out` of that kind, or `dtype=`",
            )
    return stored


def _fill_empty(folds: Sequence[Fold], outputs: Sequence[Argument]) -> None:
    """Store the results of reductions of no elements."""
    for fold, output in zip(folds, outputs, strict=True):
        fill(output.view, fold.empty())


def _workspace(elements: int, results: int, folds: Sequence[Fold]) -> int:
    """Return the bytes for the results of chunks, as host/reduce.hpp asks for them."""
    chunks = -(-(elements // max(1, results)) // CHUNK)
    if chunks <= 1:
        return 0
    return sum(-(-results * chunks * f.accumulator.itemsize // 64) * 64 for f in folds)


def _tail(folds: Sequence[Fold]) -> bytes:
    return b"".join(aligned(f.tail()) for f in folds)


def _built(
    given: Sequence[Argument],
    mapped: Specialized | None,
    folds: Sequence[Fold],
    stored: list[DType | StructType],
    layout: ReductionLayout,
) -> Built:
    scope = Scope(tuple(f.combine for f in folds) + ((mapped,) if mapped else ()))
    inputs = tuple((a.type, p) for a, p in zip(given, layout.patterns, strict=True))
    ways = tuple((_well_known(f), f.ordered, f.init is not None) for f in folds)
    program = element_program([a.type for a in given], mapped, folds)
    names = "+".join(f.op.name for f in folds)
    types = ", ".join(f"{type_} {pattern}" for type_, pattern in inputs)
    flops = sum(count_flops(f.combine.translation.program) for f in folds)
    return build(
        _Signature(scope.operators, inputs, tuple(stored), layout.form, ways),
        "reduce",
        scope,
        Cost(
            max(1, sum(a.view.dtype.itemsize for a in given if a.view.size > 1)),
            flops + (count_flops(program) if program else 0),
        ),
        lambda: reduce_source(
            f"reduce {names} ({types}) {layout.form}",
            layout.form,
            inputs,
            None if program is None else (program, scope.offsets[-1] if mapped else 0),
            _fold_texts(folds, stored, scope),
        ),
        backend=backend_of(given, "reduce"),
    )


def _well_known(fold: Fold) -> str:
    """Return the name of a well-known operator, for which the host has vector forms, else ""."""
    return fold.op.name if WELL_KNOWN.get(fold.op.name) is fold.op else ""


def _fold_texts(
    folds: Sequence[Fold], stored: Sequence[DType | StructType], scope: Scope
) -> list[FoldText]:
    texts, tail = [], scope.size
    for fold, out, offset in zip(folds, stored, scope.offsets, strict=False):
        texts.append(
            FoldText(
                _well_known(fold),
                storing(fold.combine.translation.program, [fold.accumulator]),
                fold.finish(out),
                fold.accumulator,
                fold.ordered,
                offset,
                tail,
            )
        )
        tail += len(aligned(fold.tail()))
    return texts


# ----------------------------------------------------------------------------- plan and launch


def _quick_key(
    arrays: tuple[Any, ...], used: tuple[Any, ...], options: _Options, out: Any
) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if it is of the common kind: NumPy arrays."""
    init, axis, keepdims, dtype = options
    if init is not None or dtype is not None or keepdims or type(axis) not in _PLAIN_AXES:
        return None
    parts: list[object] = [reduce, axis, len(used), *map(root_of, used)]
    for x in arrays:
        if type(x) is not np.ndarray:
            return None
        parts += (x.dtype, x.shape)
    if out is not None:
        for x in out if type(out) is tuple else (out,):
            if type(x) is not np.ndarray:
                return None
            parts.append(x.dtype)
    return tuple(parts)


def _plan(request: _Request, bound: Bound) -> Plan:
    """Make the plan of a bound call; contiguous arrays of that shape get the short way."""
    return Plan(bound, partial(_prepare, request), fixed=True)
