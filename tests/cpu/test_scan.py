"""Scans: the tree bit for bit, types, first values, axes and layouts, in place, faults."""

from __future__ import annotations

import operator
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
import oracle
from array_layouts import filled, same
from kernelmill import iterators
from reference_tree import scan_tree

pytestmark = pytest.mark.usefixtures("device")

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", BF16, "f4", "f8", "c8", "c16"]
SAMPLED = [pytest.param(t, marks=() if t in ("i2", "f2", "c16") else pytest.mark.slow)
           for t in TYPES]  # fmt: skip
ORACLE = {"add": "add", "multiply": "mul", "minimum": "minimum", "maximum": "maximum"}
# Both sides of a run, a row, a part; a tile of values of 4 bytes has 6144 elements.
SMALL = (0, 1, 3, 4, 5, 31, 63, 64, 65, 127, 128, 129, 767, 768, 769)
TILE = 6144


def accumulator_of(name: str, dtype: np.dtype) -> np.dtype:
    if name in ("add", "multiply"):
        wide = {"b": "i8", "i": "i8", "u": "u8"}.get(dtype.kind)
        return np.dtype(wide or ("f4" if dtype in (np.float16, BF16) else dtype))
    return dtype


def result_of(name: str, dtype: np.dtype) -> np.dtype:
    found = accumulator_of(name, dtype)
    return dtype if dtype in (np.float16, BF16) else found


def expected(name: str, x: np.ndarray, *, init: Any = None, exclusive: bool = False) -> np.ndarray:
    """Scan one sequence as the page of the tree says."""
    wide = x.astype(accumulator_of(name, x.dtype))
    start = None if init is None else wide.dtype.type(init)
    with np.errstate(all="ignore"):
        made = scan_tree(
            list(wide),
            lambda a, b: oracle.apply(ORACLE[name], (a, b)),
            value_bytes=wide.itemsize,
            init=start,
            exclusive=exclusive,
        )
        return np.array(made, wide.dtype).astype(result_of(name, x.dtype))


@pytest.mark.parametrize("dtype", SAMPLED, ids=str)
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_scans_follow_the_tree(name: str, dtype: Any) -> None:
    op = getattr(km, name)
    for size in SMALL:
        x = filled((size,), np.dtype(dtype), size)
        same(km.inclusive_scan(x, op), expected(name, x))
        if name == "add":
            same(km.exclusive_scan(x, op, init=3), expected(name, x, init=3, exclusive=True))


@pytest.mark.parametrize("size", [TILE - 1, TILE, TILE + 1, 3 * TILE + 5])
def test_tiles_follow_the_tree(size: int) -> None:
    x = filled((size,), np.dtype("f4"), 1)
    same(km.inclusive_scan(x), expected("add", x))
    same(km.exclusive_scan(x, init=0.5), expected("add", x, init=0.5, exclusive=True))


def test_groups_of_tiles_follow_the_tree() -> None:
    x = np.random.default_rng(0).normal(size=3072 * 131 + 7)
    found = km.inclusive_scan(x)
    wanted = scan_tree(x.tolist(), operator.add, value_bytes=8)
    np.testing.assert_array_equal(found, wanted)
    found = km.exclusive_scan(x, init=1.5)
    np.testing.assert_array_equal(
        found, scan_tree(x.tolist(), operator.add, value_bytes=8, init=1.5, exclusive=True)
    )


def later(a: Any, b: Any) -> Any:
    return a * 0.5 + b


def test_the_order_of_a_python_operator_is_that_of_the_tree() -> None:
    """An operator that is not even associative shows which pairs were combined."""
    for size in (5, 200, 7000):
        x = np.random.default_rng(size).normal(size=size)
        found = km.inclusive_scan(x, later)
        np.testing.assert_array_equal(found, scan_tree(x.tolist(), later, value_bytes=8))
        found = km.exclusive_scan(x, later, init=2.0)
        wanted = scan_tree(x.tolist(), later, value_bytes=8, init=2.0, exclusive=True)
        np.testing.assert_array_equal(found, wanted)


@km.struct
class Affine:
    """A map x -> a * x + b."""

    a: km.int64
    b: km.int64


def after(p: Any, q: Any) -> Any:
    return Affine(p.a * q.a, p.b * q.a + q.b)


@km.struct
class Matrix:
    """64 bytes."""

    a: km.float64
    b: km.float64
    c: km.float64
    d: km.float64
    e: km.float64
    f: km.float64
    g: km.float64
    h: km.float64


def sums(p: Any, q: Any) -> Any:
    return Matrix(p.a + q.a, p.b + q.b, p.c + q.c, p.d + q.d, q.e, p.f, max(p.g, q.g), p.h + q.h)


@pytest.mark.parametrize("size", [1, 33, 1537, 4000])
def test_operators_on_structs_keep_the_order(size: int) -> None:
    x = np.zeros(size, Affine.dtype)
    rng = np.random.default_rng(size)
    x["a"], x["b"] = rng.integers(-3, 4, size), rng.integers(-9, 9, size)
    a, b, want = 1, 0, []
    for p, q in zip(x["a"].tolist(), x["b"].tolist(), strict=True):
        a, b = a * p, b * p + q
        a, b = (a + 2**63) % 2**64 - 2**63, (b + 2**63) % 2**64 - 2**63
        want.append((a, b))
    assert km.inclusive_scan(x, after).tolist() == want
    start = np.zeros((), x.dtype)
    start["a"] = 1
    assert km.exclusive_scan(x, after, init=start[()]).tolist() == [(1, 0), *want[:-1]]


def test_structs_of_64_bytes() -> None:
    size = 1100
    x = np.zeros(size, Matrix.dtype)
    for name in "abcdefgh":
        x[name] = np.random.default_rng(ord(name)).integers(0, 9, size)
    found = km.inclusive_scan(x, sums)
    for name in "abcdh":
        np.testing.assert_array_equal(found[name], np.cumsum(x[name]))
    np.testing.assert_array_equal(found["e"], x["e"])
    np.testing.assert_array_equal(found["f"], np.full(size, x["f"][0]))
    np.testing.assert_array_equal(found["g"], np.maximum.accumulate(x["g"]))


# ----------------------------------------------------------------------------- starts, types, places


def test_an_identity_starts_exclusive_scans() -> None:
    x = np.array([3, 1, 2], np.int32)
    assert km.exclusive_scan(x).tolist() == [0, 3, 4]
    assert km.exclusive_scan(x, km.multiply).tolist() == [1, 3, 3]
    found = km.exclusive_scan(x.astype(np.float32), km.maximum)
    assert found.tolist() == [-np.inf, 3, 3]


def test_init_stands_before_the_first_element() -> None:
    x = np.arange(1, 2000, dtype=np.int64)
    wanted = np.cumsum(x)
    np.testing.assert_array_equal(km.inclusive_scan(x, init=7), wanted + 7)
    np.testing.assert_array_equal(km.inclusive_scan(x, init=np.array(7)), wanted + 7)
    assert km.inclusive_scan(np.array(["x"] * 2, "U1").view("i4"), init=0.5).dtype == np.float64
    assert km.inclusive_scan(x[:0], init=7).shape == (0,)


@pytest.mark.host
def test_an_init_in_a_tensor_of_any_type() -> None:
    torch = pytest.importorskip("torch")
    for name in ("bfloat16", "float16", "int8", "float64"):
        type_ = getattr(torch, name)
        found = km.inclusive_scan(torch.ones(3, dtype=type_), init=torch.tensor(2, dtype=type_))
        assert found.tolist() == [3, 4, 5]


def test_dtype_and_out_decide_the_types() -> None:
    x = np.full(300, 100, np.int8)
    assert km.inclusive_scan(x).dtype == np.int64
    np.testing.assert_array_equal(km.inclusive_scan(x, dtype=np.int8), np.cumsum(x, dtype=np.int8))
    out = np.zeros(300, np.int32)
    assert km.inclusive_scan(x, out=out) is out
    np.testing.assert_array_equal(out, np.cumsum(x, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_in_place(dtype: str) -> None:
    for size in (10, 3 * TILE + 1):
        x = filled((size,), np.dtype(dtype), 3)
        wanted = km.inclusive_scan(x, dtype=dtype)
        again = x.copy()
        assert km.inclusive_scan(again, dtype=dtype, out=again) is again
        same(again, wanted)


def test_an_output_that_lies_beside_the_input_is_as_good_as_any() -> None:
    base = np.arange(2000, dtype=np.int64)
    wanted = np.cumsum(base[:-1])
    km.inclusive_scan(base[:-1], out=base[1:])
    np.testing.assert_array_equal(base[1:], wanted)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("turn", [False, True])
def test_axes_and_layouts(axis: int, turn: bool) -> None:
    x = np.random.default_rng(2).integers(0, 9, (5, 40, 30))
    x = x.transpose(2, 0, 1)[::-1, :, ::2] if turn else x
    np.testing.assert_array_equal(km.inclusive_scan(x, axis=axis), np.cumsum(x, axis=axis))
    out = np.zeros(x.shape[::-1], np.int64).T
    assert km.inclusive_scan(x, km.maximum, axis=axis, out=out) is out
    np.testing.assert_array_equal(out, np.maximum.accumulate(x, axis=axis))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 1000), (0, 1)), ((2, 2 * TILE + 3), (1,)), ((300, 4), (0, 1)), ((0, 5), (0, 1)), ((4, 0), (0, 1))],
)  # fmt: skip
def test_sequences_of_any_length(shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).integers(0, 9, shape).astype(np.int32)
    for axis in axes:
        np.testing.assert_array_equal(km.inclusive_scan(x, axis=axis), np.cumsum(x, axis=axis))
        found = km.exclusive_scan(x, axis=axis, init=4)
        wanted = np.cumsum(x, axis=axis) - x + 4
        np.testing.assert_array_equal(found, wanted)


def test_views_at_odd_places() -> None:
    x = np.arange(TILE + 100, dtype=np.int32)
    for start, step in ((1, 1), (3, 1), (0, 2), (5, -1)):
        part = x[start::step]
        np.testing.assert_array_equal(km.inclusive_scan(part), np.cumsum(part, dtype=np.int64))


def test_a_zero_stride_repeats_an_element() -> None:
    x = np.broadcast_to(np.int64(3), (500,))
    np.testing.assert_array_equal(km.inclusive_scan(x), 3 * np.arange(1, 501))


def test_captured_scalars_change_from_call_to_call() -> None:
    x = np.ones(50)
    for factor in (1.0, 0.5, 2.0):

        def op(a: Any, b: Any) -> Any:
            return a * factor + b

        np.testing.assert_array_equal(
            km.inclusive_scan(x, op), scan_tree(x.tolist(), op, value_bytes=8)
        )


@pytest.mark.not_on("emulator")
def test_operators_in_cpp_have_no_bits_of_every_device() -> None:
    op = km.RawOp(
        cpp="__device__ float joined(float a, float b) { return a + b; }",
        name="joined",
        arguments=(km.float32, km.float32),
        result=km.float32,
    )
    x = np.ones(100, np.float32)
    np.testing.assert_array_equal(km.inclusive_scan(x, op), np.arange(1, 101))
    with fails(km.OperatorError, "determinism='device_to_device' with joined: joined is C++"):
        km.inclusive_scan(x, op, determinism="device_to_device")


def test_plans() -> None:
    x = np.arange(10, dtype=np.float32)
    plan = km.inclusive_scan.plan(x)
    np.testing.assert_array_equal(plan(x), np.cumsum(x))
    out = np.empty_like(x)
    assert plan(x[::-1].copy(), out=out) is out
    np.testing.assert_array_equal(out, np.cumsum(x[::-1]))
    plan = km.exclusive_scan.plan(x, km.maximum, init=4)
    np.testing.assert_array_equal(plan(x)[-2:], [7, 8])


@pytest.mark.not_on("cuda")
def test_iterators_are_read_in_place() -> None:
    x, factor = np.arange(7000.0), 3.0
    found = km.inclusive_scan(iterators.transform(iterators.reverse(x), lambda v: v * factor))
    np.testing.assert_array_equal(found, np.cumsum(x[::-1] * 3))
    out = np.empty(7000)
    assert km.exclusive_scan(iterators.reverse(x), init=1.0, out=out) is out
    np.testing.assert_array_equal(out, 1 + np.cumsum(x[::-1]) - x[::-1])
    in_place = x.copy()
    km.inclusive_scan(iterators.reverse(in_place), out=in_place)
    np.testing.assert_array_equal(in_place, np.cumsum(x[::-1]))
    with fails(km.ArgumentError, "`x` has no end"):
        km.inclusive_scan(iterators.counting(0))


@settings(max_examples=30)
@given(
    size=st.one_of(st.integers(0, 300), st.sampled_from([1021, 6143, 6145, 12289, 20011])),
    kind=st.sampled_from([("i4", "add"), ("f8", "minimum")]),
    init=st.none() | st.integers(0, 5),
    way=st.tuples(st.booleans(), st.sampled_from([1, 2, -1])),
)
def test_random_scans(
    size: int, kind: tuple[str, str], init: int | None, way: tuple[bool, int]
) -> None:
    dtype, name = kind
    exclusive, step = way
    x = np.random.default_rng(size).integers(0, 9, size * abs(step)).astype(dtype)[::step]
    if exclusive and init is None:
        init = 3
    function = km.exclusive_scan if exclusive else km.inclusive_scan
    found = function(x, getattr(km, name), init=init)
    whole = x if init is None else np.concatenate([[init], x]).astype(x.dtype)
    wanted = {"add": np.cumsum, "minimum": np.minimum.accumulate}[name](whole)
    wanted = wanted if init is None else wanted[:-1] if exclusive else wanted[1:]
    np.testing.assert_array_equal(found, wanted)


# ----------------------------------------------------------------------------- faults


def fails(error: type[Exception], text: str) -> Any:
    return pytest.raises(error, match=re.escape(text))


def test_faults_name_what_was_found() -> None:
    x = np.arange(6.0)
    with fails(km.ShapeError, "`x` has 2 dimensions; inclusive_scan without `axis` takes one"):
        km.inclusive_scan(x.reshape(2, 3))
    with fails(km.ShapeError, "`axis` is 2; `x` has 2 dimensions"):
        km.inclusive_scan(x.reshape(2, 3), axis=2)
    with fails(km.ArgumentError, "`axis` is (0, 1); expected: one integer"):
        km.exclusive_scan(x.reshape(2, 3), axis=(0, 1))
    with fails(km.ArgumentError, "`determinism` is 'always'; accepted: "):
        km.inclusive_scan(x, determinism="always")
    with fails(km.ArgumentError, "`op` is a tuple; a scan takes one operator"):
        km.inclusive_scan(x, (km.add, km.maximum))
    with fails(km.DTypeError, "`init` is 'a'; expected: a number"):
        km.inclusive_scan(x, init="a")
    with fails(km.ArgumentError, "has no identity, has no first element"):
        km.exclusive_scan(x, later)


@pytest.mark.not_on("cuda")
def test_faults_of_outputs() -> None:
    x = np.arange(6.0)
    with fails(km.ShapeError, "`out` has shape (5,), the result has (6,)"):
        km.inclusive_scan(x, out=np.zeros(5))
    with fails(km.DTypeError, "add gives float64, `out` has int32: not of the same kind"):
        km.inclusive_scan(x, out=np.zeros(6, np.int32))
    with fails(km.ArgumentError, "`out` has 2 arrays; a scan has one result"):
        km.inclusive_scan(x, out=(np.zeros(6), np.zeros(6)))
    with fails(km.ShapeError, "`init` has shape (2,); expected: a number or an array of no dim"):
        km.inclusive_scan(x, init=np.zeros(2))
