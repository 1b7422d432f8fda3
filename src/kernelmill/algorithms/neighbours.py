"""`for_each` and `adjacent_difference`: element-wise calls in place, and of neighbouring elements.

Both are calls of `transform` with operands of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms import iterators
from kernelmill.algorithms import weave as nodes
from kernelmill.algorithms.arguments import backend_of, outputs_of, rules_of
from kernelmill.algorithms.feed_nodes import Ground, Position, Strand
from kernelmill.algorithms.feeds import apart, moved_feeds, named_parts, out_ground
from kernelmill.algorithms.plan import Bound, execute
from kernelmill.algorithms.transform import bind_operands, transform
from kernelmill.compiler.op import Op, as_op, specialize
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    bfloat16,
    dtype_of,
    int64,
    promotion,
    storage,
)
from kernelmill.errors import DTypeError, ShapeError
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import as_view, empty_like_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.moves import Moved
    from kernelmill.dtypes import Type

__all__ = ["adjacent_difference", "for_each"]

_HERE: Final = Position(0, 1)
_BEFORE: Final = Position(-1, 1)
_NEXT: Final = Position(1, 1)


def for_each(x: Any, op: Op | Callable[..., Any]) -> Any:
    """Replace each element by what an operator makes of it.

    Parameters
    ----------
    x
        An array, or an iterator that can be read and written: permutation, reverse, strided and
        zip of arrays. With a tuple of them the operator has a parameter for each, and returns a
        tuple of as many new values.
    op
        A function of the operator language. What it returns is converted within NumPy's rule
        "same_kind"; of structs, a struct or a tuple of all its fields.

    Returns
    -------
    array, iterator or tuple
        `x`.

    Raises
    ------
    OperatorError, ShapeError, DTypeError, ArgumentError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([3, -1, 2])
    >>> km.for_each(x, lambda v: max(v, 0))
    array([3, 0, 2])
    >>> every_other = km.iterators.strided(x, 2)
    >>> _ = km.for_each(every_other, lambda v: -v)
    >>> x
    array([-3,  0, -2])
    """
    for i, part in enumerate(x if type(x) is tuple else (x,)):
        if type(part) is np.ndarray and not part.flags.writeable:
            as_view(part, f"x[{i}]" if type(x) is tuple else "x", writable=True)  # by its name
    return transform(x, op, out=x)


def adjacent_difference(
    x: Any, op: Op | Callable[..., Any] = np.subtract, *, out: Any = None
) -> Any:
    """Apply an operator to each element and the one before it; the first stays as it is.

    Parameters
    ----------
    x
        An array of one dimension, or an iterator.
    op
        Of an element and the one before it: `out[i] = op(x[i], x[i - 1])`, `out[0] = x[0]`.
    out
        Array or iterator to write to; `x` itself works in place.

    Returns
    -------
    array
        `out`, or a new array of the operator's type in the library of `x`.

    Raises
    ------
    ShapeError
        `x` has several dimensions, or `out` another length.
    OperatorError, DTypeError, ArgumentError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.adjacent_difference(np.array([1, 4, 9, 16]))
    array([1, 3, 5, 7])
    >>> km.adjacent_difference(np.array([1, 4, 9]), lambda a, before: a * before)
    array([ 1,  4, 36])
    """
    operator = as_op(op)
    if type(x) is np.ndarray and x.ndim == 1 and len(x) > 1:
        made = _on_host(operator, x, out)
        if made is not None:
            return made
    call = moved_feeds((x,), out, "x")
    named = named_parts("x", call.inputs)
    part = named[0][1]
    ground = Ground.of(named, 0)
    length = _length(part, ground)
    known = list(ground.arguments.values())
    with promotion(rules_of(known) if known else "numpy"):
        made, result = _outputs(operator, part, ground, call, length)
        for bound in _bound(operator, part, made, ground, length):
            execute(bound)
    return call.back(result) if call.returns else result


def _on_host(operator: Op, x: np.ndarray[Any, Any], out: Any) -> Any:
    """Return the differences of an array on the host by the short way of `transform`, or None."""
    if current_backend().target != "host":
        return None
    if out is None:
        dtype = dtype_of(x.dtype)
        stored = storage(specialize(operator, (dtype, dtype)).result)
        if stored == bfloat16 or not isinstance(stored, DType):
            return None
        out = empty_like_library((len(x),), stored, "numpy")
    elif not _takes(out, x):
        return None
    first = x[0]  # in place, it is written last
    transform((x[1:], x[:-1]), operator.function, out=out[1:])
    out[0] = first
    return out


def _takes(out: Any, x: np.ndarray[Any, Any]) -> bool:
    """Return whether `out` is `x`, or an array like it that shares no memory with it."""
    like = type(out) is np.ndarray and out.shape == x.shape and out.dtype == x.dtype
    return like and (out is x or not np.may_share_memory(out, x))


def _length(part: Any, ground: Ground) -> int:
    if not iterators.is_iterator(part):
        shape = ground.arguments[id(part)].view.shape
        if len(shape) != 1:
            raise ShapeError(
                f"`x` has shape {shape}; expected: one dimension", hint="pass `x.reshape(-1)`"
            )
        return shape[0]
    found = iterators.length_of(part)
    if found is None:
        raise ShapeError("`x` has no end", hint="take part of it: `km.iterators.strided`")
    return found


def _result(operator: Op, part: Any, ground: Ground) -> Type:
    strand = Strand(ground)
    value = strand.read(part, _HERE)
    return strand.apply(operator, [value, value])[1]


def _element(result: Type) -> DType | StructType:
    stored = storage(result)
    if isinstance(stored, TupleType):
        raise DTypeError(
            f"the operator returns {stored}; adjacent_difference stores one value",
            hint="zip the results of two calls, or return a struct",
        )
    return stored


def _outputs(operator: Op, part: Any, ground: Ground, call: Moved, length: int) -> tuple[Any, Any]:
    """Return what is written to, an array or an iterator, and what the user gets."""
    if call.out is not None:
        named = named_parts("out", (call.out,))
        given = list(ground.arguments.values()) or [ground.index()]
        ground.arguments |= out_ground(named, given, length).arguments
        made = named[0][1]
        own = (
            iterators.length_of(made)
            if iterators.is_iterator(made)
            else ground.arguments[id(made)].view.shape[0]
        )
        if own is not None and own != length:
            raise ShapeError(f"`out` has {own} elements, `x` has {length}")
        return made, call.out
    stored = _element(_result(operator, part, ground))
    ground.length = length
    given = list(ground.arguments.values()) or [ground.index()]
    (output,), result = outputs_of(None, (stored,), (length,), given)
    ground.arguments[id(result)] = output
    return result, result


def _bound(operator: Op, part: Any, made: Any, ground: Ground, length: int) -> list[Bound]:
    """Return the launches: on a device one, on the host one for the first element and the rest."""
    if length == 0:
        return []
    if ground.target == "cuda":
        return [_at_once(operator, part, made, ground, length)]
    bounds = []
    if length > 1:
        ground.length = length - 1
        strand = Strand(ground)
        pair = [strand.read(part, _NEXT), strand.read(part, _HERE)]
        value, type_ = strand.apply(operator, pair)
        strand.write(made, nodes.Stored(value, _element(type_)), _element(type_), _NEXT)
        bounds.append(_launch(operator, strand, length - 1))
    ground.length = 1
    strand = Strand(ground)
    stored = _element(_result(operator, part, ground))
    strand.write(made, nodes.Stored(strand.read(part, _HERE)[0], stored), stored, _HERE)
    bounds.append(_launch(operator, strand, 1))
    return bounds


def _at_once(operator: Op, part: Any, made: Any, ground: Ground, length: int) -> Bound:
    """Return the one launch of a device: the element before the first one is the first one."""
    ground.length = length
    strand = Strand(ground)
    here, type_ = strand.read(part, _HERE)
    index = strand.index(_HERE)
    before, _ = strand.read(part, nodes.Clip(strand.index(_BEFORE), strand.number(length - 1)))
    value, result = strand.apply(operator, [(here, type_), (before, type_)])
    stored = _element(result)
    chosen = nodes.Choose(index, nodes.Stored(value, stored), nodes.Stored(here, stored))
    strand.write(made, chosen, stored, _HERE)
    return _launch(operator, strand, length)


def _launch(operator: Op, strand: Strand, length: int) -> Bound:
    if not strand.operands:
        strand.operand(strand.ground.index(), int64)
    operands: list[Argument] = strand.operands
    outputs = [a for _, a in strand.outputs]
    items = tuple(n for n, _ in strand.outputs)
    node = items[0] if len(items) == 1 else nodes.Pack(items, None)
    woven = nodes.weave(operator.name, node, strand.params(), strand.operators, strand.types)
    given = list(apart(operands, outputs, elementwise=True))
    backend_of(given, "transform")
    bound = bind_operands(operator, woven, given, outputs, (length,))
    elements = length if outputs else 0
    return replace(bound, functions=(strand.roots(given),), elements=elements)
