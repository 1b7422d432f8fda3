"""Targets of assignments: names and tuples of names get values; nothing is changed in place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kernelmill.compiler.frontend import memory
from kernelmill.compiler.frontend.expressions import place_or_value, unpack
from kernelmill.compiler.frontend.values import OBJECTS, Memory
from kernelmill.compiler.kernel_ir import Place

if TYPE_CHECKING:
    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.values import Value

__all__ = ["give"]


def give(frame: Frame, target: ast.expr, value: Value) -> Value:
    """Bind a target to a value; return the value as one that may be used again."""
    if isinstance(target, ast.Name):
        frame.bind(target.id, value, target)
        return frame.bindings[target.id].value
    if isinstance(target, (ast.Tuple, ast.List)):
        return _give_items(frame, target, frame.scalar(value, target))
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        if frame.program.kernel is not None:
            return _give_element(frame, target, value)
        raise frame.refusal(
            target,
            "an operator cannot change a struct, a tuple or an array in place",
            "build a new value, `p = P(x=1, y=p.y)`, and return it",
        )
    raise frame.unsupported(target)


def _give_element(frame: Frame, target: ast.Attribute | ast.Subscript, value: Value) -> Value:
    found = place_or_value(frame, target)
    if isinstance(found, Memory):
        raise frame.refusal(
            target,
            "a part of an array cannot be assigned as a whole",
            "write a loop over its elements: `for k in km.block_range(n): tile[k] = v`",
        )
    if not isinstance(found, Place):
        raise frame.refusal(
            target,
            "a kernel changes elements of arrays, not structs and tuples of its own",
            "build a new value, `p = P(x=1, y=p.y)`",
        )
    if not isinstance(value, OBJECTS):
        value = frame.leaf(value)
    memory.store(frame, found, value, target)
    return value


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
