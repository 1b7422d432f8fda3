"""Captured arrays in the front end: what is captured and baked, what they mean, what is refused."""

from __future__ import annotations

import functools
import linecache
import re
import types

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import kernelmill as km
import oracle
from kernelmill.compiler import ir
from kernelmill.compiler.arrays import array_type
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.captured import pointers, reader
from kernelmill.compiler.frontend import translate
from kernelmill.compiler.ir_text import ir_text
from kernelmill.compiler.ir_verify import VerifyError, verify
from kernelmill.compiler.kernel_builder import KernelBuilder, written
from kernelmill.compiler.kernel_ir import Cell
from kernelmill.dtypes import bool_, float32, int32, uint64, weak_int

TABLE = np.arange(6, dtype=np.float32)
GRID = np.arange(12, dtype=np.int32).reshape(3, 4)
COUNTS = np.zeros(4, np.int64)
POINTS = np.zeros(3, np.dtype([("x", "f4"), ("n", "i4")]))
HELD = types.SimpleNamespace(table=TABLE, pair=(TABLE, GRID))


def value(function, *args):
    types_ = [km.dtypes.dtype_of(np.asarray(a).dtype) for a in args]
    made = translate(function, types_)
    verify(made.program)
    return oracle.run(made.program, args, oracle.captured(made))


def captured(function, *types_):
    return [(c.name, str(c.array or c.type)) for c in translate(function, types_).captures]


def test_what_is_captured():
    look = lambda i: TABLE[i]
    assert captured(look, int32) == [("TABLE", "float32[:]"), ("TABLE.shape[0]", "weak int")]
    assert captured(lambda i: len(TABLE) + i, int32) == [("TABLE.shape[0]", "weak int")]
    strided = GRID[:, ::2]
    names = [name for name, _ in captured(lambda i: strided[i, 0], int32)]
    assert names == [
        "strided", "strided.shape[0]", "strided.shape[1]", "strided.strides[0]", "strided.strides[1]",
    ]  # fmt: skip
    assert [b.name for b in translate(look, [int32]).baked] == ["type(TABLE)"]


def test_one_array_is_captured_once():
    def other(i):
        return TABLE[i]

    def op(i):
        table = HELD.table
        return other(i) + TABLE[i + 1] + table[0]

    names = [name for name, _ in captured(op, int32)]
    assert names.count("TABLE") == 1
    assert names.count("HELD.table") == 1


@pytest.mark.parametrize("i", [-7, -1, 0, 3, 5, 6, 1000, -(2**62)])
def test_elements_outside_are_zero(i):
    wanted = TABLE[i] if 0 <= i < 6 else 0
    assert value(lambda i: TABLE[i], np.int64(i)) == wanted


@given(st.integers(-2, 4), st.integers(-2, 5))
@settings(max_examples=40, deadline=None)
def test_two_dimensions(i, j):
    wanted = GRID[i, j] if 0 <= i < 3 and 0 <= j < 4 else 0
    assert value(lambda i, j: GRID[i, j], np.int32(i), np.int32(j)) == wanted
    turned = GRID.T[::-1]
    assert value(lambda i, j: turned[j, i], np.int32(i), np.int32(j)) == (
        turned[j, i] if 0 <= i < 3 and 0 <= j < 4 else 0
    )


SAME = {
    "from the end": lambda i: TABLE[-2] + TABLE[i],
    "loop": lambda i: sum((TABLE[0], TABLE[1])) + TABLE[i],
    "attributes": lambda i: GRID.shape[1] * 10 + GRID.ndim + GRID.size + len(GRID) + i,
    "part": lambda i: GRID[1, :][i] + GRID[:, 2][i] + TABLE[2:5][i],
    "flat": lambda i: GRID.flat[i + 3],
    "held": lambda i: HELD.table[i] + HELD.pair[1][0, i],
    "condition": lambda i: TABLE[i] if i < len(TABLE) and TABLE[i] > 0 else -1.0,
    "nested": lambda i: TABLE[GRID[0, i]],
}


@pytest.mark.parametrize("name", SAME)
def test_python_agrees(name):
    for i in range(3):
        assert value(SAME[name], np.int64(i)) == SAME[name](np.int64(i))


def test_loops_and_branches():
    def op(n):
        total = 0.0
        for k in range(len(TABLE)):
            if TABLE[k] > n:
                break
            total += TABLE[k] * 2
        while total > TABLE[-1] + 3:
            total -= TABLE[1]
        return total

    for n in range(7):
        assert value(op, np.int64(n)) == op(n)


FLAGS = np.array([True, False, True])


def test_a_flag_decides():
    def op(i):
        if FLAGS[i]:
            r = 1
        else:
            r = 2
        if FLAGS[i + 1] and r > 1:
            return r + 10
        return r

    assert [value(op, np.int64(i)) for i in range(4)] == [1, 12, 1, 2]


class Holder:
    def __init__(self, table):
        self.table = table

    def __call__(self, i):
        return self.table[i] + 1


def test_ways_to_hold_an_array():
    def given(table, i, other=GRID):
        return table[i] + other[1, i]

    single = np.array(2.5)
    assert value(functools.partial(given, TABLE), np.int64(2)) == TABLE[2] + GRID[1, 2]
    assert value(Holder(TABLE), np.int64(3)) == TABLE[3] + 1
    assert value(lambda i: single[()] * i, np.int64(3)) == 7.5


def test_changes():
    COUNTS[:] = 0
    POINTS[:] = 0

    def op(i):
        COUNTS[i] = i * 2
        COUNTS[0] += COUNTS[i] + 1
        POINTS[1].n = i
        POINTS[1].x += 0.5
        COUNTS[9] = 5  # outside
        old = km.atomic.add(COUNTS, 3, 4)
        return old + km.atomic.add(COUNTS, 9, 1) * 0

    assert value(op, np.int64(2)) == 0
    assert value(op, np.int64(2)) == 4
    assert COUNTS.tolist() == [10, 0, 4, 8]
    assert POINTS[1]["n"] == 2
    assert POINTS[1]["x"] == 1.0


def test_who_writes_is_known():
    def op(i):
        COUNTS[i] = 1
        return TABLE[i]

    made = translate(op, [int32])
    assert {c.name: c.written for c in made.captures if c.array} == {"COUNTS": True, "TABLE": False}
    assert len(written(made.program)) == 1


def test_addresses_are_left_to_whoever_launches():
    gain, table = 2.5, TABLE
    op = lambda i: table[i] * gain
    made = translate(op, [int32])
    read, size = reader(made.captures, made.baked)
    found = pointers(made.captures)
    assert [(p.name, p.written, str(p.type)) for p in found] == [("table", False, "float32[:]")]
    packed = read(op)
    assert len(packed) == size
    assert packed[found[0].offset : found[0].offset + 8] == bytes(8)
    assert found[0].take(op) is TABLE
    table = TABLE.astype(np.float64)
    assert read(op) is None  # another type of elements
    table = TABLE[::2]
    assert read(op) is None  # not contiguous
    table = np.zeros(2, np.float32)
    assert read(op)


def test_kinds_of_arrays():
    kinds = {str(array_type(a)) for a in (GRID, GRID[::-1], GRID.T)}
    assert kinds == {"int32[:, :]"}
    assert array_type(GRID) is array_type(GRID.copy())
    assert array_type(GRID) is not array_type(GRID.T)
    for other in ([1], np.ma.zeros(3), np.array(["a"]), np.array([None]), 3, int, np.float32(1)):
        assert array_type(other) is None

    class Device:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (2, 3), "typestr": "<f4", "data": (16, False), "strides": (12, 4)}

    assert array_type(Device()) is array_type(np.zeros((2, 3), np.float32))
    assert array_type(Device) is None


@pytest.mark.parametrize("align", [False, True])
def test_structs_of_a_device(align):
    """What fills their gaps has no name in the interface."""
    layout = np.dtype([("key", "u1"), ("value", "f8"), ("flag", "?")], align=align)

    class Device:
        __cuda_array_interface__ = {  # noqa: RUF012 - the protocol wants a dict
            "shape": (3,), "typestr": layout.str, "descr": layout.descr, "data": (16, False),
        }  # fmt: skip

    assert array_type(Device()) is array_type(np.zeros(3, layout))


def test_functions_without_text_read_arrays():
    space = {"TABLE": TABLE}
    exec("def op(i):\n    return TABLE[i] + TABLE[-1] * len(TABLE)", space)
    op = space["op"]
    assert value(op, np.int64(3)) == op(3)


def test_text():
    look = lambda i: TABLE[i]
    assert ir_text(translate(look, [int32]).program) == (
        "# captured: TABLE: uint64, TABLE_shape_0: weak int\n"
        "def op(i: int32) -> float32:\n"
        "    i_2: weak int\n"
        "    t: float32\n"
        "    i_2 = weak int(i)\n"
        "    t = load(cell(TABLE, (captured.TABLE, mul(i_2, 4), "
        "lt(uint64(i_2), uint64(captured.TABLE_shape_0))), ()))\n"
        "    return t"
    )


REFUSED = {
    "TABLE + i": (
        "`TABLE` is an array: an operator computes with its elements",
        "write `TABLE[i]`",
    ),
    "GRID[i]": ("`GRID` has 2 dimensions, got 1 index", "write `GRID[i, j]` for an element"),
    "GRID[i, :]": ("`GRID` is an array: an operator computes with its elements", "write `GRID[i]`"),
    "TABLE[0.5]": ("an index is an integer, got weak float", "write int(i) to drop the fraction"),
    "TABLE[i:9:2][0]": ("a slice has no step here", "take `start:stop`"),
    "TABLE.sum()": ("an array has no attribute `sum`", "compute it outside"),
    "TABLE.T": ("an array has no attribute `T`", "exchange the indices"),
    "GRID.T.flat[0]": ("an array has no attribute `T`", "exchange the indices"),
    "TABLE[0].x": ("float32 has no field `x`", "elements of this array are numbers"),
    "km.atomic.add(TABLE, (0, 1), 1.0)": (
        "`TABLE` has 1 dimension, got 2 indices",
        "pass one index",
    ),
    "km.atomic.add(i, 0, 1)": ("`km.atomic.add` takes an array first", "write km.atomic.add(x, i"),
    "km.atomic.or_(TABLE, 0, 1)": ("`km.atomic.or_` is not defined for float32", "it takes arrays"),
    "km.barrier()": ("`km.barrier` exists only inside a kernel", "write a kernel"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text):
    space = {"km": km, "TABLE": TABLE, "GRID": GRID}
    source = f"op = lambda i: {text}"
    linecache.cache["<refused>"] = (len(source), None, [source], "<refused>")
    exec(compile(source, "<refused>", "exec"), space)
    op = space["op"]
    with pytest.raises(km.OperatorError) as caught:
        translate(op, [int32])
    message, hint = REFUSED[text]
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_wholes_are_not_assigned():
    def op(i):
        GRID[0, :] = i
        return i

    with pytest.raises(km.OperatorError, match="a part of an array cannot be assigned as a whole"):
        translate(op, [int32])


FAULTS = {
    "address": (weak_int, weak_int, bool_),
    "distance": (uint64, int32, bool_),
    "test": (uint64, weak_int, int32),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_verify_knows_cells(fault):
    build = KernelBuilder("f", [("x", int32)])
    base, distance, within = FAULTS[fault]
    place = (build.capture(0, base), build.capture(1, distance), build.capture(2, within))
    build.return_(build.load(Cell("t", place, (), float32)))
    program = ir.Program((build.finish(),), tuple(zip("abc", FAULTS[fault], strict=True)))
    with pytest.raises(VerifyError, match=re.escape("where an element of t lies")):
        verify(program)


def test_verify_wants_captured_addresses():
    build = KernelBuilder("f", [("x", uint64)])
    place = (build.param(0), build.const(0), build.const(True))
    build.return_(build.load(Cell("t", place, (), float32)))
    with pytest.raises(VerifyError, match="t is no captured array"):
        verify(ir.Program((build.finish(),)))


def test_plain_functions_have_no_effects():
    build = FunctionBuilder("f", [("x", int32)])
    build.return_(build.param(0))
    assert written(ir.Program((build.finish(),))) == set()
