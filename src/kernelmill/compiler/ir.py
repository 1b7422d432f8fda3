"""The typed intermediate representation: frozen nodes, and `verify`. Building it is `builder.py`.

Expressions are pure and total (no operation traps), so a back end may evaluate them in any order.
Every conversion is an explicit `Cast`; types are those of `kernelmill.dtypes`, weak ones included.
Control flow is structured: `If`, `For` over a range, `While`, with `Break`, `Continue`, `Return`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kernelmill.compiler.intrinsics import OPERATIONS, OperationError
from kernelmill.compiler.kernel_ir import (
    Atomic,
    Below,
    Cell,
    Effect,
    Extent,
    Invoke,
    Load,
    Special,
    Store,
)
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    WeakType,
    bool_,
    int32,
    uint64,
    weak_int,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernelmill.compiler.raw import Raw
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
    "VerifyError",
    "While",
    "children",
    "verify",
    "walk_expressions",
    "walk_statements",
]


class VerifyError(AssertionError):
    """An IR program breaks a rule of the IR: a fault of whoever built it, never of a user."""


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


# ----------------------------------------------------------------------------- verification


def verify(program: Program) -> None:
    """Check a whole program; raises VerifyError with the rule that is broken.

    Run after the front end and after every pass that rewrites IR.
    """
    known: dict[str, Function] = {}
    for function in program.functions:
        _require(function.name not in known, f"two functions are named {function.name}")
        _FunctionVerifier(program, function, known).run()
        known[function.name] = function
    _require(bool(known), "a program has at least one function")


def _require(condition: bool, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise VerifyError(rule)


class _FunctionVerifier:
    """Checks one function: types of all nodes, definite assignment, places of control flow."""

    def __init__(self, program: Program, function: Function, known: Mapping[str, Function]) -> None:
        self.program, self.function, self.known = program, function, known
        self.locals = dict(function.locals)

    def run(self) -> None:
        function = self.function
        if function.raw is not None:
            _require(not function.body, f"{function.name}: a raw function has no body")
            return
        _require(len(self.locals) == len(function.locals), f"{function.name}: duplicate local")
        self._block(function.body, set(), in_loop=False)
        _require(terminates(function.body), f"{function.name}: control reaches the end")

    def _block(self, block: tuple[Stmt, ...], defined: set[str], *, in_loop: bool) -> set[str]:
        """Check a block; return the locals that are defined behind it."""
        for position, statement in enumerate(block):
            for expr in operands(statement):
                self._expression(expr, defined)
            defined = self._statement(statement, defined, in_loop=in_loop)
            rest = block[position + 1 :]
            _require(not (terminates((statement,)) and rest), "statements behind a jump")
        return defined

    def _statement(self, statement: Stmt, defined: set[str], *, in_loop: bool) -> set[str]:
        match statement:
            case Assign(name, value):
                self._same(self.locals.get(name), value.type, f"assignment to {name}")
                return defined | {name}
            case Return(value):
                self._same(self.function.result, value.type, "return")
            case If(condition, then, orelse):
                self._same(bool_, condition.type, "condition")
                ends = [self._block(part, set(defined), in_loop=in_loop) for part in (then, orelse)]
                if terminates(then):
                    return ends[1]
                return ends[0] if terminates(orelse) else ends[0] & ends[1]
            case For(name, start, stop, step, body):
                narrow = self.locals.get(name) == start.type == int32
                counter = int32 if narrow else weak_int
                for bound in (start, stop, step):
                    self._same(counter, bound.type, "range bound")
                self._same(self.locals.get(name), counter, f"loop variable {name}")
                self._block(body, defined | {name}, in_loop=True)
            case While(condition, body):
                self._same(bool_, condition.type, "condition")
                self._block(body, set(defined), in_loop=True)
            case Break() | Continue():
                _require(in_loop, "break or continue outside a loop")
            case Effect():
                return self._effect(statement, defined)
        return defined

    def _effect(self, statement: Effect, defined: set[str]) -> set[str]:
        if isinstance(statement, Invoke):
            self._aggregate(statement.call)
        if isinstance(statement, (Load, Store, Atomic)) and isinstance(statement.place, Cell):
            self._cell(statement)
        if statement.name is None:
            return defined
        result = statement.result
        _require(result is not None, f"{statement.name} takes no result")
        assert result is not None
        self._same(self.locals.get(statement.name), result, f"result in {statement.name}")
        return defined | {statement.name}

    def _cell(self, statement: Load | Store | Atomic) -> None:
        place = statement.place
        wanted: tuple[Type, ...] = (uint64, weak_int, bool_)
        _require(len(place.index) == len(wanted), f"{len(place.index)} indices of {place.array}")
        for value, type_ in zip(place.index, wanted, strict=True):
            self._same(type_, value.type, f"where an element of {place.array} lies")
        _require(isinstance(place.index[0], Capture), f"{place.array} is no captured array")
        for value in statement.operands()[len(wanted) :]:
            self._same(place.type, value.type, f"what is written to {place.array}")

    def _expression(self, node: Expr, defined: set[str]) -> None:
        for child in children(node):
            self._expression(child, defined)
        match node:
            case Const(value, type_):
                _require(
                    isinstance(type_, (DType, WeakType)), f"constant {value!r} of type {type_}"
                )
            case Param(index, type_):
                self._same(self._slot(self.function.params, index), type_, f"parameter {index}")
            case Capture(index, type_):
                self._same(self._slot(self.program.captures, index), type_, f"capture {index}")
            case Local(name, type_):
                _require(name in defined, f"local {name} is read before it is set")
                self._same(self.locals.get(name), type_, f"local {name}")
            case Apply():
                self._apply(node)
            case Cast(value, type_):
                scalar = (DType, WeakType)
                _require(
                    isinstance(value.type, scalar) and isinstance(type_, scalar), "cast of a struct"
                )
            case Select(condition, then, orelse, type_):
                self._same(bool_, condition.type, "condition of select")
                self._same(type_, then.type, "select")
                self._same(type_, orelse.type, "select")
            case _:
                self._aggregate(node)

    def _aggregate(self, node: Expr) -> None:
        match node:
            case GetField(value, name, type_):
                owner = value.type
                found = owner.field(name) if isinstance(owner, StructType) else None
                self._same(found.type if found else None, type_, f"field {name}")
            case MakeStruct(values, type_):
                _require(
                    len(values) == len(type_.fields), f"struct {type_} with {len(values)} values"
                )
                for value, declared in zip(values, type_.fields, strict=True):
                    self._same(declared.type, value.type, f"field {declared.name}")
            case GetItem(value, index, type_):
                owner = value.type
                _require(isinstance(owner, TupleType), "item of no tuple")
                assert isinstance(owner, TupleType)
                _require(0 <= index < len(owner.items), "tuple index")
                self._same(owner.items[index], type_, "tuple item")
            case MakeTuple(values, type_):
                self._same(TupleType(tuple(v.type for v in values)), type_, "tuple")
            case Call(function, args, type_):
                callee = self.known.get(function)
                _require(callee is not None, f"call of {function} before its definition")
                assert callee is not None
                _require(len(args) == len(callee.params), f"arity of {function}")
                for arg, (name, wanted) in zip(args, callee.params, strict=True):
                    self._same(wanted, arg.type, f"argument {name} of {function}")
                self._same(callee.result, type_, f"result of {function}")

    def _apply(self, node: Apply) -> None:
        _require(node.op in OPERATIONS, f"unknown operation {node.op}")
        types = tuple(a.type for a in node.args)
        try:
            wanted, result = OPERATIONS[node.op].signature(types)
        except OperationError as error:
            raise VerifyError(f"{node.op}{types}: {error}") from error
        _require(wanted == types, f"{node.op} wants {wanted}, got {types}")
        self._same(result, node.type, f"result of {node.op}")

    @staticmethod
    def _slot(slots: tuple[tuple[str, Type], ...], index: int) -> Type | None:
        return slots[index][1] if 0 <= index < len(slots) else None

    @staticmethod
    def _same(wanted: Type | None, found: Type, what: str) -> None:
        _require(wanted == found, f"{what}: expects {wanted}, got {found}")
