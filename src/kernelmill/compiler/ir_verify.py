"""`verify`: the rules of a program in IR; those of a kernel are in `kernel_verify.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.compiler.intrinsics import OPERATIONS, OperationError
from kernelmill.compiler.ir import (
    Apply,
    Assign,
    Break,
    Call,
    Capture,
    Cast,
    Const,
    Continue,
    For,
    GetField,
    GetItem,
    If,
    Local,
    MakeStruct,
    MakeTuple,
    Param,
    Return,
    Select,
    While,
    children,
    operands,
    terminates,
)
from kernelmill.compiler.kernel_ir import Atomic, Cell, Effect, Invoke, Load, Store
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
    from collections.abc import Mapping

    from kernelmill.compiler.ir import Expr, Function, Program, Stmt

__all__ = ["VerifyError", "verify"]


class VerifyError(AssertionError):
    """An IR program breaks a rule of the IR: a fault of whoever built it, never of a user."""


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
