"""From the arguments of a reduction to a bound call: checks, types, layout, kernel.

The public functions are in `reduce.py`, accumulators in `folds.py`, the text in `source_reduce.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
    specialized,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.determinism import check_bits, check_determinism
from kernelmill.algorithms.folds import Fold, element_program, element_types, plan_fold
from kernelmill.algorithms.fusion import fuse_inputs, holds_iterators
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Built, Scope, aligned, build, execute
from kernelmill.algorithms.source import loop_for, storing, transform_source
from kernelmill.algorithms.source_reduce import (
    FoldText,
    ReductionText,
    cuda_reduce_source,
    host_reduce_source,
    serves,
)
from kernelmill.algorithms.spread import CHUNK, grid_of, orders_of, spread_of, state_bytes
from kernelmill.compiler.op import WELL_KNOWN, Op, Specialized, as_op
from kernelmill.dtypes import DType, StructType, can_store, promotion
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.backend import KEPT_SHIFT
from kernelmill.runtime.memory import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.determinism import Determinism
    from kernelmill.algorithms.layout import ReductionLayout
    from kernelmill.algorithms.spread import Spread
    from kernelmill.dtypes import Type
    from kernelmill.runtime.backend import Backend, Grid, KernelSource

__all__ = ["Options", "Request", "bind_reduction", "prepare", "prepare_rows", "request_of"]


class Options(NamedTuple):
    """The options of a call."""

    init: Any
    axis: int | Sequence[int] | None
    keepdims: bool
    dtype: Any
    determinism: Determinism


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, apart from the arrays."""

    ops: tuple[Op, ...]
    transform: Op | None
    inits: tuple[object, ...]
    options: Options

    @property
    def functions(self) -> tuple[object, ...]:
        """The callables whose captured scalars the kernel reads, in the order of its scope."""
        used = self.ops if self.transform is None else (*self.ops, self.transform)
        return tuple(o.function for o in used)


def request_of(
    ops: tuple[Any, ...], transform: Op | Callable[..., Any] | None, options: Options
) -> Request:
    """Check what can be checked without the arrays."""
    check_determinism(options.determinism)
    if not ops:
        raise ArgumentError("`op` is an empty tuple; a reduction takes at least one operator")
    init = options.init
    inits = init if type(init) is tuple else (init,) * len(ops)
    if len(inits) != len(ops):
        raise ArgumentError(f"`init` has {len(inits)} values for {len(ops)} operators")
    mapped = None if transform is None else as_op(transform, name="transform")
    return Request(tuple(as_op(o) for o in ops), mapped, inits, options)


@dataclass(frozen=True, slots=True)
class _Signature:
    """What the text of a reduction depends on."""

    scope: tuple[Specialized, ...]
    inputs: tuple[tuple[Any, layouts.Access], ...]
    outputs: tuple[DType | StructType, ...]
    form: layouts.Form
    folds: tuple[tuple[str, bool, bool], ...]
    spread: Spread | None


def prepare(request: Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    zipped = len(inputs) == 1 and type(inputs[0]) is tuple
    known = all(WELL_KNOWN.get(op.name) is op for op in request.ops)  # of numbers, not of pairs
    if holds_iterators(inputs, None) and not (request.transform is None and zipped and known):
        return _fused(request, inputs, out)
    if request.transform is None and (len(inputs) != 1 or zipped):
        count = len(inputs[0]) if zipped else len(inputs)
        raise ArgumentError(
            f"a reduction takes one array, got {count}",
            hint="`km.transform_reduce` takes several, with an operator that joins them",
        )
    name = "inputs" if request.transform else "x"
    call = moved(inputs, out, name)
    given = arguments_of(call.inputs, name, wide=request.transform is not None)
    backend_of(given, "reduce")
    with promotion(rules_of(given)):
        mapped = None
        if request.transform is not None:
            mapped, given = specialized(request.transform, given)
        folds = _folds(request, given, mapped)
        bound = bind_reduction(request, given, mapped, folds, call.out)
    return replace(bound, finish=call.back) if call.returns else bound


def prepare_rows(request: Request, size: int, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Bind a call with an iterator of whose elements so many make a row: `prepare` along axis 1."""
    return _fused(request, inputs, out, size)


def _fused(request: Request, inputs: tuple[Any, ...], out: Any, size: int | None = None) -> Bound:
    """Bind a call with iterators: they are part of the operator of an element."""
    name = "inputs" if request.transform else "x"
    fused = fuse_inputs(request.transform, inputs, out, name)
    if size is not None:
        fused = replace(fused, given=[_as_rows(a, size) for a in fused.given])
    backend_of(fused.given, "reduce")
    with promotion(fused.rules):
        folds = _folds(request, fused.given, fused.operator)
        bound = bind_reduction(request, fused.given, fused.operator, folds, fused.call.out)
    functions = (*(o.function for o in request.ops), fused.function)
    return replace(
        bound, functions=functions, finish=fused.call.back if fused.call.returns else None
    )


def _as_rows(given: Argument, size: int) -> Argument:
    """Return an operand of one dimension as one of two, with so many elements a row."""
    if not given.operand.shape:
        return given  # an address, which does not move
    view = given.view
    (length,), (step,) = view.shape, view.strides
    rows = replace(view, shape=(length // size, size), strides=(step * size, step))
    return replace(given, view=rows)


def _folds(request: Request, given: list[Argument], mapped: Specialized | None) -> list[Fold]:
    """Specialize the operators for the elements."""
    elements = element_types(mapped, tuple(a.type for a in given), len(request.ops))
    if len(elements) != len(request.ops):
        raise ArgumentError(
            f"`transform` returns {len(elements)} values for {len(request.ops)} operators",
            hint="return one value, or one for each operator",
        )
    return [
        plan_fold(op, element, init, request.options.dtype)
        for op, element, init in zip(request.ops, elements, request.inits, strict=True)
    ]


def bind_reduction(
    request: Request,
    given: list[Argument],
    mapped: Specialized | None,
    folds: list[Fold],
    out: Any,
) -> Bound:
    """Bind operands whose operators are specialized: layout, outputs, kernel."""
    operators = [f.combine for f in folds] + ([] if mapped is None else [mapped])
    check_bits(request.options.determinism, operators)
    shape = layouts.broadcast([a.name for a in given], [a.operand.shape for a in given])
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
    backend = backend_of(given, "reduce")
    placed = _placed(given, folds, layout, request.options.determinism, backend)
    work = _Work(given, mapped, folds, layout, placed, backend)
    built = _built(work, [o.view.dtype for o in outputs])
    elements, results = math.prod(shape), math.prod(made)
    if elements == 0 and results:
        _fill_empty(folds, outputs, backend)
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
        grid=placed[1] if placed else None,
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


def _fill_empty(folds: Sequence[Fold], outputs: Sequence[Argument], backend: Backend) -> None:
    """Store the results of reductions of no elements."""
    for fold, output in zip(folds, outputs, strict=True):
        if output.view.place is None:
            fill(output.view, fold.empty())
        else:
            execute(_filling(fold, output, backend))


def _filling(fold: Fold, output: Argument, backend: Backend) -> Bound:
    """Return the call that stores the result of no elements on a device."""
    view = output.view
    program, scalars = fold.constant(view.dtype)
    layout = layouts.elementwise(view.shape, [], [output.operand])
    source = transform_source(
        f"empty {fold.op.name} ({view.dtype})",
        program,
        [],
        [(view.dtype, output.access(backend.target, layout.patterns[0]))],
        loop_for(backend.target, len(layout.shape)),
    )
    return Bound(
        built=build(
            source,
            "reduce",
            Scope(()),
            Cost(view.dtype.itemsize, 1),
            lambda: source,
            backend=backend,
        ),
        functions=(),
        shape=layout.shape,
        views=(view,),
        strides=layout.strides,
        elements=view.size,
        workspace=0,
        result=None,
        tail=aligned(scalars),
    )


# ----------------------------------------------------------------------------- the kernel


def _placed(
    given: Sequence[Argument],
    folds: Sequence[Fold],
    layout: ReductionLayout,
    determinism: Determinism,
    backend: Backend,
) -> tuple[Spread, Grid] | None:
    """Return how a reduction is spread over a device; None on the host."""
    if backend.target == "host":
        return None
    orders = orders_of(
        [(f.ordered, _is_exact(f)) for f in folds], as_tree=determinism == "device_to_device"
    )
    states = [
        state_bytes([f.accumulator.itemsize for f in folds if serves(orders, o, f.ordered)])
        for o in orders
    ]
    inputs = [
        (a.view.dtype.itemsize, a.access(backend.target, p))
        for a, p in zip(given, layout.patterns, strict=True)
    ]
    spread = spread_of(layout, inputs, states, orders, backend.multiprocessors)
    return spread, grid_of(spread, layout, states, backend.multiprocessors)


_EXACT: Final = frozenset(
    ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
)


def _is_exact(fold: Fold) -> bool:
    """Whether every order of the elements gives the same bits: known operators on integers."""
    type_ = fold.accumulator
    return _well_known(fold) in _EXACT and isinstance(type_, DType) and type_.is_integer


def _workspace(elements: int, results: int, folds: Sequence[Fold]) -> int:
    """Return the bytes for the results of chunks, as host/reduce.hpp asks for them."""
    chunks = -(-(elements // max(1, results)) // CHUNK)
    if chunks <= 1:
        return 0
    return sum(-(-results * chunks * f.accumulator.itemsize // 64) * 64 for f in folds)


def _tail(folds: Sequence[Fold]) -> bytes:
    return b"".join(aligned(f.tail()) for f in folds)


def _repeats(folds: Sequence[Fold], start: int) -> tuple[tuple[int, int], ...]:
    """Return which operators have what they captured in the tail too, and where."""
    if not any(f.combine.pointers for f in folds):
        return ()
    places = accumulate((len(aligned(f.tail())) for f in folds), initial=start)
    pairs = zip(folds, places, strict=False)
    return tuple((k, at) for k, (f, at) in enumerate(pairs) if f.init is not None)


@dataclass(frozen=True, slots=True)
class _Work:
    """A reduction whose kernel is to be built."""

    given: Sequence[Argument]
    mapped: Specialized | None
    folds: Sequence[Fold]
    layout: ReductionLayout
    placed: tuple[Spread, Grid] | None
    backend: Backend

    @property
    def inputs(self) -> tuple[tuple[Type, layouts.Access], ...]:
        """Type and access of each input."""
        target = self.backend.target
        return tuple(
            (a.type, a.access(target, p))
            for a, p in zip(self.given, self.layout.patterns, strict=True)
        )


def _built(work: _Work, stored: list[DType | StructType]) -> Built:
    mapped, folds, form = work.mapped, work.folds, work.layout.form
    scope = Scope(tuple(f.combine for f in folds) + ((mapped,) if mapped else ()))
    scope = replace(scope, repeats=_repeats(folds, scope.size))
    inputs, spread = work.inputs, work.placed[0] if work.placed else None
    ways = tuple((_well_known(f), f.ordered, f.init is not None) for f in folds)
    program = element_program([a.type for a in work.given], mapped, folds)
    flops = sum(count_flops(f.combine.translation.program) for f in folds)

    def source() -> KernelSource:
        names = "+".join(f.op.name for f in folds)
        types = ", ".join(f"{type_} {pattern}" for type_, pattern in inputs)
        name = f"reduce {names} ({types}) {form}"
        element = None if program is None else (program, scope.offsets[-1] if mapped else 0)
        texts = _fold_texts(folds, stored, scope)
        if spread is None:
            return host_reduce_source(name, form, inputs, element, texts)
        text = ReductionText(inputs, element, texts, scope.size + len(_tail(folds)))
        return cuda_reduce_source(name, text, spread)

    signature = _Signature(scope.operators, inputs, tuple(stored), form, ways, spread)
    return build(
        signature,
        "reduce",
        scope,
        Cost(
            max(1, sum(a.operand.itemsize for a in work.given if a.view.size > 1)),
            flops + (count_flops(program) if program else 0),
        ),
        source,
        backend=work.backend,
        nature=replace(signature, spread=None) if spread else None,
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
