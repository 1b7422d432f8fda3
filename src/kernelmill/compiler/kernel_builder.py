"""The public way to build IR that uses memory: effects at their place, values converted.

Expressions and control flow are those of `builder.py`; the nodes are in `kernel_ir.py`.

>>> from kernelmill.compiler.kernel_builder import KernelBuilder
>>> from kernelmill.compiler.kernel_ir import Array, Place, Special
>>> from kernelmill.dtypes import float32
>>> x = Array("x", float32, 1, "global")
>>> f = KernelBuilder("twice", [])
>>> place = Place("x", (Special("threadIdx.x"),), (), float32)
>>> f.store(place, f.apply("mul", f.load(place), f.const(2)))
>>> f.leave()
>>> [type(s).__name__ for s in f.finish().body]
['Load', 'Store', 'Return']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.compiler.builder import FunctionBuilder, convert
from kernelmill.compiler.intrinsics import EFFECTS
from kernelmill.compiler.ir import Call, Capture, Expr, Local, MakeTuple, walk_statements
from kernelmill.compiler.kernel_ir import (
    UNIT,
    Atomic,
    Effect,
    Invoke,
    Load,
    Order,
    Perform,
    Place,
    Scope,
    Store,
)
from kernelmill.dtypes import Type, bool_, uint32, weak_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.ir import Function, Program

__all__ = ["KernelBuilder", "has_effects", "written"]


class KernelBuilder(FunctionBuilder):
    """Builds one function of a kernel or of an operator."""

    # ------------------------------------------------------------------ memory

    def load(self, place: Place, name: str = "t") -> Expr:
        """Read an element; return the local that holds it."""
        slot = self.declare(name, place.type)
        self.emit(Load(slot, place, self.span))
        return self.local(slot)

    def store(self, place: Place, value: Expr) -> None:
        """Write a value, converted as an assignment to an array converts it."""
        found = value if value.type == place.type else self.cast(value, place.type)
        self.emit(Store(place, found, self.span))

    def atomic(
        self, op: str, place: Place, values: Sequence[Expr], order: Order, scope: Scope
    ) -> Expr:
        """Change an element at once; return the local that holds what it was before."""
        slot = None if op == "store" else self.declare("old", place.type)
        converted = tuple(v if v.type == place.type else self.cast(v, place.type) for v in values)
        self.emit(Atomic(slot, op, place, converted, order, scope, self.span))
        return MakeTuple((), UNIT) if slot is None else self.local(slot)

    # ------------------------------------------------------------------ threads

    def perform(
        self,
        op: str,
        args: Sequence[Expr] = (),
        *,
        function: str | None = None,
        text: str = "",
        options: tuple[str, ...] = (),
    ) -> Expr:
        """Do what a row of `intrinsics.EFFECTS` says; return the local that holds its result."""
        row = EFFECTS[op]
        results: dict[str, Type | None] = {"bool": bool_, "mask": uint32, "count": weak_int}
        result = args[0].type if row.result == "same" else results.get(row.result)
        slot = None if result is None else self.declare("t", result)
        self.emit(Perform(slot, op, tuple(args), result, function, text, options, self.span))
        return MakeTuple((), UNIT) if slot is None else self.local(slot)

    def invoke(self, function: Function, args: Sequence[Expr]) -> Expr:
        """Call a function that has effects; return the local that holds its result."""
        pairs = zip(args, function.params, strict=True)
        call = Call(function.name, tuple(convert(a, t) for a, (_, t) in pairs), function.result)
        slot = None if function.result == UNIT else self.declare("t", function.result)
        self.emit(Invoke(slot, call, self.span))
        return MakeTuple((), UNIT) if slot is None else self.local(slot)

    def only_call(self, result: Expr) -> Call | None:
        """Return the call that is all of this function so far, whose value is `result`."""
        match self._blocks[0], result:
            case [], Call():
                return result
            case [Invoke(name=name, call=call)], Local(name=read) if name == read:
                return call
            case _:
                return None

    def leave(self) -> None:
        """Return nothing."""
        self.return_(MakeTuple((), UNIT))


def has_effects(function: Function) -> bool:
    """Whether a function reads or changes memory, or takes part in what several threads do."""
    return any(isinstance(s, Effect) for s in walk_statements(function.body))


def written(program: Program) -> set[int]:
    """Return the captures that are addresses of arrays to which an operator writes."""
    return {
        statement.place.index[0].index
        for function in program.functions
        for statement in walk_statements(function.body)
        if isinstance(statement, Store)
        or (isinstance(statement, Atomic) and statement.op != "load")
        if isinstance(statement.place.index[0], Capture)
    }
