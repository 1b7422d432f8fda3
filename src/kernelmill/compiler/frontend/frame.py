"""The state of one function while it is translated: variables, loops, places. Nothing else."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelmill.compiler import ir
from kernelmill.compiler.builder import convert, join, tuple_item
from kernelmill.compiler.frontend import refusals
from kernelmill.compiler.frontend.scope import nearest
from kernelmill.compiler.frontend.values import (
    OBJECTS,
    Binding,
    Closure,
    Conflict,
    Known,
    Memory,
    Unbound,
    Value,
    is_leaf,
)
from kernelmill.dtypes import DType, TupleType, Type, WeakType, int64, weak_int
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping

    from kernelmill.compiler.builder import FunctionBuilder
    from kernelmill.compiler.frontend.program import ProgramTranslator
    from kernelmill.compiler.frontend.scope import Surroundings
    from kernelmill.compiler.source import FunctionSource
    from kernelmill.errors import SourceSpan

__all__ = ["Frame", "Loop"]


@dataclass(slots=True)
class Loop:
    """A loop being translated: the locals that carry its variables from turn to turn.

    `names` are all variables that the loop sets, `before` all variables before it. `types` of the
    carried ones grow until a pass over the body leaves them as they are; `conflicts` are those that
    cannot be carried; `wanted` those first set in the loop and read elsewhere. `exits` are the
    names bound at each way out, `turns` those bound at each way back to the top. `spread` says that
    it is one of several loops that are one in Python.
    """

    names: list[str]
    before: dict[str, Binding]
    types: dict[str, Type] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    conflicts: dict[str, Unbound | Conflict] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    changed: bool = False
    exits: list[frozenset[str]] = field(default_factory=list)
    turns: list[frozenset[str]] = field(default_factory=list)
    unrolled: bool = False
    spread: bool = False


@dataclass(slots=True)
class Frame:
    """One function being translated for one choice of argument types.

    `names` are all names bound in the function, `variables` the values of those of functions around
    it, `bindings` its own variables now.
    """

    program: ProgramTranslator
    source: FunctionSource
    surroundings: Surroundings
    builder: FunctionBuilder
    names: frozenset[str]
    variables: Mapping[str, Value]
    bindings: dict[str, Binding]
    loops: list[Loop] = field(default_factory=list)
    returns: list[tuple[Type, SourceSpan]] = field(default_factory=list)
    is_kernel: bool = False

    # ------------------------------------------------------------------ errors

    def refusal(self, node: ast.AST, message: str, hint: str = "") -> OperatorError:
        """Return the error that refuses a node."""
        return OperatorError(message, span=self.place(node), hint=hint)

    def place(self, node: ast.AST) -> SourceSpan | None:
        """Return the place of a node, or None where the operator has no text."""
        return self.source.span(node) if self.source.filename else None

    def unsupported(self, node: ast.AST) -> OperatorError:
        """Return the error that refuses a kind of node, by the table."""
        kind = type(node)
        name, hint = refusals.NODES.get(kind, (f"`{kind.__name__}`", "write it with scalars"))
        return self.refusal(node, f"{name} is not part of the operator language", hint)

    @contextlib.contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Give errors of the builder the place of a node."""
        try:
            yield
        except OperatorError as error:
            if error.span is None:
                error.span = self.place(node)
            raise
        except DTypeError as error:
            raise OperatorError(error.message, span=self.place(node), hint=error.hint) from error

    @contextlib.contextmanager
    def placed(self, span: SourceSpan | None) -> Iterator[None]:
        """Give statements made inside, and errors of the builder, the place of a binding."""
        before, self.builder.span = self.builder.span, span
        try:
            yield
        except OperatorError as error:
            if error.span is None:
                error.span = span
            raise
        finally:
            self.builder.span = before

    # ------------------------------------------------------------------ names

    def lookup(self, node: ast.Name) -> Value:
        """Return the value of a name as Python resolves it."""
        name = node.id
        if name in self.names:
            found: Value | None = None
            if name in self.bindings:
                found = self.bindings[name].value
            if found is None:
                raise self.refusal(
                    node, f"`{name}` is read before it is set", f"give `{name}` a value before"
                )
        else:
            found = self.variables.get(name)
        if found is None:
            return self._surrounding(node)
        if isinstance(found, (Unbound, Conflict)):
            raise self.refusal(node, found.reason, found.hint)
        return found

    def _surrounding(self, node: ast.Name) -> Value:
        with self.at(node):
            known = self.surroundings.find(node.id)
        if known is None:
            names = [*self.names, *self.variables, *self.surroundings.names()]
            raise self.refusal(
                node,
                f"name `{node.id}` is not defined{nearest(node.id, names)}",
                "define it before the operator is used",
            )
        return self.program.captures.value_of(known)

    def inner_variables(self) -> dict[str, Value]:
        """Return the values that a function defined here sees now."""
        own: dict[str, Value] = {
            name: Unbound(f"`{name}` is read before it is set", f"give `{name}` a value before")
            for name in sorted(self.names)  # the same text in each process
        }
        own.update({name: b.value for name, b in self.bindings.items()})
        return {**self.variables, **own}

    # ------------------------------------------------------------------ values

    def scalar(self, value: Value, node: ast.AST) -> ir.Expr:
        """Return a value that exists at run time, or refuse what only shapes the program."""
        if not isinstance(value, OBJECTS):
            return value
        if isinstance(value, Known):
            kind, hint = refusals.describe_object(value.value)
            raise self.refusal(
                node, f"`{value.name}` is {kind}: an operator cannot compute with it", hint
            )
        if isinstance(value, Memory):
            left = ", ".join("ijklmnop"[: len(value.dimensions)])
            name = value.array.name
            who = "an operator" if self.program.kernel is None else "a kernel"
            raise self.refusal(
                node,
                f"`{name}` is an array: {who} computes with its elements",
                f"write `{name}[{left or '()'}]`",
            )
        if isinstance(value, Closure):
            raise self.refusal(
                node, f"`{value.name}` is a function: it can only be called", "call it"
            )
        raise self.refusal(node, value.reason, value.hint)

    def leaf(self, value: ir.Expr, name: str = "t") -> ir.Expr:
        """Return a value that may be used several times; other values go into a new local."""
        if is_leaf(value):
            return value
        if isinstance(value, ir.MakeTuple):
            return self.builder.make_tuple(
                [self.leaf(v, f"{name}_{i}") for i, v in enumerate(value.values)]
            )
        if isinstance(value, ir.MakeStruct):
            pairs = zip(value.values, value.type.fields, strict=True)
            return ir.MakeStruct(
                tuple(self.leaf(v, f"{name}_{f.name}") for v, f in pairs), value.type
            )
        slot = self.builder.declare(name, value.type)
        self.builder.assign(slot, value)
        local = self.builder.local(slot)
        if isinstance(value.type, TupleType):
            return self.builder.make_tuple(
                [tuple_item(local, i) for i in range(len(value.type.items))]
            )
        return local

    def choose(self, condition: ir.Expr, then: ir.Expr, orelse: ir.Expr) -> ir.Expr:
        """Return `then if condition else orelse`, item by item for tuples and structs."""
        joined = join((then.type, orelse.type))
        then, orelse = convert(then, joined), convert(orelse, joined)
        if not isinstance(joined, (DType, WeakType)):
            condition = self.leaf(condition, "c")
        match then, orelse:
            case ir.MakeTuple(values=a), ir.MakeTuple(values=b):
                return self.builder.make_tuple(
                    [self.choose(condition, x, y) for x, y in zip(a, b, strict=True)]
                )
            case ir.MakeStruct(values=a, type=type_), ir.MakeStruct(values=b):
                pairs = zip(a, b, strict=True)
                return ir.MakeStruct(tuple(self.choose(condition, x, y) for x, y in pairs), type_)
            case _:
                return self.builder.select(condition, then, orelse)

    def both(self, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """Combine two bools by `and`, `or` or `xor`, without a node where one is known."""
        for known, other in ((a, b), (b, a)):
            if isinstance(known, ir.Const) and op != "xor":
                decides = bool(known.value) == (op == "or")
                return known if decides else other
        return self.builder.apply(op, a, b)

    def bind(self, name: str, value: Value, node: ast.AST) -> None:
        """Give a variable a value: a new version of it, never a change of the old one."""
        if not isinstance(value, OBJECTS):
            value = self.leaf(value, name)
        self.bindings[name] = Binding(value, self.source.span(node))

    def fits(self, value: ir.Expr, node: ast.AST, *, depth: int = 0) -> None:
        """Refuse a Python integer that would have to be stored and fits no 64 bits."""
        if isinstance(value, ir.Const) and value.type == weak_int:
            assert isinstance(value.value, int)
            if not int64.min <= value.value <= int64.max:
                raise self.refusal(
                    node,
                    f"Python integer {value.value} does not fit int64",
                    "integers have at most 64 bits here; np.uint64(x) holds up to 2**64 - 1",
                )
        if depth:
            for part in ir.children(value):
                self.fits(part, node, depth=depth - 1)
