"""Hypothesis strategies: typed IR programs, element values, and arrays of every layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from kernelmill.compiler import ir
from kernelmill.compiler.intrinsics import OPERATIONS
from kernelmill.compiler.ir_verify import verify
from kernelmill.compiler.kernel_builder import KernelBuilder
from kernelmill.compiler.kernel_ir import Cell
from kernelmill.dtypes import (
    SCALARS,
    DType,
    StructType,
    TupleType,
    Type,
    WeakType,
    storage,
    uint64,
    weak_float,
    weak_int,
)
from kernelmill.errors import KernelmillError
from kernelmill.structs import struct

if TYPE_CHECKING:
    from collections.abc import Callable

SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.0, 3.0, 1e-45, 1e-8, 65504.0, 1e30, 1e300,
                  2.0**31, 2.0**63, -(2.0**63), float("inf"), float("-inf"), float("nan"))  # fmt: skip
PAIR = struct({"first": "float32", "second": "int16"}, name="Pair").__kernelmill_struct__
MIXED = struct(
    np.dtype([("flag", "?"), ("x", "f8"), ("n", "i4")]), name="Mixed"
).__kernelmill_struct__


def numpy_dtype(type_: DType | StructType) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if type_.name == "bfloat16" else type_.to_numpy()


# ----------------------------------------------------------------------------- values


def float_values() -> st.SearchStrategy[float]:
    return st.one_of(
        st.sampled_from(SPECIAL_FLOATS),
        st.floats(min_value=-100, max_value=100, width=32),
        st.floats(),
    )


def python_values(type_: Type) -> st.SearchStrategy[Any]:
    """Python numbers that a type can hold, special ones often."""
    if isinstance(type_, WeakType):
        type_ = type_.storage
    assert isinstance(type_, DType)
    if type_.kind == "bool":
        return st.booleans()
    if type_.is_integer:
        edges = st.sampled_from([type_.min, type_.max, 0, 1, type_.max - 1])
        small = st.integers(max(type_.min, -9), 9)
        return st.one_of(small, edges, st.integers(type_.min, type_.max))
    if type_.kind == "complex":
        return st.builds(complex, float_values(), float_values())
    return float_values()


@st.composite
def columns(draw: Callable[..., Any], type_: DType | StructType, count: int) -> Any:
    """`count` elements of a type as a NumPy array."""
    made = np.zeros(count, numpy_dtype(type_))
    with np.errstate(all="ignore"):
        if isinstance(type_, StructType):
            for field in type_.fields:
                assert isinstance(field.type, DType)
                made[field.name] = draw(columns(field.type, count))
        else:
            values = draw(st.lists(python_values(type_), min_size=count, max_size=count))
            made[:] = (
                np.array(values, np.float64).astype(made.dtype) if type_.kind == "float" else values
            )
    return made


# ----------------------------------------------------------------------------- programs


@dataclass(frozen=True)
class Case:
    """A program, the elements it is run on, and the values of what it captured."""

    program: ir.Program
    arguments: tuple[Any, ...]
    captures: tuple[Any, ...]
    arrays: tuple[Any, ...] = ()  # what captured addresses point to

    def __repr__(self) -> str:
        return f"Case({len(self.program.functions)} functions)"


DRAWN = sorted(set(OPERATIONS) - {"tgamma", "lgamma"})
# These see the sign of a NaN as their last argument, which is not specified.
READ_THE_SIGN = ("copysign", "signbit")
# Depth of nesting that is left at the outermost block of a function.
TOP = 3


# Element types of captured arrays, by the slot of the address; the extent is in the next one.
Tables: TypeAlias = "dict[int, DType | StructType]"


class _Author:
    """Draws the statements and expressions of one function."""

    def __init__(
        self,
        draw: Callable[..., Any],
        builder: KernelBuilder,
        captures: list[tuple[str, Type]],
        callees: list[ir.Function],
        tables: Tables,
    ) -> None:
        self.draw, self.builder, self.captures, self.callees = draw, builder, captures, callees
        self.tables = tables
        self.visible: list[ir.Expr] = [builder.param(i) for i in range(len(builder.params))]
        # Addresses differ from run to run; nothing is computed with them.
        places = [i for i in range(len(captures)) if i not in tables]
        self.visible += [builder.capture(i, captures[i][1]) for i in places]
        self.budget = 14

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def leaf(self) -> ir.Expr:
        if self.visible and self.chance(80):
            return self.draw(st.sampled_from(self.visible))
        type_ = self.draw(st.sampled_from([weak_int, weak_float]))
        if type_ is weak_int:
            return self.builder.const(self.draw(st.integers(-4, 130)))
        return self.builder.const(self.draw(st.floats(-8, 8, width=32)))

    def expression(self, depth: int) -> ir.Expr:
        """An expression; what the typing rules refuse is drawn again, at last a leaf."""
        if depth == 0 or self.budget <= 0:
            return self.scalar_leaf()
        self.budget -= 1
        for _ in range(4):
            try:
                return self.compound(depth)
            except (KernelmillError, OverflowError):
                continue
        return self.scalar_leaf()

    def scalar_leaf(self) -> ir.Expr:
        leaf = self.leaf()
        while isinstance(leaf.type, (StructType, TupleType)):
            if isinstance(leaf.type, TupleType):
                leaf = self.builder.const(1)
                break
            field = self.draw(st.sampled_from(leaf.type.fields))
            leaf = self.builder.field(leaf, field.name)
        return leaf

    def compound(self, depth: int) -> ir.Expr:
        choice = self.draw(st.integers(0, 99))
        if choice < 70:
            row = OPERATIONS[self.draw(st.sampled_from(DRAWN))]
            args = [self.expression(depth - 1) for _ in range(row.arity)]
            if row.name in READ_THE_SIGN:
                args[-1] = self.not_nan(args[-1])
            return self.builder.apply(row.name, *args)
        if choice < 80:
            return self.builder.select(*(self.expression(depth - 1) for _ in range(3)))
        if choice < 92 or not self.callees:
            value = self.expression(depth - 1)
            wanted = self.draw(st.sampled_from(SCALARS))
            if (
                isinstance(value.type, (DType, WeakType))
                and value.type.kind == "complex" != wanted.kind
            ):
                value = self.builder.apply("real", value)
            return self.builder.cast(value, wanted)
        callee = self.draw(st.sampled_from(self.callees))
        args = [self.fitted(self.real_for(t, depth), t) for _, t in callee.params]
        return self.builder.call(callee, args)

    def not_nan(self, value: ir.Expr) -> ir.Expr:
        return self.builder.select(self.builder.apply("isnan", value), self.builder.const(1), value)

    def real_for(self, type_: Type, depth: int) -> ir.Expr:
        value = self.expression(depth - 1)
        found = value.type
        assert isinstance(found, (DType, WeakType))
        complex_needed = isinstance(type_, DType) and type_.kind == "complex"
        return (
            value
            if found.kind != "complex" or complex_needed
            else self.builder.apply("real", value)
        )

    def statements(self, depth: int, *, in_loop: bool) -> None:
        scope = len(self.visible)
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(depth, in_loop=in_loop)
        if depth < TOP:
            del self.visible[scope:]

    def statement(self, depth: int, *, in_loop: bool) -> None:
        choice = self.draw(st.integers(0, 99))
        if self.tables and choice % 4 == 0:
            self.read()
        elif choice < 55 or depth == 0:
            self.assign_new()
        elif choice < 70:
            self.update()
        elif choice < 85:
            self.branch(depth, in_loop=in_loop)
        elif choice < 95:
            self.count_loop(depth)
        else:
            self.while_loop(depth)

    def assign_new(self) -> None:
        value = self.expression(2)
        name = self.builder.declare("v", value.type)
        self.builder.assign(name, value)
        self.visible.append(self.builder.local(name))

    def read(self) -> None:
        """Read an element of a captured array into a new local; the index may be outside."""
        build = self.builder
        slot, type_ = self.draw(st.sampled_from(sorted(self.tables.items())))
        index = build.declare("i", weak_int)
        build.assign(index, self.integer())
        at, extent = build.local(index), build.capture(slot + 1, weak_int)
        within = build.apply("lt", build.cast(at, uint64), build.cast(extent, uint64))
        distance = build.apply("mul", at, build.const(type_.itemsize))
        place = (build.capture(slot, uint64), distance, within)
        self.visible.append(build.load(Cell(f"t{slot}", place, (), type_)))

    def update(self) -> None:
        """Give an existing local a new value of its own type."""
        known = [v for v in self.visible if isinstance(v, ir.Local) and v.name.startswith("v")]
        if not known:
            return self.assign_new()
        target = self.draw(st.sampled_from(known))
        value = self.expression(2)
        if isinstance(target.type, WeakType) and isinstance(value.type, DType):
            return self.assign_new()
        try:
            self.builder.assign(
                target.name, self.builder.cast(self.to_real(value, target), target.type)
            )
        except (KernelmillError, OverflowError):
            return self.assign_new()
        return None

    def to_real(self, value: ir.Expr, target: ir.Local) -> ir.Expr:
        found, wanted = storage(value.type), storage(target.type)
        assert isinstance(found, DType)
        assert isinstance(wanted, DType)
        narrows = found.kind == "complex" and wanted.kind != "complex"
        return self.builder.apply("real", value) if narrows else value

    def branch(self, depth: int, *, in_loop: bool) -> None:
        condition = self.expression(2)
        with self.builder.block() as then:
            self.statements(depth - 1, in_loop=in_loop)
            if in_loop and self.chance(25):
                self.builder.break_() if self.chance(50) else self.builder.continue_()
            elif self.chance(15):
                self.builder.return_(self.result())
        with self.builder.block() as orelse:
            if self.chance(60):
                self.statements(depth - 1, in_loop=in_loop)
        self.builder.if_(condition, then, orelse)

    def count_loop(self, depth: int) -> None:
        name = self.builder.declare("i", weak_int)
        start, step = self.draw(st.integers(-2, 3)), self.draw(st.sampled_from([1, 2, -1, 3, 0]))
        stop = self.builder.apply(
            "and", self.builder.cast(self.integer(), weak_int), self.builder.const(7)
        )
        with self.builder.block() as body:
            self.visible.append(self.builder.local(name))
            self.statements(depth - 1, in_loop=True)
        self.visible = [v for v in self.visible if v != self.builder.local(name)]
        bounds = (self.builder.const(start), stop, self.builder.const(step))
        self.builder.for_(name, bounds, body)

    def integer(self) -> ir.Expr:
        leaf = self.scalar_leaf()
        assert isinstance(leaf.type, (DType, WeakType))
        if leaf.type.kind == "complex":
            leaf = self.builder.apply("real", leaf)
        return leaf if leaf.type == weak_int else self.builder.apply("int", leaf)

    def while_loop(self, depth: int) -> None:
        turns = self.builder.declare("turn", weak_int)
        self.builder.assign(turns, self.builder.const(0))
        limit = self.builder.apply("lt", self.builder.local(turns), self.builder.const(5))
        goes_on = self.builder.truth(self.expression(2))
        condition = self.builder.apply("and", limit, goes_on)
        with self.builder.block() as body:
            more = self.builder.apply("add", self.builder.local(turns), self.builder.const(1))
            self.builder.assign(turns, more)
            self.statements(depth - 1, in_loop=True)
        self.builder.while_(condition, body)

    def result(self) -> ir.Expr:
        """Every return has the type that the function promised at its start."""
        value = self.expression(2)
        assert isinstance(self.promised, DType)
        found = value.type
        assert isinstance(found, (DType, WeakType))
        if found.kind == "complex" != self.promised.kind:
            value = self.builder.apply("real", value)
        return self.fitted(value, self.promised)

    def fitted(self, value: ir.Expr, type_: Type) -> ir.Expr:
        """The value as a type; a literal that the type cannot hold becomes another one."""
        try:
            return self.builder.cast(value, type_)
        except OverflowError:
            return self.builder.cast(self.builder.const(1), type_)

    promised: Type = weak_int


@st.composite
def functions(
    draw: Callable[..., Any],
    name: str,
    types: list[Type],
    captures: list[tuple[str, Type]],
    callees: list[ir.Function],
    *,
    tables: Tables,
) -> ir.Function:
    builder = KernelBuilder(name, [(f"p{i}", t) for i, t in enumerate(types)])
    author = _Author(draw, builder, captures, callees, tables)
    author.promised = draw(st.sampled_from(SCALARS))
    author.statements(TOP, in_loop=False)
    builder.return_(author.result())
    return builder.finish()


ELEMENTS: tuple[DType | StructType, ...] = (*SCALARS, PAIR, MIXED)


@st.composite
def cases(draw: Callable[..., Any], elements: int = 12, *, arrays: bool = False) -> Case:
    """A typed program with loops, branches, calls and captures, and the elements to run it on.

    With `arrays` some read captured arrays, which are in the memory of the host.
    """
    captures = [
        (f"c{i}", draw(st.sampled_from([weak_int, weak_float])))
        for i in range(draw(st.integers(0, 2)))
    ]
    values = [draw(python_values(t)) for _, t in captures]
    tables: Tables = {}
    held: list[Any] = []
    if arrays and draw(st.integers(0, 99)) < 30:
        type_ = draw(st.sampled_from(ELEMENTS))
        tables[len(captures)] = type_
        held.append(draw(columns(type_, draw(st.integers(1, 5)))))
        captures += [("t", uint64), ("t_shape", weak_int)]
        values += [held[0].ctypes.data, len(held[0])]
    callees: list[ir.Function] = []
    if draw(st.integers(0, 99)) < 30:
        types: list[Type] = draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=2))
        callees.append(draw(functions("helper", types, captures, [], tables=tables)))
    given = draw(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3))
    entry = draw(functions("entry", list(given), captures, callees, tables=tables))
    program = ir.Program((*callees, entry), tuple(captures))
    verify(program)
    drawn = tuple(draw(columns(t, elements)) for t in given)
    return Case(program, drawn, tuple(values), tuple(held))
