"""Targets of assignments: names and tuples of names get values; nothing is changed in place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.frontend import memory
from kernelmill.compiler.frontend.expressions import place_or_value, unpack
from kernelmill.compiler.frontend.values import OBJECTS, Memory
from kernelmill.compiler.kernel_ir import Place

if TYPE_CHECKING:
    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.values import Value
    from kernelmill.errors import OperatorError

__all__ = ["give", "refuse_own"]


def give(frame: Frame, target: ast.expr, value: Value) -> Value:
    """Bind a target to a value; return the value as one that may be used again."""
    if isinstance(target, ast.Name):
        frame.bind(target.id, value, target)
        return frame.bindings[target.id].value
    if isinstance(target, (ast.Tuple, ast.List)):
        return _give_items(frame, target, frame.scalar(value, target))
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        return _give_element(frame, target, value)
    raise frame.unsupported(target)


def _give_element(frame: Frame, target: ast.Attribute | ast.Subscript, value: Value) -> Value:
    refuse_own(frame, target)
    found = place_or_value(frame, target)
    if isinstance(found, Memory):
        raise frame.refusal(
            target,
            "a part of an array cannot be assigned as a whole",
            _WHOLE[frame.program.kernel is None],
        )
    if not isinstance(found, Place):
        if isinstance(target, ast.Attribute) and target.attr in ("real", "imag"):
            raise frame.refusal(
                target,
                f"`.{target.attr}` of a number cannot be assigned alone",
                "assign the whole number: `z[i] = re + 1j * z[i].imag`",
            )
        if frame.program.kernel is None:
            raise _in_place(frame, target)
        raise frame.refusal(
            target,
            "a kernel changes elements of arrays, not structs and tuples of its own",
            "build a new value, `p = P(x=1, y=p.y)`",
        )
    if not isinstance(value, OBJECTS):
        value = frame.leaf(value)
    memory.store(frame, found, value, target)
    return value


_WHOLE: Final = (
    "write a loop over its elements: `for k in km.block_range(n): tile[k] = v`",
    "write a loop over its elements: `for k in range(n): counts[k] = v`",
)


def refuse_own(frame: Frame, target: ast.expr) -> None:
    """Refuse to change a struct or a tuple of an operator, before its value is asked for."""
    if frame.program.kernel is not None:
        return
    owner = target
    while isinstance(owner, (ast.Attribute, ast.Subscript)):
        owner = owner.value
    if isinstance(owner, ast.Name) and owner.id in frame.names:
        held = frame.bindings.get(owner.id)
        if held is None or not isinstance(held.value, OBJECTS):
            raise _in_place(frame, target)


def _in_place(frame: Frame, target: ast.AST) -> OperatorError:
    return frame.refusal(
        target,
        "an operator cannot change a struct, a tuple or an array in place",
        "build a new value, `p = P(x=1, y=p.y)`, and return it",
    )


def _give_items(frame: Frame, target: ast.Tuple | ast.List, value: ir.Expr) -> Value:
    items = unpack(frame, value, target)
    for item in target.elts:
        if isinstance(item, ast.Starred):
            raise frame.unsupported(item)
    if len(items) != len(target.elts):
        raise frame.refusal(
            target,
            f"{len(items)} values are unpacked into {len(target.elts)} variables",
            "name one variable for each value",
        )
    given = [give(frame, t, frame.leaf(v)) for t, v in zip(target.elts, items, strict=True)]
    return frame.builder.make_tuple([frame.scalar(v, target) for v in given])
