"""`for_each` and `adjacent_difference`: element-wise calls in place, and of neighbouring elements.

Both are calls of `transform` with operands of their own; differences of an array of the host have a
kernel of their own, `host/neighbours.hpp`, around the same loops.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms import element_nodes as nodes
from kernelmill.algorithms import sequences
from kernelmill.algorithms.arguments import backend_of, outputs_of, rules_of
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.feed_nodes import Ground, Position, Strand
from kernelmill.algorithms.feeds import apart, moved_feeds, named_parts, out_ground
from kernelmill.algorithms.plan import Bound, Plan, Scope, build, execute, key_of, lately, remember
from kernelmill.algorithms.series import SeriesPlan, bound_steps
from kernelmill.algorithms.source import neighbours_source
from kernelmill.algorithms.transform import bind_operands, plan_as, transform
from kernelmill.algorithms.weave import weave
from kernelmill.compiler.op import Op, as_op, root_of, specialize
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    int64,
    promotion,
    storage,
)
from kernelmill.errors import DTypeError, ShapeError
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import as_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.layout import Access
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
    key = _quick_key(operator, x, out)
    if key is not None:
        for found in lately(key):
            launch = found.told_launch if events.active else found.try_launch
            done = launch((operator.function,), (x,), out)
            if done is not None:
                return done
    bound = _prepare(operator, (x,), out)
    if key is not None and bound.is_plain:
        remember(key, _plan_of(operator, bound))
    return execute(bound)


def _quick_key(op: Op, x: Any, out: Any) -> tuple[object, ...] | None:
    """Return what tells a call on arrays of the host apart from others."""
    if current_backend().target != "host":
        return None
    return key_of([adjacent_difference, root_of(op.function)], (x,) if out is None else (x, out))


def _each_plan(x: Any, op: Op | Callable[..., Any]) -> Plan:
    """Prepare a for_each of arrays like these; called with them, it returns what it was given.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([3, -1, 2])
    >>> clip = km.for_each.plan(x, lambda v: max(v, 0))
    >>> clip(x)
    array([3, 0, 2])
    """
    return plan_as(_InPlace, x, op, x)


_CALL: Final = Plan.__call__


class _InPlace(Plan):
    """A plan whose inputs are its outputs."""

    __slots__ = ()

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        given = inputs if len(inputs) > 1 else inputs[0]
        return _CALL(self, *inputs, out=given if out is None else out)


def _difference_plan(x: Any, op: Op | Callable[..., Any] = np.subtract, *, out: Any = None) -> Plan:
    """Prepare an adjacent_difference of arrays like `x`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> steps = km.adjacent_difference.plan(np.zeros(4))
    >>> steps(np.array([1.0, 4.0, 9.0, 16.0]))
    array([1., 3., 5., 7.])
    """
    operator = as_op(op)
    return _plan_of(operator, _prepare(operator, (x,), out))


def _plan_of(operator: Op, bound: Bound) -> Plan:
    """Make the plan of a bound call; arrays of the host of that very shape get the short way."""
    prepare = partial(_prepare, operator)
    if bound.built.family == "neighbours":
        return Plan(bound, prepare, fixed=True)
    return SeriesPlan(bound, prepare, ())


for_each.plan = _each_plan  # type: ignore[attr-defined]  # `km.for_each.plan` is the public name
adjacent_difference.plan = _difference_plan  # type: ignore[attr-defined]  # likewise


# ----------------------------------------------------------------------------- differences


def _prepare(operator: Op, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them: to one kernel where they are arrays."""
    call = moved_feeds(inputs, out, "x")
    named = named_parts("x", call.inputs)
    part = named[0][1]
    ground = Ground.of(named, 0)
    length = _length("x", part, ground)
    if length is None:
        raise ShapeError("`x` has no end", hint="take part of it: `km.iterators.strided`")
    known = list(ground.arguments.values())
    with promotion(rules_of(known) if known else "numpy"):
        stored = _element(_result(operator, part, ground))
        made, result = _outputs(stored, ground, call, length)
        if _is_plain(part, made, stored, ground):
            bound = _on_host(operator, ground.arguments[id(part)], ground.arguments[id(made)])
        else:
            bound = bound_steps(_bounds(operator, part, made, ground, length))
    return replace(bound, result=result, finish=call.back if call.returns else bound.finish)


def _is_plain(part: Any, made: Any, stored: DType | StructType, ground: Ground) -> bool:
    """Whether one kernel of the host goes from an array to an array."""
    if ground.target != "host" or sequences.is_iterator(part) or sequences.is_iterator(made):
        return False
    given = ground.arguments[id(part)].view.dtype
    simple = given == stored or (isinstance(given, DType) and isinstance(stored, DType))
    return simple and ground.arguments[id(made)].view.dtype == stored


def _on_host(operator: Op, x: Argument, output: Argument) -> Bound:
    x = x.apart_from((output,), elementwise=False)
    type_, stored = x.view.dtype, output.view.dtype
    pair, first = specialize(operator, (type_, type_)), specialize(_AS_IT_IS, (type_,))
    taken, given = (type_, _access(x)), (stored, _access(output))
    length = x.view.size
    program = pair.translation.program
    built = build(
        (pair, taken, given),
        "neighbours",
        Scope((pair,)),
        Cost(type_.itemsize + stored.itemsize, count_flops(program)),
        lambda: neighbours_source(
            f"adjacent_difference {operator.name} ({type_} {taken[1]}, {stored} {given[1]})",
            program, first.translation.program, taken, given,
        ),
        backend=backend_of([x], "transform"),
    )  # fmt: skip
    return Bound(
        built=built,
        functions=(operator.function,),
        shape=(length,),
        views=(x.view, output.view),
        strides=(x.view.strides, output.view.strides),
        elements=length,
        workspace=0,
        result=None,
    )


def _access(given: Argument) -> Access:
    return "contiguous" if given.view.is_c_contiguous else "strided"


def _as_it_is(value: Any) -> Any:
    return value


_AS_IT_IS: Final = as_op(_as_it_is)


def _length(name: str, part: Any, ground: Ground) -> int | None:
    """Return how many elements there are; None where there is no end."""
    if sequences.is_iterator(part):
        return sequences.length_of(part)
    shape = ground.arguments[id(part)].view.shape
    if len(shape) != 1:
        raise ShapeError(
            f"`{name}` has shape {shape}; expected: one dimension",
            hint=f"pass `{name}.reshape(-1)`",
        )
    return shape[0]


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


def _outputs(
    stored: DType | StructType, ground: Ground, call: Moved, length: int
) -> tuple[Any, Any]:
    """Return what is written to, an array or an iterator, and what the user gets."""
    if call.out is not None:
        named = named_parts("out", (call.out,))
        given = list(ground.arguments.values()) or [ground.index()]
        ground.arguments |= out_ground(named, given, length).arguments
        made = named[0][1]
        own = _length("out", made, ground)
        if own is not None and own != length:
            raise ShapeError(f"`out` has {own} elements, `x` has {length}")
        return made, call.out
    ground.length = length
    given = list(ground.arguments.values()) or [ground.index()]
    (output,), result = outputs_of(None, (stored,), (length,), given)
    ground.arguments[id(result)] = output
    return result, result


def _bounds(operator: Op, part: Any, made: Any, ground: Ground, length: int) -> list[Bound]:
    """Return the launches: on a device one, on the host one for the rest and one for the first."""
    if ground.target == "cuda":
        return [_at_once(operator, part, made, ground, length)]
    bounds: list[Bound] = []
    written: list[Argument] = []
    if length > 1:
        ground.length = length - 1
        strand = Strand(ground)
        pair = [strand.read(part, _NEXT), strand.read(part, _HERE)]
        value, type_ = strand.apply(operator, pair)
        strand.write(made, nodes.Stored(value, _element(type_)), _element(type_), _NEXT)
        bounds.append(_launch(operator, strand, length - 1))
        written = [a for _, a in strand.outputs]
    ground.length = min(1, length)
    strand = Strand(ground)
    stored = _element(_result(operator, part, ground))
    strand.write(made, nodes.Stored(strand.read(part, _HERE)[0], stored), stored, _HERE)
    return [*bounds, _launch(operator, strand, ground.length, written)]


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


def _launch(operator: Op, strand: Strand, length: int, before: Sequence[Argument] = ()) -> Bound:
    """Return a launch; what the one before it writes, `before`, it reads as it was."""
    if not strand.operands:
        strand.operand(strand.ground.index(), int64)
    operands: list[Argument] = strand.operands
    outputs = [a for _, a in strand.outputs]
    items = tuple(n for n, _ in strand.outputs)
    node = items[0] if len(items) == 1 else nodes.Pack(items, None)
    woven = weave(operator.name, node, strand.params(), strand.operators, strand.types)
    kept = apart(operands, before, elementwise=False)
    given = list(apart(kept, outputs, elementwise=True))
    backend_of(given, "transform")
    bound = bind_operands(operator, woven, given, outputs, (length,))
    elements = length if outputs else 0
    return replace(bound, functions=(strand.roots(given),), elements=elements)
