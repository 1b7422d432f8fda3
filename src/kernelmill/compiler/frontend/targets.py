"""Targets of assignments: names and tuples of names get values; nothing is changed in place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kernelmill.compiler.frontend.expressions import unpack

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
        raise frame.refusal(
            target,
            "an operator cannot change a struct, a tuple or an array in place",
            "build a new value, `p = P(x=1, y=p.y)`, and return it",
        )
    raise frame.unsupported(target)


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
