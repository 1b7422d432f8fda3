"""Printed programs: loops, structs, captured scalars, names, literals, temporaries, their text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import printed_operations as printed
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import HOST
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    bfloat16,
    bool_,
    complex64,
    complex128,
    dtype_of,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.structs import struct
from kernelmill.toolchain import find_host_compiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernelmill.compiler.ir import Expr

MIN64, MAX64 = -(2**63), 2**63 - 1


def program(
    params: list[tuple[str, Type]], write: Callable[[FunctionBuilder], Expr | None], *before: Any
) -> ir.Program:
    """A program with one function; `write` returns its value, or emits its own returns."""
    f = FunctionBuilder("program", params)
    value = write(f)
    if value is not None:
        f.return_(value)
    return ir.Program((*before, f.finish()))


def compiled(folder: Path, *programs: ir.Program) -> printed.Library:
    return printed.build(programs, folder, find_host_compiler())


# ----------------------------------------------------------------------------- loops


@struct
class Seen:
    turns: int64
    total: int64
    last: int64


def count_turns(f: FunctionBuilder) -> None:
    """Turns of range(a, b, c), at most 50; the sum and the last of its numbers."""
    turns, total, last = (f.declare(n, weak_int) for n in ("turns", "total", "last"))
    for name in (turns, total, last):
        f.assign(name, f.const(-1 if name == last else 0))
    i = f.declare("i", weak_int)
    with f.block() as leave:
        f.break_()
    with f.block() as body:
        f.if_(f.apply("ge", f.local(turns), f.const(50)), leave)
        f.assign(turns, f.apply("add", f.local(turns), f.const(1)))
        f.assign(total, f.apply("add", f.local(total), f.local(i)))
        f.assign(last, f.local(i))
        f.assign(i, f.const(0))  # does not change the number of turns
    f.for_(i, (f.param(0), f.param(1), f.param(2)), body)
    seen = Seen.__kernelmill_struct__
    f.return_(f.make_struct(seen, [f.local(n) for n in (turns, total, last)]))


def test_a_for_loop_makes_the_turns_of_range(tmp_path: Path):
    library = compiled(tmp_path, program([(n, int64) for n in "abc"], count_turns))
    edges = [MIN64, MIN64 + 1, -7, -1, 0, 1, 5, 49, 100, MAX64 - 1, MAX64]
    steps = [MIN64, -3, -1, 0, 1, 2, 7, 2**62, MAX64]
    grid = [(a, b, c) for a in edges for b in edges for c in steps]
    starts, stops, strides = (np.array(x, np.int64) for x in zip(*grid, strict=True))
    got = library(0, [starts, stops, strides])
    for (a, b, c), result in zip(grid, got, strict=True):
        turns = range(a, b, c)[:50] if c else range(0)
        total = sum(turns) & (2**64 - 1)
        total -= (total > MAX64) << 64
        assert tuple(result) == (len(turns), total, turns[-1] if turns else -1), (a, b, c)


def collatz(f: FunctionBuilder) -> None:
    """Steps to 1 with while, continue and break, in two nested loops."""
    n, steps = f.declare("n", int64), f.declare("steps", int64)
    f.assign(n, f.param(0))
    f.assign(steps, f.const(0))
    with f.block() as leave:
        f.break_()
    with f.block() as even:
        f.assign(n, f.apply("floordiv", f.local(n), f.const(2)))
        f.continue_()
    with f.block() as body:
        f.if_(f.apply("eq", f.local(n), f.const(1)), leave)
        f.assign(steps, f.apply("add", f.local(steps), f.const(1)))
        f.if_(f.apply("eq", f.apply("mod", f.local(n), f.const(2)), f.const(0)), even)
        f.assign(n, f.apply("add", f.apply("mul", f.local(n), f.const(3)), f.const(1)))
    f.while_(f.const(value=True), body)
    f.return_(f.local(steps))


def test_while_break_and_continue(tmp_path: Path):
    library = compiled(tmp_path, program([("n", int64)], collatz))
    got = library(0, [np.array([1, 2, 3, 6, 7, 27, 97])])
    assert got.tolist() == [0, 1, 7, 8, 16, 111, 118]


def test_a_condition_with_temporaries_is_computed_in_each_turn(tmp_path: Path):
    def write(f: FunctionBuilder) -> None:
        x = f.declare("x", int64)
        f.assign(x, f.param(0))
        square = f.apply("mul", f.local(x), f.local(x))
        twice = f.apply("add", square, square)  # shared: a temporary
        with f.block() as body:
            f.assign(x, f.apply("add", f.local(x), f.const(1)))
        f.while_(f.apply("lt", twice, f.const(1000)), body)
        f.return_(f.local(x))

    made = program([("x", int64)], write)
    assert compiled(tmp_path, made)(0, [np.array([0, 5, 22, 23, 100])]).tolist() == [
        23, 23, 23, 23, 100,
    ]  # fmt: skip
    assert "while (true) {" in print_program(made, HOST).text


def test_a_condition_is_never_taken_for_a_declaration(tmp_path: Path):
    """`if (f64(rshift(i8(v), i8(v))) <= 0.5)` reads as a function declaration to g++."""

    def write(f: FunctionBuilder) -> None:
        narrow = f.cast(f.param(0), int8)
        shifted = f.cast(f.apply("rshift", narrow, narrow), float64)
        small = f.apply("le", shifted, f.const(0.5))
        with f.block() as then:
            f.return_(f.const(1, int8))
        f.while_(f.apply("gt", shifted, f.const(0.5)), then)
        f.if_(small, then)
        f.return_(f.const(2, int8))

    library = compiled(tmp_path, program([("v", int64)], write))
    assert library(0, [np.array([0, 1, 2, -1, 127])]).tolist() == [1, 1, 1, 1, 1]


def test_a_branch_that_is_not_taken_runs_no_function(tmp_path: Path):
    """`f(x) + f(x) if x > 0 else 0` with an f that would never end for other x."""
    endless = FunctionBuilder("endless", [("x", int64)])
    x = endless.declare("x", int64)
    endless.assign(x, endless.param(0))
    with endless.block() as body:
        endless.assign(x, endless.apply("sub", endless.local(x), endless.const(1)))
    endless.while_(endless.apply("ne", endless.local(x), endless.const(0)), body)
    endless.return_(endless.const(7, int64))
    callee = endless.finish()

    def write(f: FunctionBuilder) -> Expr:
        called = f.call(callee, [f.param(0)])
        some = f.apply("gt", f.param(0), f.const(0))
        number = f.select(some, f.apply("add", called, called), f.const(0))
        flag = f.select(some, f.apply("eq", called, f.const(7)), f.const(value=False))
        return f.apply("add", number, f.cast(flag, int64))

    library = compiled(tmp_path, program([("x", int64)], write, callee))
    assert library(0, [np.array([3, -1, 0])]).tolist() == [15, 0, 0]


# ----------------------------------------------------------------------------- structs

LAYOUTS = {
    "natural": np.dtype([("a", "u1"), ("b", "f8"), ("c", "i2")], align=True),
    "packed": np.dtype([("a", "u1"), ("b", "f8"), ("c", "i2")]),
    "padded": np.dtype({"names": ["b", "a"], "formats": ["f4", "?"], "offsets": [8, 3],
                        "itemsize": 17}),
    "nested": np.dtype([("x", [("a", "i1"), ("z", "c8")]), ("f", "f2"), ("ok", "?")]),
    "keywords": np.dtype([("class", "i4"), ("int", "f4"), ("int_", "f4"), ("linux", "u1")]),
    "half": np.dtype([("h", "f2"), ("w", "c16"), ("bits", "u8")], align=True),
}  # fmt: skip


def filled(dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    """Random fields; a stored bool holds any byte, and padding is random too."""
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype)[:, 0]


def leaves(value: Expr, f: FunctionBuilder) -> Expr:
    """Take a struct apart and put it together again."""
    if not isinstance(value.type, StructType):
        return value
    parts = [leaves(f.field(value, field.name), f) for field in value.type.fields]
    return f.make_struct(value.type, parts)


def items(record: Any) -> list[Any]:
    if isinstance(record, np.void):
        return [items(record[name]) for name in record.dtype.names]
    return [bool(record.tobytes().strip(b"\0")) if record.dtype == bool else record.tobytes()]


@pytest.mark.parametrize("name", LAYOUTS)
def test_structs_lie_where_numpy_puts_them(tmp_path: Path, name: str):
    type_ = dtype_of(LAYOUTS[name])
    assert isinstance(type_, StructType)

    def choose(f: FunctionBuilder) -> Expr:
        return f.select(f.apply("gt", f.param(2), f.const(0)), f.param(0), f.param(1))

    params: list[tuple[str, Type]] = [("a", type_), ("b", type_), ("k", int32)]
    apart = program([("a", type_)], lambda f: leaves(f.param(0), f))
    library = compiled(tmp_path, apart, program(params, choose))
    values = filled(LAYOUTS[name], 40)
    assert [items(v) for v in library(0, [values])] == [items(v) for v in values]
    first, second = values[:20], values[20:]
    which = np.arange(20, dtype=np.int32) % 2
    got = library(1, [first, second, which])
    wanted = [first[i] if which[i] else second[i] for i in range(20)]
    assert [items(v) for v in got] == [items(v) for v in wanted]


def test_two_structs_of_one_name_and_two_operators_of_one_struct(tmp_path: Path):
    one = struct({"a": int32, "b": float64}, name="S").__kernelmill_struct__
    two = struct({"a": float32}, name="S").__kernelmill_struct__
    assert type_spelling(one) != type_spelling(two)

    def build_two(f: FunctionBuilder) -> Expr:
        return f.make_struct(two, [f.cast(f.field(f.param(0), "b"), float32)])

    library = compiled(
        tmp_path,
        program([("s", one)], build_two),
        program([("s", one)], lambda f: f.field(f.param(0), "a")),
    )
    values = np.array([(3, 0.1), (4, 2.5)], one.to_numpy())
    assert library(0, [values])["a"].tolist() == [np.float32(0.1), 2.5]
    assert library(1, [values]).tolist() == [3, 4]


@pytest.mark.parametrize("count", [2, 5, 9])
def test_tuples_of_any_length(tmp_path: Path, count: int):
    types = [float32, int8, float16, complex64, bool_, uint64, bfloat16, int16, float64][:count]

    def write(f: FunctionBuilder) -> Expr:
        values = [f.param(i) for i in range(count)]
        swapped = [f.apply("maximum", v, v) for v in values]
        pair = f.select(
            f.apply("lt", f.param(0), f.const(0)), f.make_tuple(values), f.make_tuple(swapped)
        )
        name = f.declare("pair", pair.type)
        f.assign(name, pair)
        reached = ir.GetItem(f.local(name), count - 1, types[-1])
        return f.apply("eq", reached, values[-1])

    made = program([(f"p{i}", t) for i, t in enumerate(types)], write)
    rng = np.random.default_rng(1)
    args = [printed.random_values(t, 50, rng) for t in types]
    args = [np.where(a == a, a, np.ones(1, a.dtype)) for a in args]
    assert compiled(tmp_path, made)(0, args).all()


# ----------------------------------------------------------------------------- captures


def test_captured_scalars_are_read_from_their_c_layout(tmp_path: Path):
    types = (bool_, weak_float, int8, float16, weak_int, complex64, uint32, weak_complex, uint8)
    f = FunctionBuilder("captures", [("which", int32)])
    result = f.const(0j)
    for i, type_ in enumerate(types):
        chosen = f.apply("eq", f.param(0), f.const(i))
        result = f.select(chosen, f.cast(f.capture(i, type_), complex128), result)
    f.return_(result)
    names = ("k", "k", "int", "captured", "a_b", "größe", "Op", "z", "last")
    made = ir.Program((f.finish(),), tuple(zip(names, types, strict=True)))
    layout = print_program(made, HOST).captures_layout
    assert layout is not None
    assert [f.offset for f in layout.fields] == [0, 8, 16, 18, 24, 32, 40, 48, 64]
    values = (True, 0.1, -5, 1.5, MIN64, 1 + 2j, 2**32 - 1, 3 + 4j, 200)
    data = np.array([values], layout.to_numpy()).tobytes()
    got = compiled(tmp_path, made)(0, [np.arange(len(types), dtype=np.int32)], data)
    assert got.tolist() == [1, 0.1, -5, 1.5, MIN64, 1 + 2j, 2**32 - 1, 3 + 4j, 200]


# ----------------------------------------------------------------------------- names and literals

HOSTILE = ("int", "class_", "__x__", "_", "größe", "a", "a_", "KM_INL", "add", "exp", "captured",
           "Op", "t1", "start1", "turn1", "km", "f32", "bool", "operator", "x__y", "NULL", "p",
           "this", "u8", "Captures", "__attribute_", "__LINE_")  # fmt: skip


def test_the_users_names_never_collide_with_anything(tmp_path: Path):
    """All names at once, as parameters and as locals and as functions, next to loops."""
    callee = FunctionBuilder("add", [("operator", float64)])
    callee.return_(callee.apply("exp2", callee.param(0)))
    other = callee.finish()

    def write(f: FunctionBuilder) -> Expr:
        total: Expr = f.call(other, [f.const(0.0)])
        for i, name in enumerate(HOSTILE):
            local = f.declare(name, float64)
            f.assign(local, f.apply("mul", f.param(i), f.const(2)))
            total = f.apply("add", total, f.local(local))
        i = f.declare("i", weak_int)
        with f.block() as body:
            f.assign("int", f.apply("add", f.local("int"), f.local(i)))
        f.for_(i, (f.const(0), f.const(4), f.const(1)), body)
        return f.apply("add", total, f.local("int"))

    library = compiled(tmp_path, program([(n, float64) for n in HOSTILE], write, other))
    args = [np.array([1.0 + i]) for i in range(len(HOSTILE))]
    total = sum(2 * (1.0 + i) for i in range(len(HOSTILE))) + 1.0
    # `total` reads the first local behind the loop, which added 0 + 1 + 2 + 3 to it
    assert library(0, args).tolist() == [total + 6 + 2.0 + 6]


LITERALS: list[tuple[Any, Type]] = [
    (True, bool_), (False, bool_), (-128, int8), (127, int8), (255, uint8), (-(2**15), int16),
    (-(2**31), int32), (2**31 - 1, int32), (2**32 - 1, uint32), (MIN64, int64), (MAX64, int64),
    (2**63, uint64), (2**64 - 1, uint64), (MIN64, weak_int), (2**70 + 5, weak_int),
    (0.0, float64), (-0.0, float64), (0.1, float64), (1e300, float64), (5e-324, float64),
    (-1e-310, weak_float), (math.inf, float64), (-math.inf, float64), (math.nan, weak_float),
    (1e22, float64), (123456.5, float64), (0.1, float32), (-0.0, float32), (2.0**-149, float32),
    (1.17549435e-38, float32), (3.4028234663852886e38, float32), (math.inf, float32),
    (math.nan, float32), (0.1, float16), (65504.0, float16), (-math.inf, float16), (6e-8, float16),
    (math.nan, float16), (3.0, bfloat16), (1e-40, bfloat16), (1 - 0.0j, complex64),
    (complex(-0.0, math.nan), complex128), (0.1 + 0.2j, weak_complex),
]  # fmt: skip


def scalar(value: Any, type_: Type) -> Any:
    dtype = printed.numpy_of(type_)
    if dtype.kind in "iu":
        return np.array([value & (2**64 - 1)], np.uint64).astype(dtype)[0]
    return np.array([value]).astype(dtype)[0]


def test_literals_keep_their_bits(tmp_path: Path):
    made = [program([("x", int8)], lambda f, v=v, t=t: ir.Const(v, t)) for v, t in LITERALS]
    library = compiled(tmp_path, *made)
    for i, (value, type_) in enumerate(LITERALS):
        got, wanted = library(i, [np.zeros(1, np.int8)])[0], scalar(value, type_)
        assert got.tobytes() == wanted.tobytes() or (got != got and wanted != wanted), (
            value,
            type_,
        )


# (a Python number, the type it is converted to, the value it then has): rounded once.
ROUNDED: list[tuple[complex, DType, float]] = [
    (0.1, float32, float(np.float32(0.1))),
    (2**24 + 1, float32, 2.0**24),
    (2**63 + 2**39 + 1, float32, 2.0**63 + 2.0**40),  # by way of float64 it would be 2**63
    (2**53 + 1, float64, 2.0**53),
    (1 + 2**-11 + 2**-40, float16, 1 + 2**-10),
    (2**11 + 1, float16, 2.0**11),
    (65520, float16, math.inf),
    (65519.99, float16, 65504.0),
    (1 + 2**-8 + 2**-40, bfloat16, 1.0),
    (1 + 2**-8 + 2**-20, bfloat16, 1 + 2**-7),
    (3.4028235677973366e38, float32, math.inf),
    (-(2.0**-150), float32, -0.0),
    (-1.5 * 2.0**-150, float32, -(2.0**-149)),
    (0.1, complex64, float(np.float32(0.1))),
]


def test_converted_literals_are_rounded_as_a_conversion_rounds(tmp_path: Path):
    made = []
    for value, type_, _ in ROUNDED:
        weak = weak_int if isinstance(value, int) else weak_float
        cast = ir.Cast(ir.Const(value, weak), type_)
        made.append(program([("x", int8)], lambda f, cast=cast: cast))
    library = compiled(tmp_path, *made)
    for i, (value, type_, wanted) in enumerate(ROUNDED):
        got = library(i, [np.zeros(1, np.int8)])[0]
        expected = np.array([wanted]).astype(printed.numpy_of(type_))[0]
        assert got.tobytes() == expected.tobytes(), (value, type_, got)


# ----------------------------------------------------------------------------- text


def test_what_is_shared_is_computed_once(tmp_path: Path):
    """x doubled 60 times as a graph of 60 nodes: the text grows with the nodes, not the paths."""

    def write(f: FunctionBuilder) -> Expr:
        value: Expr = f.param(0)
        for _ in range(60):
            value = f.apply("add", value, value)
        return value

    f = FunctionBuilder("program", [("x", float64)])
    f.return_(write(f))
    made = ir.Program((f.finish(),))  # verifying walks all paths: not here
    operator = print_program(made, HOST)
    assert len(operator.text) < 6000
    out = tmp_path / "shared.so"
    printed.compile_text(printed.text_of([operator]), out, find_host_compiler())
    assert printed.Library(out, [float64])(0, [np.array([3.0])]).tolist() == [3.0 * 2**60]


def test_deep_expressions_are_cut_into_temporaries(tmp_path: Path):
    def write(f: FunctionBuilder) -> Expr:
        value: Expr = f.param(0)
        for i in range(300):
            value = f.apply("floordiv", f.apply("add", value, f.const(i)), f.const(1))
        return value

    made = program([("x", int32)], write)
    text = print_program(made, HOST).text
    assert max(line.count("(") for line in text.split("\n")) < 40
    assert compiled(tmp_path, made)(0, [np.array([5], np.int32)]).tolist() == [5 + 299 * 150]


WEIGHTED = """\
namespace km {

#ifndef KM_TYPE_Struct_x_w_on_34f956d4
#define KM_TYPE_Struct_x_w_on_34f956d4
struct __attribute__((packed, aligned(4))) Struct_x_w_on_34f956d4 {
  f32 x;
  f16 w;
  u8 on;
  u8 pad_8[1];
};
static_assert(sizeof(Struct_x_w_on_34f956d4) == 8, "layout of Struct_x_w_on_34f956d4");
#endif

// weighted(p: Point, n: int32) -> float32
struct Op {
  struct Captures {
    f64 limit_;
  };
  Captures captured;

  Op() = default;
  KM_INL explicit Op(const void* packed)
      : captured{element<f64>::load((const char*)packed + 0)} {}

  KM_INL f32 half_(f16 w_) const {
    return f32(f16(f32(w_) * f32(f16(0.5f))));
  }

  KM_INL f32 operator()(Struct_x_w_on_34f956d4 p_, i32 n_) const {
    f32 total_;
    i64 i_;
    total_ = 0.0f;
    {
      const i64 start1 = 0L, step1 = 2L;
      const u64 turns1 = turns_of(start1, i64(n_), step1);
      for (u64 turn1 = 0; turn1 < turns1; ++turn1) {
        i_ = i64(u64(start1) + turn1 * u64(step1));
        if ((total_ > f32(captured.limit_)) | (p_.on != 0)) {
          break;
        } else {
          total_ = total_ + p_.x * f32(i_);
        }
      }
    }
    return sub(total_, half_(p_.w));
  }
};

}  // namespace km
"""


def weighted() -> ir.Program:
    point = struct({"x": float32, "w": float16, "on": bool_}, name="Point").__kernelmill_struct__
    half = FunctionBuilder("half", [("w", float16)])
    half.return_(half.cast(half.apply("mul", half.param(0), half.const(0.5)), float32))
    helper = half.finish()
    f = FunctionBuilder("weighted", [("p", point), ("n", int32)])
    total, i = f.declare("total", float32), f.declare("i", weak_int)
    f.assign(total, f.const(0))
    with f.block() as leave:
        f.break_()
    with f.block() as more:
        scaled = f.apply("mul", f.field(f.param(0), "x"), f.local(i))
        f.assign(total, f.apply("add", f.local(total), scaled))
    large = f.apply("gt", f.local(total), f.capture(0, weak_float))
    stop = f.select(large, f.const(value=True), f.field(f.param(0), "on"))
    with f.block() as body:
        f.if_(stop, leave, more)
    f.for_(i, (f.const(0), f.param(1), f.const(2)), body)
    f.return_(f.apply("sub", f.local(total), f.call(helper, [f.field(f.param(0), "w")])))
    return ir.Program((helper, f.finish()), (("limit", weak_float),))


def test_the_text_is_readable_and_always_the_same():
    operator = print_program(weighted(), HOST)
    assert operator.text == WEIGHTED
    assert print_program(weighted(), HOST) == operator
    assert operator.includes == ("base.hpp", "scalar.hpp")
    assert operator.result_spelling == "km::f32"
    assert operator.parameter_spellings == ("km::Struct_x_w_on_34f956d4", "km::i32")


def test_spellings_of_types():
    pair = TupleType((float32, weak_int))
    assert type_spelling(pair, qualified=True) == "km::tuple2<km::f32, km::i64>"
    assert type_spelling(bool_, qualified=True) == "bool"
    assert type_spelling(TupleType((pair, bool_))) == "tuple2<tuple2<f32, i64>, bool>"


# ----------------------------------------------------------------------------- conversions


def test_an_integer_part_has_no_negative_zero(tmp_path: Path):
    # The compiler knows that a half is no infinity of int64, and could truncate it as a float.
    def write(f: FunctionBuilder, through: DType, to: DType) -> Expr:
        return f.cast(f.cast(f.cast(f.param(0), through), int64), to)

    forms = [(float16, float32), (float32, float32), (float64, float64), (float32, float64)]
    values = np.array([-0.25, -0.0, 0.75, -3.5, -0.999, 7.0], np.float16)
    expected = np.array([0.0, 0.0, 0.0, -3.0, 0.0, 7.0])
    library = compiled(
        tmp_path,
        *(
            program([("x", float16)], lambda f, a=a, b=b: write(f, a, b))  # type: ignore[misc]  # bound defaults
            for a, b in forms
        ),
    )
    for index, form in enumerate(forms):
        got = library(index, [values])
        assert np.array_equal(got, expected), form
        assert np.array_equal(np.signbit(got), np.signbit(expected)), form
