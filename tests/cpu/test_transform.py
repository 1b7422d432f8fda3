"""`transform`: element types, arities, several results, Python scalars, structs, given outputs."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
import oracle
from array_layouts import filled, same
from kernelmill.compiler.frontend import translate
from kernelmill.dtypes import dtype_of

pytestmark = pytest.mark.usefixtures("device")

BF16 = np.dtype(ml_dtypes.bfloat16)
REAL = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", BF16, "f4", "f8"]
COMPLEX = ["c8", "c16"]
SIZES = (0, 1, 63, 64, 65, 1000)


def mixed(a: Any, b: Any) -> Any:
    return a * b + a


def interpreted(op: Any, *arrays: np.ndarray) -> list[Any]:
    """What the interpreter of the operator language gives, element by element."""
    program = translate(op, [dtype_of(a.dtype) for a in arrays]).program
    return [oracle.run(program, row) for row in zip(*arrays, strict=True)]


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_element_types(dtype: Any) -> None:
    for size in SIZES:
        a, b = filled((size,), dtype, size), filled((size,), dtype, size + 1)
        same(km.transform((a, b), mixed), mixed(a, b))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers(dtype: str) -> None:
    a, b = filled((65,), dtype, 1), filled((65,), dtype, 2)
    b[:3] = 0, np.inf, np.nan
    same(km.transform((a, b), mixed), np.array(interpreted(mixed, a, b)))
    same(km.transform((a, b), lambda p, q: p / q),
         np.array(interpreted(lambda p, q: p / q, a, b)))  # fmt: skip
    same(km.transform(a, lambda p: p.real), a.real)


PAIRS = [("i1", "u1"), ("i4", "f4"), ("u8", "i8"), ("?", "i2"), ("f2", "i2"), ("f4", "c8"),
         ("f8", "c8"), (BF16, "f4"), ("?", "?"), ("i2", BF16)]  # fmt: skip


def promoted(a: Any, b: Any) -> None:
    x, y = filled((67,), a, 1), filled((67,), b, 2)
    try:
        expected = x + y
    except TypeError:
        with pytest.raises(km.OperatorError, match="no common type"):
            km.transform((x, y), lambda p, q: p + q)
        return
    if BF16 in (x.dtype, y.dtype) and expected.dtype not in (BF16, np.dtype("f4")):
        return  # where ml_dtypes goes beyond the table
    same(km.transform((x, y), lambda p, q: p + q), expected)


@pytest.mark.parametrize(("a", "b"), PAIRS[:-1], ids=str)
def test_promotion(a: Any, b: Any) -> None:
    promoted(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b"),
    list(itertools.combinations(["?", "i1", "i8", "u4", "u8", "f2", "f4", "f8", "c8"], 2)),
)
def test_promotion_of_all_pairs(a: Any, b: Any) -> None:
    promoted(a, b)
    promoted(b, a)


def test_one_to_four_inputs_of_different_types() -> None:
    a, b, c, d = (filled((1000,), t, 7) for t in ("f4", "i2", "f8", "u1"))
    same(km.transform(a, lambda p: p * p), a * a)
    same(km.transform((a, b, c), lambda p, q, r: p + q * r), a + b * c)
    same(km.transform((a, b, c, d), lambda p, q, r, s: (p + q) * r - s), (a + b) * c - d)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("i1", 3), ("u1", 2.5), ("f2", 7), ("f4", 0.1), ("?", 1), ("c8", 2.5), ("f4", 1j),
     ("i4", True), ("i8", 2.5), (BF16, 2)],
    ids=str,
)  # fmt: skip
def test_python_scalars_are_weak(dtype: Any, value: Any) -> None:
    x = filled((65,), dtype, 3)
    same(km.transform((x, value), lambda a, b: a + b), x + value)
    same(km.transform((value, x), lambda a, b: a + b), value + x)


def test_numpy_scalars_are_strong() -> None:
    x = filled((65,), "f4", 3)
    same(km.transform((x, np.float64(0.1)), lambda a, b: a * b), x * np.float64(0.1))


@pytest.mark.parametrize("place", ["itself", "called", "nested"])
def test_python_integers_are_checked_against_what_they_meet(place: str) -> None:
    def plus(p: Any, q: Any) -> Any:
        return p + q

    def outer(p: Any, q: Any) -> Any:
        def inner(r: Any) -> Any:
            return p + r

        return inner(q)

    ops = {
        "itself": lambda a, b: a + b,
        "called": lambda a, b: plus(a, b),
        "nested": outer,
    }
    x = np.arange(3, dtype=np.int8)
    same(km.transform((x, 127), ops[place]), x + np.int8(127))
    with pytest.raises(OverflowError) as caught:
        km.transform((x, 300), ops[place])
    assert str(caught.value) == (
        "Python integer 300 out of bounds for int8\n\nhint: `inputs[1]` meets values of type int8"
    )


def test_python_integers_in_comparisons_are_of_any_size() -> None:
    x = np.arange(3, dtype=np.int8)
    same(km.transform((x, 300), lambda a, b: a < b), np.ones(3, bool))


# ----------------------------------------------------------------------------- several results


def test_several_results() -> None:
    x = filled((1000,), "f4", 1)
    low, high, sign = km.transform(x, lambda a: (a - 1, np.float64(a) * 2, a < 0))
    same(low, x - np.float32(1))
    same(high, x.astype("f8") * 2)
    same(sign, x < 0)


def eight(x: Any) -> Any:
    return x, x + 1, x * 2, x > 3, x - 4, x / 2, x ^ 6, x | 7


def nine(x: Any) -> Any:
    return (*eight(x), x & 8)


def thirteen(x: Any) -> Any:
    return (*nine(x), x + 9, -x, x == 11, x * 0.5)


@pytest.mark.parametrize("op", [eight, nine, thirteen])
def test_more_results_than_templates_have_tuples_for(op: Any) -> None:
    x = filled((70,), "i4", 1)
    for got, expected in zip(km.transform(x, op), op(x), strict=True):
        same(got, expected)
    sums = tuple(km.transform_reduce(x[:5], op, (km.maximum,) * len(op(x))))
    assert sums == tuple(part.max() for part in op(x[:5]))


@pytest.mark.host
@pytest.mark.parametrize("step", [1, 2])  # with the native launcher and without
def test_more_arrays_than_a_call_takes(step: int) -> None:
    names = ", ".join(f"a{index}" for index in range(32))
    last_one = eval(f"lambda {names}: a31")
    with pytest.raises(km.ArgumentError) as caught:
        km.transform((np.zeros(4, "f4")[::step],) * 32, last_one)
    assert str(caught.value) == (
        "a call on the CPU takes at most 32 arrays, inputs and results together; this one has 33"
        "\n\nhint: make structs of what belongs together, or several calls"
    )


def test_several_results_into_given_arrays() -> None:
    x = filled((40, 25), "i4", 1)
    outs = np.zeros((40, 25), "i8"), np.zeros((25, 40), "f4").T
    assert km.transform(x, lambda a: (a + 1, a / 2), out=outs) is outs
    same(outs[0], (x + np.int32(1)).astype("i8"))
    same(outs[1], (x / 2).astype("f4"))


def test_a_result_may_replace_its_input() -> None:
    a, b = filled((1000,), "f4", 1), filled((1000,), "f4", 2)
    wanted = a + b, a - b
    km.transform((a, b), lambda p, q: (p + q, p - q), out=(b, a))
    same(b, wanted[0])
    same(a, wanted[1])


# ----------------------------------------------------------------------------- outputs


@pytest.mark.parametrize(
    ("out", "expected"),
    [("f4", "f4"), ("f2", "f2"), ("c16", "c16"), (BF16, BF16)],
    ids=str,
)
def test_outputs_of_the_same_kind(out: Any, expected: Any) -> None:
    x = filled((100,), "f8", 4)
    made = np.zeros(100, out)
    km.transform(x, lambda a: a / 3, out=made)
    same(made, (x / 3).astype("f4").astype(out) if out is BF16 else (x / 3).astype(out))


def test_integers_wrap_where_the_output_is_narrower() -> None:
    x = filled((100,), "i8", 4)
    made = np.zeros(100, "i2")
    km.transform(x, lambda a: a + 1, out=made)
    same(made, (x + 1).astype("i2"))


# ----------------------------------------------------------------------------- values


def test_nan_and_infinities() -> None:
    x = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e308, 5e-324])
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        expected = a / b - a
    same(km.transform((a, b), lambda p, q: p / q - p), expected)
    same(km.transform((a, b), np.minimum), np.minimum(a, b))


def collatz(n: Any, limit: Any) -> Any:
    steps = 0
    while n > 1 and steps < limit:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def test_a_loop_with_branches() -> None:
    n = np.arange(1, 66, dtype=np.int32)
    limit = np.full(65, 50, np.int32)
    same(km.transform((n, limit), collatz), np.array(interpreted(collatz, n, limit)))
    assert km.transform((n, limit), collatz).tolist() == [
        collatz(int(a), int(b)) for a, b in zip(n, limit, strict=True)
    ]


@pytest.mark.host
def test_large_results_lie_in_memory_that_is_used_again() -> None:
    x = filled((1 << 17,), "f8", 5)
    first = km.transform(x, lambda a: a + 1)
    assert first.flags.writeable
    at = first.ctypes.data
    assert at % 64 == 0
    del first
    second = km.transform(x, lambda a: a + 1)
    assert second.ctypes.data == at
    same(second, x + 1)


@given(st.data())
@settings(max_examples=40)
def test_any_bits(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 130))
    raw = data.draw(st.binary(min_size=4 * count, max_size=4 * count))
    other = data.draw(st.binary(min_size=4 * count, max_size=4 * count))
    for dtype in ("f4", "i4", "u1", "f2"):
        x, y = np.frombuffer(raw, dtype), np.frombuffer(other, dtype)
        with np.errstate(all="ignore"):
            same(km.transform((x, y), mixed), mixed(x, y))


# ----------------------------------------------------------------------------- structs


@km.struct
class RGB:
    r: km.uint8
    g: km.uint8
    b: km.uint8


@km.struct
class Pixel:
    color: RGB
    alpha: km.float32
    seen: km.bool_


PACKED = km.struct(np.dtype([("flag", "?"), ("x", "f8"), ("n", "i2")]), name="Packed")
ALIGNED = km.struct(np.dtype([("flag", "?"), ("x", "f8"), ("n", "i2")], align=True), name="Aligned")


def records(dtype: np.dtype, count: int) -> np.ndarray:
    made = np.zeros(count, dtype)
    for k, name in enumerate(dtype.names or ()):
        inner = dtype[name]
        made[name] = records(inner, count) if inner.names else filled((count,), inner, k)
    return made


def test_fields_are_read() -> None:
    x = records(RGB.dtype, 1000)
    found = km.transform(x, lambda p: 0.299 * p.r + 0.587 * p.g + 0.114 * p.b)
    same(found, 0.299 * x["r"].astype("f8") + 0.587 * x["g"] + 0.114 * x["b"])


@pytest.mark.parametrize("struct", [PACKED, ALIGNED], ids=lambda s: s.__name__)
def test_packed_and_aligned_records(struct: Any) -> None:
    for size in (1, 65):
        x = records(struct.dtype, size)
        found = km.transform(x, lambda p: struct(not p.flag, p.x * 2, p.n + 1))
        assert found.dtype == struct.dtype
        same(found["flag"], ~x["flag"])
        same(found["x"], x["x"] * 2)
        same(found["n"], x["n"] + np.int16(1))


def test_records_are_made_of_scalars_and_nest() -> None:
    r, alpha = filled((100,), "u1", 1), filled((100,), "f4", 2)
    made = km.transform((r, alpha), lambda v, a: Pixel(RGB(v, v // 2, 255 - v), a, a > 0))
    assert made.dtype == Pixel.dtype
    same(made["color"]["g"], r // 2)
    same(made["color"]["b"], 255 - r)
    same(made["alpha"], alpha)
    same(made["seen"], alpha > 0)
    back, light = km.transform(made, lambda p: (p.color, p.color.r + p.alpha))
    assert back.dtype == RGB.dtype
    same(back, made["color"].astype(RGB.dtype))
    same(light, r + alpha)


def test_a_tuple_stands_for_a_record_inside_another() -> None:
    x = records(Pixel.dtype, 100)

    def turned(color: Any) -> Any:
        return color.b, color.r, color.g

    def turn(p: Any) -> Any:
        kept = (p.color.g, p.color.b, p.color.r) if p.seen else turned(p.color)
        return Pixel(kept, alpha=p.alpha, seen=False)

    found, seen = km.transform(x, turn), x["seen"]
    for name, (a, b) in {"r": ("g", "b"), "g": ("b", "r"), "b": ("r", "g")}.items():
        same(found["color"][name], np.where(seen, x["color"][a], x["color"][b]))
    same(found["alpha"], x["alpha"])
    with pytest.raises(km.OperatorError, match=r"expects RGB, got \(uint8, float32\)"):
        km.transform(x, lambda p: Pixel((p.color.r, p.alpha), p.alpha, p.seen))


def test_records_of_a_dict_and_in_place() -> None:
    point = km.struct({"x": "float32", "n": "int64"}, name="Point")
    x = records(point.dtype, 65)
    wanted = x["x"] + x["n"].astype("f4")
    km.transform(x, lambda p: point(p.x + np.float32(p.n), p.n), out=x)
    same(x["x"], wanted)


def test_records_of_strided_arrays() -> None:
    x = records(PACKED.dtype, 300).reshape(20, 15).T[::-2]
    same(km.transform(x, lambda p: p.x + p.n), x["x"] + x["n"])


@pytest.mark.host
def test_one_field_as_an_array() -> None:
    x = records(PACKED.dtype, 300)
    same(km.transform(x["x"], lambda v: v + 1), x["x"] + 1)  # its strides are no multiple of 8
    km.transform(x["n"], lambda v: v * 2, out=x["n"])
    same(x["n"], records(PACKED.dtype, 300)["n"] * np.int16(2))


def test_a_tuple_of_all_fields_is_a_struct() -> None:
    kind = np.dtype([("key", "i4"), ("value", "f8")])
    out = np.zeros(5, kind)
    km.transform(np.arange(5), lambda i: (i, i * 0.5), out=out)
    assert out.tolist() == [(i, i * 0.5) for i in range(5)]
    with pytest.raises(km.ArgumentError, match="lambda has 3 results, `out` has 1 arrays"):
        km.transform(np.arange(5), lambda i: (i, i, i), out=out)
    with pytest.raises(km.ArgumentError, match="lambda has 2 results, `out` has 1 arrays"):
        km.transform(np.arange(5), lambda i: (i * 0.5, i), out=out)
