"""What compiles another kernel and what does not; the quick way of a second call; memory and IR."""

from __future__ import annotations

import dataclasses
import random
import types

import numpy as np
import pytest

import kernelmill as km
from kernelmill.compiler import ir
from kernelmill.compiler.frontend.kernel_program import (
    ArrayArgument,
    ScalarArgument,
    translate_kernel,
)
from kernelmill.compiler.ir_verify import VerifyError
from kernelmill.compiler.kernel_ir import Array, Below, Effect, Load, Place, Special, Store
from kernelmill.compiler.kernel_verify import verify_kernel
from kernelmill.compiler.narrow import Exact
from kernelmill.dtypes import float32, int32, uint8, weak_int
from kernelmill.kernels import launching, quick
from kernelmill.runtime.cuda.stream import StreamHandle

X, XX = "float32[:]", "float32[:, :]"
FACTOR = 3
STATE = types.SimpleNamespace(scale=2.0)


@km.kernel
def scaled(x, out, n):
    for i in km.grid_range(len(x)):
        out[i] = x[i] * FACTOR + n


def variants(kernel):
    return sum(map(len, kernel._variants.values()))


def fresh(kernel):
    return km.kernel(kernel.function)


# ----------------------------------------------------------------------------- variants


def test_arguments_of_the_same_kind_share_a_kernel():
    kernel = fresh(scaled)
    first = kernel.specialize(X, X, 1)
    assert kernel.specialize(np.zeros(9, np.float32), X, 5) is first
    assert kernel.specialize(X, X, 1 << 30) is first
    assert variants(kernel) == 1


@pytest.mark.parametrize(
    "args",
    [
        ("float64[:]", X, 1),
        (np.zeros(9, np.float32)[::2], X, 1),
        (X, X, -1),
        (X, X, 1 << 40),
        (X, X, 1.0),
        (X, X, np.int32(1)),
        (X, X, True),
    ],
    ids=str,
)
def test_other_kinds_compile_another_one(args):
    kernel = fresh(scaled)
    first = kernel.specialize(X, X, 1)
    assert kernel.specialize(*args) is not first
    assert kernel.specialize(X, X, 1) is first


def test_the_shape_of_a_block_and_of_a_grid_shape_the_code():
    kernel = fresh(scaled)
    first = kernel.specialize(X, X, 1, block=64)
    assert kernel.specialize(X, X, 1, block=(64, 1)) is first
    assert kernel.specialize(X, X, 1, block=64, grid=900) is first
    assert kernel.specialize(X, X, 1, block=128) is not first
    assert kernel.specialize(X, X, 1, block=64, grid=(2, 2)) is not first
    assert kernel.specialize(X, X, 1, block=64, grid=1 << 30) is not first


@pytest.mark.parametrize(
    ("grid", "shape", "covered"),
    [
        (4, (32, 9), (True, True)),
        (4, (33, 9), (False, True)),
        (4, (33, 13), (False, False)),
        ((1, 2), (32, 12), (False, False)),
        ((2, 2), (16, 12), (True, True)),
    ],
)
def test_loops_that_the_grid_covers_make_one_turn(grid, shape, covered):
    def k(x, n):
        height, width = x.shape
        for i in km.grid_range(height):
            if x[i, 0] > 0:
                continue
            x[i, 1] = i
        for j in km.grid_range(-(-width // 3) * 8, unroll=4):
            x[0, j] = 1
        for _ in km.grid_range(n):
            x[0, 0] = 1

    kernel = km.kernel(k)
    given = kernel._bind((np.zeros(shape, np.float32), 3), {})
    variant = kernel._fitting(given, km.LaunchConfig(grid, 8))
    assert [loop.single for loop in loops_of(variant.kernel)] == [*covered, False]
    assert variant.source.count("do {") == sum(covered)
    again = kernel._fitting(given, km.LaunchConfig(grid, 8))
    assert again is variant


def test_a_captured_number_is_a_literal_until_it_changes(monkeypatch):
    kernel = fresh(scaled)
    first = kernel.specialize(X, X, 1)
    assert "* 3.0f" in first.source
    monkeypatch.setitem(globals(), "FACTOR", 5)
    second = kernel.specialize(X, X, 1)
    assert "* 5.0f" in second.source
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert kernel.specialize(X, X, 1) is first
    monkeypatch.setitem(globals(), "FACTOR", 3.0)  # of another type
    assert kernel.specialize(X, X, 1) is not first
    assert variants(kernel) == 3


def test_attributes_and_functions_are_baked_too(monkeypatch):
    def twice(v):
        return 2 * v

    def k(x):
        x[0] = twice(x[0]) * STATE.scale

    kernel = km.kernel(k)
    first = kernel.specialize(X)
    assert kernel.specialize(X) is first
    monkeypatch.setattr(STATE, "scale", 0.5)
    assert kernel.specialize(X) is not first
    monkeypatch.setattr(STATE, "scale", 2.0)
    assert kernel.specialize(X) is first

    twice = lambda v: 3 * v  # noqa: F811 - the cell holds another function now
    assert "3.0f" in kernel.specialize(X).source


def test_overlapping_arrays_are_not_promised_apart():
    x = np.zeros(10, np.float32)
    apart = scaled.specialize(x[:5], x[5:], 1)
    together = scaled.specialize(x[:6], x[5:], 1)
    assert "KM_R" in apart.source
    assert "KM_R" not in together.source
    assert "KM_R" not in scaled.specialize(x, x, 1).source


def test_large_arrays_have_64_bit_indices():
    wide = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), ((1 << 30) + 1,), (0,))
    assert "i64 turn" not in scaled.source(X, X, 1)
    text = scaled.specialize(wide, X, 1).source
    assert "array<const f32, 1, anywhere, i64>" in text
    assert "i64 i_;" in text
    assert "i32 i_;" in scaled.source(X, X, 1)


def test_only_what_is_read_is_passed():
    def k(x, y, n, unused):
        for i in km.grid_range(n):
            y[i, 0] = x[i, 1]

    made = km.kernel(k).specialize(XX, XX, 3, 2.5)
    passed = [(p.kind, p.name, p.dim) for p in made.parameters]
    assert passed == [
        ("data", "x", 0), ("shape", "x", 1), ("data", "y", 0), ("shape", "y", 1),
        ("scalar", "n", 0), ("scalar", "unused", 1),
    ]  # fmt: skip
    strided = km.kernel(k).specialize(np.zeros((4, 4), np.float32).T, XX, 3, 2.5)
    assert [(p.kind, p.name, p.dim) for p in strided.parameters][:3] == [
        ("data", "x", 0), ("stride", "x", 0), ("stride", "x", 1),
    ]  # fmt: skip


def test_floats_are_rounded_once_by_the_host():
    def k(x, a, b):
        x[0] = x[0] * a + b
        x[1] = a / 3

    parameters = km.kernel(k).specialize(X, 0.1, 0.2).parameters
    types_ = {p.name: str(p.type) for p in parameters if p.kind == "scalar"}
    assert types_ == {"a": "float64", "b": "float32"}  # a / 3 is computed in float64


def test_the_text_names_the_users_lines():
    line = scaled.function.__code__.co_firstlineno
    text = scaled.specialize(X, X, 1).text
    assert f'#line {line + 3} "{__file__}"' in text
    assert "#line" not in scaled.source(X, X, 1)


def test_explain_says_what_is_passed_and_baked():
    def k(x, taps: km.static):
        tile = km.shared((4, 5), km.int16)
        own = km.local(3, km.float32)
        tile[0, 0] = taps
        own[0] = FACTOR
        x[0] = own[0] + tile[0, 0]

    assert km.kernel(k).explain(X, 7, block=(8, 4)) == (
        "k, blocks of 8 x 4 x 1 threads\n"
        "passed: address of x\n"
        "memory of its own: tile: shared int16[4, 5], own: local float32[3]\n"
        "baked into the code: FACTOR"
    )


# ----------------------------------------------------------------------------- quick calls


class Buffer:
    def __init__(self, handle):
        self.handle = handle


def array(handle, count=8, dtype=float32):
    return quick.CudaArray(Buffer(handle), (count,), dtype, 0, StreamHandle(0))


def test_a_second_call_is_looked_up_by_what_it_looks_like():
    config = km.LaunchConfig(grid=1, block=32)
    x, y, z = array(0x1000), array(0x2000), array(0x1000, 9)
    key, addresses = quick.look(config, (x, y, 3, 1.5))
    assert addresses == [0x1000, 0x2000]
    assert quick.look(config, (array(0x5000), y, 70, -2.0))[0] == key
    for other in ((z, y, 3, 1.5), (x, y, -3, 1.5), (x, y, 3, 2), (y, array(1, 8, int32), 3, 1.5)):
        assert quick.look(config, other)[0] != key
    assert quick.look(km.LaunchConfig(grid=2, block=32), (x, y, 3, 1.5))[0] != key
    for unusual in (
        (x, True),
        (x, 1 << 40),
        (x, float("nan")),
        (x, np.zeros(3)),
        (3, 4),
        (x, None),
    ):
        assert quick.look(config, unusual) is None


def test_quick_calls_are_refused_where_arrays_overlap_or_captures_changed(monkeypatch):
    kernel = fresh(scaled)
    given = kernel._bind((np.zeros(8, np.float32), np.zeros(8, np.float32), 3), {})
    variant = kernel._variant(given, launching.Shape((32, 1, 1)))
    calls = quick.QuickCalls()
    calls.keep("key", given, variant, "loaded")
    assert calls.get("key", [0, 32]).passed(["a", "b", "c"]) == ["a", 8, "b", "c"]
    assert calls.get("other", [0, 32]) is None
    assert calls.get("key", [0, 31]) is None
    assert calls.get("key", [31, 0]) is None
    monkeypatch.setitem(globals(), "FACTOR", 4)
    assert calls.get("key", [0, 32]) is None


def test_overlapping_calls_are_not_kept():
    x = np.zeros(8, np.float32)
    kernel = fresh(scaled)
    given = kernel._bind((x, x, 3), {})
    variant = kernel._variant(given, launching.Shape((32, 1, 1)))
    calls = quick.QuickCalls()
    calls.keep("key", given, variant, "loaded")
    assert calls.get("key", [0, 100]) is None


# ----------------------------------------------------------------------------- narrow integers


def interpret(value, env):
    """Evaluate an integer expression as the language defines it, exactly where it says so."""
    parts = [interpret(c, env) for c in ir.children(value)]
    match value:
        case ir.Const(number):
            return number
        case ir.Param(index):
            return env[index]
        case ir.Local(name):
            return env[name]
        case Special(name):
            return env[name]
        case Below():
            return parts[0]
        case ir.Cast():
            return wrapped(parts[0], value.type)
        case ir.Apply(op):
            made = OPERATIONS[op](*parts)
            if isinstance(value, Exact):
                assert made == wrapped(made, value.type), "an exact operation overflows"
            return wrapped(made, value.type)
    raise AssertionError(value)


def wrapped(number, type_):
    bits, signed = {"uint32": (32, False), "int32": (32, True), "uint64": (64, False)}.get(
        str(type_), (64, True)
    )
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if signed and low >> (bits - 1) else low


OPERATIONS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "neg": lambda a: -a, "abs": abs, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
}  # fmt: skip


def expression(pick, depth):
    if depth == 0:
        return pick.choice(["n", "m", "t", "i", str(pick.randint(-40, 1 << 20))])
    a, b = (expression(pick, depth - 1) for _ in range(2))
    form = pick.choice(["({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})",
                        "({} // {})", "({} % {})", "-{}", "abs({})"])  # fmt: skip
    return form.format(a, b)


def test_narrow_integers_have_the_values_of_wide_ones():
    pick = random.Random(5)
    narrowed = 0
    for _ in range(150):
        text = expression(pick, 3)
        source = f"def k(out, n, m, t):\n    i = km.threadIdx.x\n    out[0] = {text}\n"
        import linecache

        linecache.cache["<n>"] = (len(source), None, source.splitlines(keepends=True), "<n>")
        space = {"km": km}
        exec(compile(source, "<n>", "exec"), space)
        limits = [(0, 1 << 30), (-(1 << 30), 1 << 30), None]
        arguments = [
            ArrayArgument(Array("out", km.int64, 1, "global")),
            *(ScalarArgument(n, weak_int, x) for n, x in zip("nmt", limits, strict=True)),
        ]
        kernel = translate_kernel(space["k"], arguments, block=(64, 1, 1)).kernel
        body = kernel.program.entry.body
        narrowed += any(
            n.type == int32 for s in body for o in ir.operands(s) for n in ir.walk_expressions(o)
        )
        for _ in range(20):
            values = [pick.choice([0, 1, 1 << 30, pick.randint(0, 1 << 30)]),
                      pick.choice([-(1 << 30), 1 << 30, pick.randint(-(1 << 30), 1 << 30)]),
                      pick.randint(-(1 << 63), (1 << 63) - 1)]  # fmt: skip
            env = {0: values[0], 1: values[1], 2: values[2], "threadIdx.x": pick.randint(0, 63)}
            wide = evaluate_python(text, values, env["threadIdx.x"])
            assert run(body, dict(env)) == wide, (text, values)
    assert narrowed > 50


def run(body, env):
    for statement in body:
        match statement:
            case ir.Assign(name, value):
                env[name] = interpret(value, env)
            case Store(value=value):
                return interpret(value, env)
    raise AssertionError("nothing is stored")


class Wrapping(int):
    """A Python integer of 64 bits whose divisions by zero give zero."""

    def __new__(cls, value):
        return super().__new__(cls, wrapped(int(value), weak_int))


def _binary(name):
    def method(self, other):
        return Wrapping(OPERATIONS[name](int(self), int(other)))

    return method


for _name, _op in (
    ("add", "add"),
    ("sub", "sub"),
    ("mul", "mul"),
    ("floordiv", "floordiv"),
    ("mod", "mod"),
):
    setattr(Wrapping, f"__{_name}__", _binary(_op))
Wrapping.__neg__ = lambda self: Wrapping(-int(self))
Wrapping.__abs__ = lambda self: Wrapping(abs(int(self)))


def evaluate_python(text, values, thread):
    import re

    made = re.sub(r"(?<![\w.])(\d+)", r"W(\1)", text)
    names = {"n": values[0], "m": values[1], "t": values[2], "i": thread}
    return int(eval(made, {"W": Wrapping, **{k: Wrapping(v) for k, v in names.items()}}))


def loops_of(kernel):
    return [s for s in ir.walk_statements(kernel.program.entry.body) if isinstance(s, ir.For)]


def test_loops_over_threads_run_in_32_bits_where_nothing_can_overflow():
    def k(x, n):
        for i in km.grid_range(n):
            x[i] = 0

    small = km.kernel(k).specialize(X, 5).kernel
    (loop,) = loops_of(small)
    assert loop.plain
    assert loop.start.type == loop.stop.type == loop.step.type == int32
    large = km.kernel(k).specialize(X, 1 << 40).kernel
    (loop,) = loops_of(large)
    assert loop.start.type == weak_int


# ----------------------------------------------------------------------------- verification


def some_kernel():
    def k(x, y):
        y[km.threadIdx.x] = x[km.threadIdx.x]

    arrays = [ArrayArgument(Array(n, float32, 1, "global")) for n in "xy"]
    return translate_kernel(k, arrays, block=(32, 1, 1)).kernel


def changed(kernel, change):
    """Return a kernel with each effect changed."""
    entry = kernel.program.entry
    body = tuple(change(s) if isinstance(s, Effect) else s for s in entry.body)
    program = ir.Program((dataclasses.replace(entry, body=body),))
    return dataclasses.replace(kernel, program=program)


BROKEN = [
    ("unknown array z", lambda p: dataclasses.replace(p, array="z")),
    ("2 indices of", lambda p: dataclasses.replace(p, index=p.index * 2)),
    ("index of type", lambda p: dataclasses.replace(p, index=(ir.Const(0.5, float32),))),
    (
        "unknown index threadIdx.w",
        lambda p: dataclasses.replace(p, index=(Special("threadIdx.w"),)),
    ),
    ("has no field a", lambda p: dataclasses.replace(p, fields=("a",))),
    ("holds float32, not uint8", lambda p: dataclasses.replace(p, type=uint8)),
]


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=[r for r, _ in BROKEN])
def test_verify_kernel_refuses(rule, change):
    kernel = some_kernel()
    verify_kernel(kernel)

    def broken(statement):
        return dataclasses.replace(statement, place=change(statement.place))

    with pytest.raises(VerifyError, match=rule.replace("(", "\\(")):
        program = changed(kernel, broken)
        if "uint8" in rule:
            entry = program.program.entry
            names = tuple((n, uint8) for n, _ in entry.locals)
            body = tuple(
                dataclasses.replace(s, value=ir.Local(entry.locals[0][0], uint8))
                if isinstance(s, Store) else s for s in entry.body
            )  # fmt: skip
            made = dataclasses.replace(entry, locals=names, body=body)
            program = dataclasses.replace(program, program=ir.Program((made,)))
        verify_kernel(program)


def test_verify_kernel_knows_what_may_be_written():
    kernel = some_kernel()
    arrays = tuple(dataclasses.replace(a, readonly=True) for a in kernel.arrays)
    with pytest.raises(VerifyError, match="y is written"):
        verify_kernel(dataclasses.replace(kernel, arrays=arrays))


def test_a_result_must_be_declared():
    kernel = some_kernel()

    def broken(statement):
        if not isinstance(statement, Load):
            return statement
        return dataclasses.replace(statement, name="undeclared")

    with pytest.raises(VerifyError, match="result in undeclared"):
        verify_kernel(changed(kernel, broken))
    assert isinstance(Place("x", (), (), float32), Place)
