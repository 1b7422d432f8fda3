"""Calls of raw operators: arguments converted to the declared types, state captured behind them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from kernelmill.compiler.builder import convert
from kernelmill.compiler.frontend.scope import item_of, part_of
from kernelmill.dtypes import promote
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    import ast

    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.callables import Arguments
    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.values import Known
    from kernelmill.compiler.raw import RawOp
    from kernelmill.dtypes import DType, StructType

__all__ = ["call_raw"]


def call_raw(frame: Frame, callee: Known, raw: RawOp, args: Arguments, node: ast.AST) -> ir.Expr:
    """Call a raw operator; raises OperatorError when the arguments are not those it declares."""
    count, given = len(raw.arguments), len(args.positional) + len(args.keywords)
    if args.keywords or given != count:
        listed = ", ".join(map(str, raw.arguments))
        found = "arguments by name" if args.keywords else str(given)
        raise OperatorError(
            f"`{raw.name}` takes {count} {'argument' if count == 1 else 'arguments'}, got {found}",
            hint=f"it is declared with arguments=({listed})",
        )
    frame.program.captures.bake(callee)
    pairs = zip(args.positional, raw.arguments, strict=True)
    values = [
        _converted(frame.scalar(value, node), wanted, raw, place)
        for place, (value, wanted) in enumerate(pairs)
    ]
    slots = part_of(callee, ".slots", raw.slots, operator.attrgetter("slots"))
    for place, slot in enumerate(raw.slots):
        known = part_of(item_of(slots, place), ".value", slot.value, operator.attrgetter("value"))
        values.append(frame.scalar(frame.program.captures.value_of(known), node))
    return frame.builder.call(frame.program.raw_function(raw), values)


def _converted(value: ir.Expr, wanted: DType | StructType, raw: RawOp, place: int) -> ir.Expr:
    try:
        fits = promote(value.type, wanted) == wanted
    except DTypeError:
        fits = False
    if not fits:
        raise OperatorError(
            f"argument {place} of `{raw.name}` is {wanted}; it is given {value.type}",
            hint="convert the value, or declare the operator for its type",
        )
    return convert(value, wanted)
