"""The rule for chained comparisons: `a < b < c` keeps `b` on the stack between its two tests."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kernelmill.compiler.bytecode.graph import Edge, Goto, Hole, Node, Right, Test, drops
from kernelmill.compiler.bytecode.trees import joined

if TYPE_CHECKING:
    from kernelmill.compiler.bytecode.reduce import Reducer

__all__ = ["chain"]


def chain(reducer: Reducer, at: int) -> bool:
    """Join `a < b`, whose right operand is kept, with the comparison that goes on from it."""
    node = reducer.node(at)
    right = node.stack[-1] if node.stack else None
    if not isinstance(node.end, Test) or not isinstance(right, Right):
        return False
    end, base = node.end, len(node.stack) - 1
    more = reducer.node(end.true.to)
    continues = not end.true.keep and not more.body and reducer.single(end.true.to)
    if not continues or more.depth != base + 1 or not more.leaves_alone(base):
        return False
    if isinstance(more.end, Test):
        return _join_test(reducer, node, more, base)
    return _join_value(reducer, node, more, base)


def _join_test(reducer: Reducer, node: Node, more: Node, base: int) -> bool:
    """Join a comparison that decides where to go on, or that is followed by another."""
    assert isinstance(node.end, Test)
    assert isinstance(more.end, Test)
    test, failed = more.end.test, node.end.false
    start = _continued(test, base)
    if start is None:
        return False
    inner = more.stack[base:]
    if len(inner) == 1 and isinstance(inner[0], Right) and more.end.false == failed:
        _prepend(start, node.end.test)
        node.stack[-1] = inner[0]
        node.end = more.end
        return True
    clean = reducer.node(failed.to)
    dropped = len(clean.body) == 1 and drops(clean.body[0], base) and clean.depth == base + 1
    if inner or failed.keep or not dropped or len(clean.stack) != base:
        return False
    if not isinstance(clean.end, Goto) or not clean.leaves_alone(base):
        return False
    if not reducer.same(Edge(clean.end.to), more.end.false):
        return False
    _prepend(start, node.end.test)
    node.stack.pop()
    node.end = more.end
    return True


def _join_value(reducer: Reducer, node: Node, more: Node, base: int) -> bool:
    """Join a comparison whose value is pushed."""
    assert isinstance(node.end, Test)
    if not isinstance(more.end, Goto) or len(more.stack) != base + 1:
        return False
    value = more.stack[-1]
    start = _continued(value, base) if isinstance(value, ast.expr) else None
    clean = reducer.node(node.end.false.to)
    kept = clean.stack[-1] if clean.stack else None
    cleaned = (
        node.end.false.keep
        and clean.depth == base + 2
        and len(clean.stack) == base + 1
        and len(clean.body) == 1
        and drops(clean.body[0], base)
        and isinstance(kept, Hole)
        and kept.index == base + 1
        and clean.leaves_alone(base)
    )
    if start is None or not cleaned or clean.end != more.end:
        return False
    _prepend(start, node.end.test)
    node.stack[-1] = value
    node.end = more.end
    return True


def _continued(test: ast.expr, slot: int) -> ast.Compare | None:
    """Return the comparison at the start of a test that takes its left operand from a slot."""
    while isinstance(test, ast.BoolOp):
        test = test.values[0]
    if not isinstance(test, ast.Compare) or not isinstance(test.left, Hole):
        return None
    return test if test.left.index == slot else None


def _prepend(rest: ast.Compare, start: ast.expr) -> None:
    """Make `a < b` and `□ < c` into `a < b < c`, in place."""
    assert isinstance(start, ast.Compare)
    rest.left = start.left
    rest.ops = start.ops + rest.ops
    rest.comparators = start.comparators + rest.comparators
    joined(rest, start, rest)
