"""The typed intermediate representation: frozen nodes; `builder.py` makes, `ir_verify.py` checks.

Expressions are pure and total (no operation traps), so a back end may evaluate them in any order.
Every conversion is an explicit `Cast`; types are those of `kernelmill.dtypes`, weak ones included.
Control flow is structured: `If`, `For` over a range, `While`, with `Break`, `Continue`, `Return`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kernelmill.compiler.kernel_ir import Below, Effect, Extent, Special

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.compiler.raw import Raw
    from kernelmill.dtypes import StructType, TupleType, Type
    from kernelmill.errors import SourceSpan

__all__ = [
    "Apply",
    "Assign",
    "Break",
    "Call",
    "Capture",
    "Cast",
    "Const",
    "Continue",
    "Expr",
    "For",
    "Function",
    "GetField",
    "GetItem",
    "If",
    "Local",
    "MakeStruct",
    "MakeTuple",
    "Param",
    "Program",
    "Return",
    "Select",
    "Stmt",
    "While",
    "children",
    "operands",
    "terminates",
    "walk_expressions",
    "walk_statements",
]


# ----------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: `value` is a Python bool, int, float or complex that `type` can hold."""

    value: bool | int | float | complex
    type: Type


@dataclass(frozen=True, slots=True)
class Param:
    """An argument of the function, by position."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class Capture:
    """A scalar captured from the user's scope, read at each call; slot of `Program.captures`."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class Local:
    """The current value of a local variable."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation of the table `intrinsics.OPERATIONS` on operands of the types it asks for."""

    op: str
    args: tuple[Expr, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion to `type` (scalars only), as `docs/reference/operator-language.md` defines it."""

    value: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Select:
    """`then if condition else orelse`; both values have the type of the whole."""

    condition: Expr
    then: Expr
    orelse: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class GetField:
    """A field of a struct value."""

    value: Expr
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class MakeStruct:
    """A struct from the values of all its fields, in order."""

    values: tuple[Expr, ...]
    type: StructType


@dataclass(frozen=True, slots=True)
class GetItem:
    """An item of a tuple value, by constant index."""

    value: Expr
    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class MakeTuple:
    """Several values together."""

    values: tuple[Expr, ...]
    type: TupleType


@dataclass(frozen=True, slots=True)
class Call:
    """A call of another function of the program, by name."""

    function: str
    args: tuple[Expr, ...]
    type: Type


Expr: TypeAlias = (
    Const | Param | Capture | Local | Apply | Cast | Select
    | GetField | MakeStruct | GetItem | MakeTuple | Call | Extent | Special | Below
)  # fmt: skip


# ----------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a local variable a new value; its type is that of `Function.locals`."""

    name: str
    value: Expr
    span: SourceSpan | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class If:
    """Run one of two blocks."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    span: SourceSpan | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class For:
    """`for name in range(start, stop, step)`: bounds are weak ints, read once before the loop.

    `name` is a local of type weak int, set before each turn; a step of 0 makes no turn. In a kernel
    all may be of type int32; `plain` says that the step is positive and no value can overflow;
    `unroll` is how many turns to write one behind the other, -1 for all; `single` says that there
    is at most one.
    """

    name: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    span: SourceSpan | None = field(default=None, compare=False)
    unroll: int = 0
    plain: bool = False
    single: bool = False


@dataclass(frozen=True, slots=True)
class While:
    """Repeat `body` as long as `condition`, evaluated before each turn, is true."""

    condition: Expr
    body: tuple[Stmt, ...]
    span: SourceSpan | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""

    span: SourceSpan | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Continue:
    """Go to the next turn of the innermost loop."""

    span: SourceSpan | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Return:
    """Leave the function with a value of its result type."""

    value: Expr
    span: SourceSpan | None = field(default=None, compare=False)


Stmt: TypeAlias = Assign | If | For | While | Break | Continue | Return | Effect


# ----------------------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True)
class Function:
    """A function for one choice of argument types; `locals` are its variables and their types.

    One that is written in C++ already has `raw` and no body.
    """

    name: str
    params: tuple[tuple[str, Type], ...]
    result: Type
    locals: tuple[tuple[str, Type], ...]
    body: tuple[Stmt, ...]
    raw: Raw | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Functions in the order callee before caller; the last one is the entry.

    `captures` are names and types of the captured scalars, in the order of their slots.
    """

    functions: tuple[Function, ...]
    captures: tuple[tuple[str, Type], ...] = ()

    @property
    def entry(self) -> Function:
        """The function that the operator's user calls."""
        return self.functions[-1]


# ----------------------------------------------------------------------------- walking


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the expressions directly below an expression."""
    match node:
        case Apply(args=args) | Call(args=args):
            return args
        case Cast(value=value) | GetField(value=value) | GetItem(value=value):
            return (value,)
        case Below(value=value, limit=limit):
            return (value, limit)
        case Select(condition, then, orelse):
            return (condition, then, orelse)
        case MakeStruct(values=values) | MakeTuple(values=values):
            return values
        case _:
            return ()


def walk_expressions(node: Expr) -> Iterator[Expr]:
    """Yield an expression and all below it, parents first."""
    yield node
    for child in children(node):
        yield from walk_expressions(child)


def operands(statement: Stmt) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates itself."""
    match statement:
        case Assign(value=value) | Return(value=value):
            return (value,)
        case If(condition=condition) | While(condition=condition):
            return (condition,)
        case For(start=start, stop=stop, step=step):
            return (start, stop, step)
        case Effect():
            return statement.operands()
        case _:
            return ()


def walk_statements(block: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield the statements of a block and of all blocks below, in text order."""
    for statement in block:
        yield statement
        match statement:
            case If(then=then, orelse=orelse):
                yield from walk_statements(then)
                yield from walk_statements(orelse)
            case For(body=body) | While(body=body):
                yield from walk_statements(body)


def terminates(block: tuple[Stmt, ...]) -> bool:
    """Whether control never reaches the end of the block."""
    if not block:
        return False
    last = block[-1]
    match last:
        case Return() | Break() | Continue():
            return True
        case If(then=then, orelse=orelse):
            return terminates(then) and terminates(orelse)
        case While(condition=Const(value=True), body=body):
            return not _has_break(body)
        case _:
            return False


def _has_break(block: tuple[Stmt, ...]) -> bool:
    for statement in block:
        match statement:
            case Break():
                return True
            case If(then=then, orelse=orelse) if _has_break(then) or _has_break(orelse):
                return True
    return False
