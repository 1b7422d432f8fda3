"""Statements: one function a node of Python's syntax, and the body of a function. Loops apart."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir
from kernelmill.compiler.builder import join
from kernelmill.compiler.frontend import loops
from kernelmill.compiler.frontend.branches import Branch, merge
from kernelmill.compiler.frontend.expressions import (
    binary,
    closure,
    condition,
    evaluate,
    evaluate_scalar,
)
from kernelmill.compiler.frontend.targets import give
from kernelmill.compiler.frontend.values import Binding, Closure
from kernelmill.compiler.source import FunctionSource
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.source import FunctionNode
    from kernelmill.dtypes import Type

__all__ = ["function_body", "run"]


def function_body(frame: Frame, node: FunctionNode, name: str) -> None:
    """Translate the whole body of a function; every way through it returns a value."""
    if isinstance(node, ast.Lambda):
        _return_value(frame, node.body, node.body)
        return
    if isinstance(node, ast.AsyncFunctionDef):
        raise frame.unsupported(node)
    alive = run(frame, node.body)
    if alive:
        raise OperatorError(
            f"`{name}` may end without a `return`",
            span=frame.source.header(),
            hint="return a value on every way through the function",
        )
    if not frame.returns:
        raise OperatorError(
            f"`{name}` never returns",
            span=frame.source.header(),
            hint="leave the loop with `break` or `return`",
        )


def run(frame: Frame, body: Sequence[ast.stmt]) -> bool:
    """Translate statements; return whether their end is reached.

    What stands behind a `return`, `break` or `continue` is not looked at.
    """
    for node in body:
        translator = _NODES.get(type(node))
        if translator is None:
            raise frame.unsupported(node)
        frame.builder.span = frame.source.span(node)
        with frame.at(node):
            alive = translator(frame, node)
        if not alive:
            return False
    return True


# ----------------------------------------------------------------------------- simple statements


def _assign(frame: Frame, node: ast.Assign) -> bool:
    value = evaluate(frame, node.value)
    for target in node.targets:
        value = give(frame, target, value)
    return True


def _ann_assign(frame: Frame, node: ast.AnnAssign) -> bool:
    """Annotations are comments: the type of a variable is that of its value."""
    if node.value is not None:
        give(frame, node.target, evaluate(frame, node.value))
    return True


def _aug_assign(frame: Frame, node: ast.AugAssign) -> bool:
    if not isinstance(node.target, ast.Name):
        give(frame, node.target, frame.builder.const(0))
    assert isinstance(node.target, ast.Name)
    read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
    left = evaluate_scalar(frame, read)
    value = binary(frame, node.op, left, evaluate_scalar(frame, node.value), node)
    for part in ir.children(value):
        frame.fits(part, node, depth=1)
    frame.bind(node.target.id, value, node.target)
    return True


def _expression(frame: Frame, node: ast.Expr) -> bool:
    """Skip a docstring; check other expressions, which have no effect but `:=`."""
    if not isinstance(node.value, ast.Constant):
        evaluate(frame, node.value)
    return True


def _pass(frame: Frame, node: ast.Pass) -> bool:
    del frame, node
    return True


def _function_def(frame: Frame, node: ast.FunctionDef) -> bool:
    if node.decorator_list:
        raise frame.refusal(
            node.decorator_list[0],
            f"the inner function `{node.name}` has a decorator",
            "leave it out, or define the function outside the operator",
        )
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Global)):
            raise frame.unsupported(inner)
    source = FunctionSource(node, frame.source.filename, frame.source.lines)
    frame.bindings[node.name] = Binding(closure(frame, node, node.name), source.header())
    return True


def _return(frame: Frame, node: ast.Return) -> bool:
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        raise frame.refusal(
            node, "`return` without a value", "return a number, a tuple or a struct"
        )
    _return_value(frame, node.value, node)
    return False


def _return_value(frame: Frame, node: ast.expr, place: ast.AST) -> None:
    value = evaluate(frame, node)
    if isinstance(value, Closure):
        raise frame.refusal(node, "a function cannot be returned", "call it, and return its result")
    made = frame.scalar(value, node)
    frame.fits(made, node, depth=1 if isinstance(made, ir.MakeTuple) else 0)
    span = frame.source.span(place)
    other = next(((t, s) for t, s in frame.returns if not _joins(t, made.type)), None)
    if other is not None:
        where = f"line {other[1].line}" if frame.source.lines else "another line"
        raise frame.refusal(
            place,
            f"this returns {made.type}, {where} returns {other[0]}: they have no common type",
            "return values of one kind on every way, for example np.float32(x)",
        )
    frame.returns.append((made.type, span))
    frame.builder.return_(made)


def _joins(a: Type, b: Type) -> bool:
    try:
        join((a, b))
    except DTypeError:
        return False
    return True


# ----------------------------------------------------------------------------- branches


def _if(frame: Frame, node: ast.If) -> bool:
    test = condition(frame, node.test)
    if isinstance(test, ir.Const):
        return run(frame, node.body if test.value else node.orelse)
    span = frame.builder.span
    before = frame.bindings
    ways: list[Branch] = []
    for body in (node.body, node.orelse):
        frame.bindings = dict(before)
        with frame.builder.block() as block:
            alive = run(frame, body)
        ways.append(Branch(frame.bindings, block, alive))
    frame.builder.span = span
    frame.bindings = merge(frame, *ways)
    if any(way.statements for way in ways):
        frame.builder.if_(test, *(way.statements for way in ways))
    return any(way.alive for way in ways)


_NODES: Final[dict[type[ast.stmt], Callable[[Frame, Any], bool]]] = {
    ast.AnnAssign: _ann_assign,
    ast.Assign: _assign,
    ast.AugAssign: _aug_assign,
    ast.Break: loops.break_,
    ast.Continue: loops.continue_,
    ast.Expr: _expression,
    ast.For: lambda frame, node: loops.for_(frame, node, run),
    ast.FunctionDef: _function_def,
    ast.If: _if,
    ast.Pass: _pass,
    ast.Return: _return,
    ast.While: lambda frame, node: loops.while_(frame, node, run),
}
