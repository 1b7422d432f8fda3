"""Calls of `transform` and `reduce` with iterators: their elements become part of the operator.

So the templates see arrays, the index of the loop, and one operator: they read in packets and
vectorise as for a function that was written by hand. Families that take functors use `feeds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelmill.algorithms import element_nodes as nodes
from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms import sequences
from kernelmill.algorithms.arguments import Argument, outputs_of, rules_of
from kernelmill.algorithms.feed_nodes import Ground, Leaf, Strand
from kernelmill.algorithms.feeds import apart, moved_feeds, named_parts, out_ground
from kernelmill.algorithms.weave import weave
from kernelmill.compiler.op import Op, as_op
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    can_store,
    int64,
    promotion,
    storage,
)
from kernelmill.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.moves import Moved
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import PromotionTable, Type

__all__ = ["Fused", "fuse_inputs", "fuse_transform", "holds_iterators", "stored_type"]


@dataclass(frozen=True, slots=True)
class Fused:
    """A call whose iterators are part of its operator.

    Parameters
    ----------
    call
        The arguments, with NumPy arrays where the call runs.
    operator, function
        From the operands to results, and what its captured scalars are read from.
    given, outputs
        The operands, and where results are stored: nowhere if all are discarded.
    result
        What the user gets.
    shape
        How many elements, in each dimension.
    rules
        Whose promotion holds.
    """

    call: Moved
    operator: Specialized
    function: object
    given: list[Argument]
    outputs: list[Argument]
    result: Any  # Any: arrays of whatever library, or what was given
    shape: tuple[int, ...]
    rules: PromotionTable


def holds_iterators(inputs: tuple[Any, ...], out: Any) -> bool:
    """Return whether a call is one for this module: quick where it is not."""
    outs = out if type(out) is tuple else (out,)
    return any(sequences.is_iterator(x) or type(x) is tuple for x in (*inputs, *outs))


def fuse_transform(op: Op, inputs: tuple[Any, ...], out: Any) -> Fused:
    """Return an element-wise call as one of operands.

    Raises
    ------
    ArgumentError
        Nothing says how many elements there are, or the results do not fit the outputs.
    ShapeError
        Lengths differ, or an array is not of one dimension.
    """
    call = moved_feeds(inputs, out, "inputs")
    named = named_parts("inputs", call.inputs)
    outs = () if call.out is None else named_parts("out", _outs(call.out))
    length = _length([*named, *outs])
    strand = Strand(Ground.of(named, length))
    rules = _rules(strand)
    with promotion(rules):
        value, type_ = strand.apply(op, [_value(strand, part) for _, part in named])
        results = value.operator.results
        if not outs:
            dtypes = value.operator.stored
            made, result = outputs_of(None, dtypes, (length,), _operands(strand))
            strand.outputs = [
                (nodes.Stored(_part(value, type_, i), t), a)
                for i, (t, a) in enumerate(zip(dtypes, made, strict=True))
            ]
        else:
            ground = out_ground(outs, _operands(strand), length)
            strand.ground.arguments |= ground.arguments
            _write(strand, op.name, outs, value, results)
            result = call.out
        operator = _woven(op.name, strand)
    outputs = [a for _, a in strand.outputs]
    given = list(apart(_operands(strand), outputs, elementwise=True))
    return Fused(call, operator, strand.roots(given), given, outputs, result, (length,), rules)


def fuse_inputs(
    transform: Op | None,
    inputs: tuple[Any, ...],
    out: Any,
    name: str,
    wrap: Callable[[Strand, nodes.Node, Type], nodes.Node] | None = None,
) -> Fused:
    """Return what a reduction reads, with `transform` applied, as operands and an operator.

    `wrap` makes of one element what is reduced. `outputs` are left to the reduction; raises as
    `fuse_transform`.
    """
    call = moved_feeds(inputs, out, name)
    named = named_parts(name, call.inputs)
    length = _length(named)
    strand = Strand(Ground.of(named, length))
    rules = _rules(strand)
    with promotion(rules):
        values = [_value(strand, part) for _, part in named]
        if transform is not None:
            node: nodes.Node = strand.apply(transform, values)[0]
        else:
            ((read, type_),) = values
            node = nodes.Stored(read, _item(storage(type_)))
            if wrap is not None:
                node = wrap(strand, node, storage(type_))
        called = transform.name if transform else "element"
        given = _operands(strand)
        operator = weave(called, node, strand.params(), strand.operators, strand.types)
    return Fused(call, operator, strand.roots(given), given, [], None, (length,), rules)


def fuse_masked(op: Op, inputs: tuple[Any, ...], out: Any, where: Any) -> Fused:
    """Return an element-wise call that keeps the elements of `out` where `where` is false.

    Raises
    ------
    ArgumentError
        There is no `out`.
    ShapeError
        Inputs do not broadcast to `out`.
    """
    if out is None:
        raise ArgumentError(
            "`where` is given without `out`, whose elements it leaves as they are",
            hint="pass an array, for example `out=x.copy()`",
        )
    stencil, predicate = _stencil(where)
    call = moved_feeds((*inputs, *stencil), out, "inputs", partly=True)
    names = [*(n for n, _ in named_parts("inputs", inputs)), *("where" for _ in stencil)]
    named = [(n, p) for n, (_, p) in zip(names, named_parts("", call.inputs), strict=True)]
    outs = named_parts("out", _outs(call.out))
    fused = holds_iterators(call.inputs, call.out)
    strand = Strand(Ground.of(named, _length([*named, *outs]) if fused else 0))
    rules = _rules(strand)
    with promotion(rules):
        values = [_value(strand, part, as_is=not fused) for _, part in named]
        value, type_ = strand.apply(op, values[: len(inputs)])
        test = values[-1][0]
        if predicate is not None:
            asked = values[len(inputs) :] if stencil else values
            test, _ = strand.apply(predicate, asked)
        strand.ground.arguments |= out_ground(outs, strand.operands, strand.ground.length).arguments
        results = value.operator.results
        if len(results) != len(outs):
            raise ArgumentError(
                f"{op.name} has {len(results)} results, `out` has {len(outs)} arrays"
            )
        for at, (_, part) in enumerate(outs):
            old, kept = _value(strand, part, as_is=not fused)
            _check_kind(op.name, results[at], kept)
            new = nodes.Stored(_part(value, type_, at), _item(kept))
            chosen = nodes.Choose(test, new, old)
            if fused:
                strand.write(part, chosen, kept)
            else:
                strand.outputs.append((chosen, strand.ground.arguments[id(part)]))
        operator = _woven(op.name, strand)
    outputs = [a for _, a in strand.outputs]
    shape = outputs[0].operand.shape if not fused else (strand.ground.length,)
    operands = strand.operands
    names = [*(a.name for a in operands), "out"]
    wanted = layouts.broadcast(names, [*(a.operand.shape for a in operands), shape])
    if wanted != shape:
        raise ShapeError(f"`out` has shape {shape}, the inputs broadcast to {wanted}")
    given = list(apart(operands, outputs, elementwise=True))
    return Fused(call, operator, strand.roots(given), given, outputs, call.out, shape, rules)


def _stencil(where: Any) -> tuple[tuple[Any, ...], Op | None]:
    """Return the arrays that `where` brings, and its predicate."""
    if isinstance(where, Op) or (callable(where) and not hasattr(where, "shape")):
        return (), as_op(where, name="where")
    if type(where) is tuple:
        *stencil, predicate = where
        return tuple(stencil), as_op(predicate, name="where")
    return (where,), None


def _check_kind(name: str, result: Type, dtype: Type) -> None:
    if not isinstance(dtype, (DType, StructType)) or not can_store(result, dtype):
        raise DTypeError(
            f"{name} returns {result}, `out` has {dtype}: not of the same kind",
            hint="convert in the operator, for example `np.int32(...)`",
        )


# ----------------------------------------------------------------------------- parts


def _rules(strand: Strand) -> PromotionTable:
    known = list(strand.ground.arguments.values())
    return rules_of(known) if known else "numpy"


def _outs(out: Any) -> tuple[Any, ...]:
    return out if type(out) is tuple else (out,)


def _item(type_: Type) -> DType | StructType:
    assert isinstance(type_, (DType, StructType))
    return type_


def _operands(strand: Strand) -> list[Argument]:
    """Return the operands; the index where there are none, since it says where a call runs."""
    if not strand.operands:
        strand.operand(strand.ground.index())
    return strand.operands


def _value(strand: Strand, part: Any, *, as_is: bool = False) -> tuple[nodes.Node, Type]:
    """Return an element of an input; a scalar, or an array of no dimensions, is the same one.

    `as_is` takes arrays of any dimensions as they are.
    """
    given = strand.ground.arguments.get(id(part))
    if given is not None and (as_is or not given.view.shape):
        return strand.operand(given), given.type
    return strand.read(part)


def _length(named: Sequence[tuple[str, Any]]) -> int:
    """Return how many elements the parts have that have an end."""
    found: tuple[str, int] | None = None
    for name, part in named:
        own = _extent(name, part)
        if own is not None and found is not None and own != found[1]:
            raise ShapeError(
                f"`{found[0]}` has {found[1]} elements, `{name}` has {own}",
                hint="with iterators, all have one length or none",
            )
        if found is None and own is not None:
            found = name, own
    if found is None:
        raise ArgumentError(
            f"`{named[0][0]}` has no end, and nothing else says how many elements there are",
            hint="pass an array as `out`, or `km.iterators.strided(it, 1, count=n)`",
        )
    return found[1]


def _extent(name: str, part: Any) -> int | None:
    if sequences.is_iterator(part):
        return sequences.length_of(part)
    shape = sequences.shape_of(part)
    if len(shape) > 1:
        raise ShapeError(
            f"`{name}` has shape {shape}; iterators are of one dimension",
            hint="pass `x.reshape(-1)`",
        )
    return shape[0] if shape else None


# ----------------------------------------------------------------------------- results


def _part(value: nodes.Node, type_: Type, at: int) -> nodes.Node:
    return nodes.Part(value, at) if isinstance(type_, TupleType) else value


def _write(
    strand: Strand,
    name: str,
    outs: Sequence[tuple[str, Any]],
    value: nodes.Apply,
    results: Sequence[Type],
) -> None:
    """Add where the results go; one output takes them all, several take one each."""
    if len(outs) == 1:
        ((_, part),) = outs
        strand.write(part, value, value.operator.result)
        return
    if len(results) != len(outs):
        raise ArgumentError(f"{name} has {len(results)} results, `out` has {len(outs)} arrays")
    for at, ((_, part), item) in enumerate(zip(outs, results, strict=True)):
        strand.write(part, _part(value, value.operator.result, at), item)


def _woven(name: str, strand: Strand) -> Specialized:
    items = tuple(n for n, _ in strand.outputs)
    node = items[0] if len(items) == 1 else nodes.Pack(items, None)
    return weave(name, node, strand.params(), strand.operators, strand.types)


def stored_type(output: Argument) -> Type:
    """Return the type of what a template stores: with its place, where the result says it."""
    if isinstance(output, Leaf):
        return TupleType((output.view.dtype, int64))
    return output.view.dtype
