"""Statements: one function a node of Python's syntax, and the body of a function. Loops apart."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir
from kernelmill.compiler.builder import join
from kernelmill.compiler.frontend import kernel_loops, loops, memory
from kernelmill.compiler.frontend.branches import Branch, merge
from kernelmill.compiler.frontend.expressions import (
    binary,
    closure,
    condition,
    evaluate,
    evaluate_scalar,
    place_or_value,
)
from kernelmill.compiler.frontend.memory import builder_of
from kernelmill.compiler.frontend.targets import give, refuse_own
from kernelmill.compiler.frontend.values import OBJECTS, Binding, Closure, Known
from kernelmill.compiler.kernel_ir import UNIT, Place
from kernelmill.compiler.source import FunctionSource
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.values import Value
    from kernelmill.compiler.source import FunctionNode
    from kernelmill.dtypes import Type

__all__ = ["function_body", "run"]


def function_body(frame: Frame, node: FunctionNode, name: str) -> None:
    """Translate the whole body of a function; every way through it returns a value."""
    if isinstance(node, ast.Lambda):
        frame.builder.span = frame.source.span(node.body)
        _return_value(frame, node.body, node.body)
        return
    if isinstance(node, ast.AsyncFunctionDef):
        raise frame.unsupported(node)
    alive = run(frame, node.body)
    if alive and frame.program.kernel is not None and not _returns_values(frame):
        builder_of(frame).leave()
        frame.returns.append((UNIT, frame.source.header()))
        return
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


def _returns_values(frame: Frame) -> bool:
    return any(type_ != UNIT for type_, _ in frame.returns)


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
    if _pairs_off(frame, node):
        return _assign_each(frame, node)
    value = _named(frame, node.targets[0], node.value)
    for target in node.targets:
        value = give(frame, target, value)
    return True


def _pairs_off(frame: Frame, node: ast.Assign) -> bool:
    """Whether each target of `a, b = f(), g()` gets the value beside it: arrays are no tuples."""
    if frame.program.kernel is None or len(node.targets) != 1:
        return False
    target, value = node.targets[0], node.value
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, ast.Tuple):
        return False
    starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
    return len(target.elts) == len(value.elts) and not starred


def _assign_each(frame: Frame, node: ast.Assign) -> bool:
    target, given = node.targets[0], node.value
    assert isinstance(target, (ast.Tuple, ast.List))
    assert isinstance(given, ast.Tuple)
    pairs = list(zip(target.elts, given.elts, strict=True))
    values = [_named(frame, t, v) for t, v in pairs]
    held = [v if isinstance(v, OBJECTS) else frame.leaf(v) for v in values]
    for (item, _), value in zip(pairs, held, strict=True):
        give(frame, item, value)
    return True


def _named(frame: Frame, target: ast.expr, node: ast.expr) -> Value:
    """Evaluate what is assigned: memory that it makes is called as the variable."""
    state = frame.program.kernel
    if state is None or not isinstance(target, ast.Name):
        return evaluate(frame, node)
    state.naming = target.id
    try:
        return evaluate(frame, node)
    finally:
        state.naming = ""


def _ann_assign(frame: Frame, node: ast.AnnAssign) -> bool:
    """Annotations are comments: the type of a variable is that of its value."""
    if node.value is not None:
        give(frame, node.target, _named(frame, node.target, node.value))
    return True


def _aug_assign(frame: Frame, node: ast.AugAssign) -> bool:
    if not isinstance(node.target, ast.Name):
        return _change(frame, node)
    read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
    left = evaluate_scalar(frame, read)
    value = binary(frame, node.op, left, evaluate_scalar(frame, node.value), node)
    for part in ir.children(value):
        frame.fits(part, node, depth=1)
    frame.bind(node.target.id, value, node.target)
    return True


def _change(frame: Frame, node: ast.AugAssign) -> bool:
    """Translate `x[i] += v`: the element is found once, read and written."""
    refuse_own(frame, node.target)
    place = place_or_value(frame, node.target)
    if not isinstance(place, Place):
        give(frame, node.target, frame.builder.const(0))
    assert isinstance(place, Place)
    left = builder_of(frame).load(place)
    value = binary(frame, node.op, left, evaluate_scalar(frame, node.value), node)
    memory.store(frame, place, value, node.target)
    return True


def _assert(frame: Frame, node: ast.Assert) -> bool:
    if frame.program.kernel is None:
        raise frame.unsupported(node)
    text = ast.unparse(node.test)
    if node.msg is not None:
        if not (isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str)):
            raise frame.refusal(
                node.msg, "the message of an `assert` is a text", 'write `assert c, "why"`'
            )
        text = node.msg.value
    test = condition(frame, node.test)
    builder_of(frame).perform("assert", [test], text=text)
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
    if frame.program.kernel is not None and _is_nothing(node.value):
        _refuse_mixture(frame, node, UNIT)
        frame.returns.append((UNIT, frame.source.span(node)))
        builder_of(frame).leave()
        return False
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        raise frame.refusal(
            node, "`return` without a value", "return a number, a tuple or a struct"
        )
    if frame.is_kernel:
        raise frame.refusal(
            node,
            "a kernel returns no value",
            "write it to an element of an array that is passed: `out[i] = value`",
        )
    _return_value(frame, node.value, node)
    return False


def _is_nothing(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _refuse_mixture(frame: Frame, node: ast.AST, type_: Type) -> None:
    if any((t == UNIT) != (type_ == UNIT) for t, _ in frame.returns):
        raise frame.refusal(
            node, "this function returns a value on one way and none on another", "choose one"
        )


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


def _for(frame: Frame, node: ast.For) -> bool:
    call = node.iter
    if isinstance(call, ast.Call):
        callee = evaluate(frame, call.func)
        if isinstance(callee, Known) and kernel_loops.is_kernel_loop(callee.value):
            frame.program.captures.bake(callee)
            return kernel_loops.kernel_for(frame, node, call, callee.value, run)
    return loops.for_(frame, node, run)


_NODES: Final[dict[type[ast.stmt], Callable[[Frame, Any], bool]]] = {
    ast.AnnAssign: _ann_assign,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _aug_assign,
    ast.Break: loops.break_,
    ast.Continue: loops.continue_,
    ast.Expr: _expression,
    ast.For: _for,
    ast.FunctionDef: _function_def,
    ast.If: _if,
    ast.Pass: _pass,
    ast.Return: _return,
    ast.While: lambda frame, node: loops.while_(frame, node, run),
}
