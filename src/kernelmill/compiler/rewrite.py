"""Maps over IR: rebuild a function with its expressions changed. What to change is not here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Below, Effect, Invoke

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rewrite_block", "rewrite_expression", "rewrite_function"]


def rewrite_expression(node: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """Return an expression with `change` applied to each node, children first."""
    match node:
        case ir.Apply(op, args, type_):
            made: ir.Expr = ir.Apply(op, tuple(rewrite_expression(a, change) for a in args), type_)
        case ir.Call(function, args, type_):
            made = ir.Call(function, tuple(rewrite_expression(a, change) for a in args), type_)
        case ir.Cast(value, type_):
            made = ir.Cast(rewrite_expression(value, change), type_)
        case ir.GetField(value, name, type_):
            made = ir.GetField(rewrite_expression(value, change), name, type_)
        case ir.GetItem(value, index, type_):
            made = ir.GetItem(rewrite_expression(value, change), index, type_)
        case ir.Select(condition, then, orelse, type_):
            test, a, b = (rewrite_expression(p, change) for p in (condition, then, orelse))
            made = ir.Select(test, a, b, type_)
        case ir.MakeStruct(values, struct):
            made = ir.MakeStruct(tuple(rewrite_expression(v, change) for v in values), struct)
        case Below(value, limit, type_):
            parts = (rewrite_expression(value, change), rewrite_expression(limit, change))
            made = Below(*parts, type_)
        case ir.MakeTuple(values, items):
            made = ir.MakeTuple(tuple(rewrite_expression(v, change) for v in values), items)
        case _:
            made = node
    return change(made)


def rewrite_block(
    block: tuple[ir.Stmt, ...], change: Callable[[ir.Expr], ir.Expr]
) -> tuple[ir.Stmt, ...]:
    """Return a block with `change` applied to each node of all its expressions."""
    return tuple(_rewrite_statement(s, change) for s in block)


def _rewrite_statement(  # noqa: PLR0911 - one way out a kind of statement
    statement: ir.Stmt, change: Callable[[ir.Expr], ir.Expr]
) -> ir.Stmt:
    def expr(node: ir.Expr) -> ir.Expr:
        return rewrite_expression(node, change)

    match statement:
        case ir.Assign(name, value, span):
            return ir.Assign(name, expr(value), span)
        case ir.Return(value, span):
            return ir.Return(expr(value), span)
        case ir.If(condition, then, orelse, span):
            blocks = (rewrite_block(then, change), rewrite_block(orelse, change))
            return ir.If(expr(condition), *blocks, span)
        case ir.While(condition, body, span):
            return ir.While(expr(condition), rewrite_block(body, change), span)
        case ir.For(start=start, stop=stop, step=step, body=body):
            first, last, by = expr(start), expr(stop), expr(step)
            inner = rewrite_block(body, change)
            return dataclasses.replace(statement, start=first, stop=last, step=by, body=inner)
        case Invoke(call=call):
            made = expr(call)
            assert isinstance(made, ir.Call), "an effect is called"
            return dataclasses.replace(statement, call=made)
        case Effect():
            return statement.with_operands(tuple(map(expr, statement.operands())))
        case _:
            return statement


def rewrite_function(function: ir.Function, change: Callable[[ir.Expr], ir.Expr]) -> ir.Function:
    """Return a function with `change` applied to each node of all its expressions."""
    return dataclasses.replace(function, body=rewrite_block(function.body, change))
