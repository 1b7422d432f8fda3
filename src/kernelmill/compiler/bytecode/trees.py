"""Makes syntax-tree nodes with their places: constants, names, operators, functions. No stack."""

from __future__ import annotations

import ast
import inspect
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kernelmill.compiler.bytecode.refusal import Place, UnknownShapeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType

__all__ = [
    "BINARY",
    "COMPARE",
    "UNARY",
    "arguments_of",
    "as_expression",
    "built",
    "function_def",
    "is_literal",
    "joined",
    "literal",
    "name",
    "negated",
    "placed",
    "positive",
]

_Node = TypeVar("_Node", bound=ast.expr | ast.stmt | ast.arg | ast.keyword)

BINARY: Final[Mapping[str, type[ast.operator]]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "**": ast.Pow,
    "@": ast.MatMult,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
}
UNARY: Final[Mapping[str, type[ast.unaryop]]] = {
    "-": ast.USub,
    "+": ast.UAdd,
    "~": ast.Invert,
    "not": ast.Not,
}
COMPARE: Final[Mapping[str, type[ast.cmpop]]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    ">": ast.Gt,
    ">=": ast.GtE,
    "is": ast.Is,
    "is not": ast.IsNot,
    "in": ast.In,
    "not in": ast.NotIn,
}
_NEGATED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def placed(node: _Node, place: Place) -> _Node:
    """Return the node after writing its place onto it."""
    node.lineno, node.end_lineno = place.line, place.end_line
    node.col_offset, node.end_col_offset = place.column, place.end_column
    return node


def joined(node: _Node, first: ast.expr, last: ast.expr) -> _Node:
    """Return the node after giving it the place from the start of one to the end of another."""
    start = (first.lineno, first.col_offset)
    end = (last.end_lineno or last.lineno, last.end_col_offset or 0)
    if end < start:
        end = (first.end_lineno or first.lineno, first.end_col_offset or 0)
    return placed(node, Place(start[0], end[0], start[1], end[1]))


def name(identifier: str, place: Place, *, store: bool = False) -> ast.Name:
    """Return a variable that is read or assigned."""
    return placed(ast.Name(identifier, ast.Store() if store else ast.Load()), place)


def literal(value: object, place: Place) -> ast.expr:
    """Return a constant as it is written: a minus sign and a tuple are nodes of their own."""
    if isinstance(value, tuple):
        elements = [literal(item, place) for item in value]
        return placed(ast.Tuple(elements, ast.Load()), place)
    if isinstance(value, int | float) and math.copysign(1, value) < 0 and value == value:  # noqa: PLR0124 - not a NaN
        return placed(ast.UnaryOp(ast.USub(), placed(ast.Constant(-value), place)), place)
    if value is None or isinstance(value, int | float | complex | str | bytes):
        return placed(ast.Constant(value), place)
    if value is Ellipsis:
        return placed(ast.Constant(...), place)
    raise UnknownShapeError(f"a constant of type {type(value).__name__}")


def built(node: ast.expr) -> ast.expr:
    """Return the tree, marked as one that the bytecode puts together: it is no constant."""
    vars(node)["built"] = True
    return node


def is_literal(node: ast.expr) -> bool:
    """Whether a tree is what `literal` makes of a constant."""
    if "built" in vars(node):
        return False
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return True
        case ast.Tuple(elts=items):
            return all(is_literal(item) for item in items)
    return False


def positive(test: ast.expr) -> tuple[ast.expr, bool]:
    """Return a test without the outermost negation, and whether it had one."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand, True
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        opposite = _NEGATED.get(type(test.ops[0]))
        if opposite is not None and isinstance(test.ops[0], ast.IsNot | ast.NotIn):
            plain = ast.Compare(test.left, [opposite()], test.comparators)
            return ast.copy_location(plain, test), True
    return test, False


def negated(test: ast.expr) -> ast.expr:
    """Return the test that is true where `test` is false, as CPython compiles it."""
    plain, negative = positive(test)
    if negative:
        return plain
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _NEGATED:
        opposite = ast.Compare(test.left, [_NEGATED[type(test.ops[0])]()], test.comparators)
        return ast.copy_location(opposite, test)
    return joined(ast.UnaryOp(ast.Not(), test), test, test)


def arguments_of(
    code: CodeType,
    place: Place,
    *,
    defaults: Sequence[ast.expr] = (),
    keyword_defaults: Mapping[str, ast.expr] | None = None,
    annotations: Mapping[str, ast.expr] | None = None,
) -> ast.arguments:
    """Return the parameters of a function."""
    notes = annotations or {}
    names = [placed(ast.arg(n, notes.get(n)), place) for n in code.co_varnames]
    first, positional = code.co_posonlyargcount, code.co_argcount
    total = positional + code.co_kwonlyargcount
    rest = names[total:]
    vararg = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    kwarg = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
    known = keyword_defaults or {}
    return ast.arguments(
        posonlyargs=names[:first],
        args=names[first:positional],
        vararg=vararg,
        kwonlyargs=names[positional:total],
        kw_defaults=[known.get(n.arg) for n in names[positional:total]],
        kwarg=kwarg,
        defaults=list(defaults),
    )


def function_def(
    identifier: str,
    arguments: ast.arguments,
    body: list[ast.stmt],
    place: Place,
    returns: ast.expr | None = None,
) -> ast.FunctionDef:
    """Return a function definition without decorators."""
    # Python 3.12 gave the node a list that must be there.
    more: dict[str, Any] = {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}
    return placed(
        ast.FunctionDef(
            name=identifier, args=arguments, body=body, decorator_list=[], returns=returns, **more
        ),
        place,
    )


def as_expression(body: Sequence[ast.stmt]) -> ast.expr:
    """Return the body of a lambda from statements that return."""
    match body:
        case [ast.Return(value=ast.expr() as value)]:
            return value
        case [ast.If(test=test, body=then, orelse=otherwise), *rest]:
            true, false = as_expression(then), as_expression(otherwise or rest)
            return joined(ast.IfExp(test, true, false), true, false)
    raise UnknownShapeError("a lambda that is not one expression")
