"""`reduce` and `transform_reduce` of whole arrays: the tree bit for bit, types, starts, nothing."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
import oracle
from array_layouts import filled, same
from kernelmill.config import override
from reference_tree import CHUNK, reduced

pytestmark = pytest.mark.usefixtures("device")

BF16 = np.dtype(ml_dtypes.bfloat16)
WELL_KNOWN = ("add", "multiply", "minimum", "maximum", "logical_and", "logical_or")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", BF16, "f4", "f8", "c8", "c16"]
ORACLE = {"add": "add", "multiply": "mul", "minimum": "minimum", "maximum": "maximum",
          "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}  # fmt: skip
# Ordinary, wrapping, widening, of two parts; each kernel takes a second to compile.
SAMPLED = [pytest.param(t, marks=() if t in ("?", "i2", "f2", "c8") else pytest.mark.slow)
           for t in TYPES]  # fmt: skip
# Both sides of the lanes, a run and a chunk.
SMALL = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 1000)
EDGES = (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5)


def accumulator_of(name: str, dtype: np.dtype) -> np.dtype:
    """The type that docs/reference/reduction-tree.md and `km.reduce` name."""
    if name.startswith("logical"):
        return np.dtype(bool)
    if name in ("add", "multiply"):
        wide = {"b": "i8", "i": "i8", "u": "u8"}.get(dtype.kind)
        return np.dtype(wide or ("f4" if dtype in (np.float16, BF16) else dtype))
    return dtype


def result_of(name: str, dtype: np.dtype) -> np.dtype:
    found = accumulator_of(name, dtype)
    return dtype if dtype in (np.float16, BF16) and found == np.float32 else found


def scalar(name: str) -> Any:
    if name.startswith("logical"):
        ufunc = getattr(np, name)
        return lambda a, b: ufunc(a, b)
    return lambda a, b: oracle.apply(ORACLE[name], (a, b))


def expected(name: str, x: np.ndarray) -> Any:
    with np.errstate(all="ignore"):
        wide = x.astype(accumulator_of(name, x.dtype))
        return np.asarray(reduced(wide, scalar(name))).astype(result_of(name, x.dtype))


@pytest.mark.parametrize("dtype", SAMPLED, ids=str)
def test_well_known_operators_follow_the_tree(dtype: Any) -> None:
    dtype = np.dtype(dtype)
    names = WELL_KNOWN if dtype.kind == "c" else (*WELL_KNOWN, *BITWISE)
    if dtype.kind in "fV":
        names = WELL_KNOWN
    ops = tuple(getattr(km, n) for n in names)
    for size in SMALL:
        x = filled((size,), dtype, size)
        for name, found in zip(names, km.reduce(x, ops), strict=True):
            same(found, expected(name, x))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WELL_KNOWN, *BITWISE])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_each_operator_alone(dtype: Any, name: str) -> None:
    dtype = np.dtype(dtype)
    if name in BITWISE and dtype.kind not in "biu":
        with pytest.raises(km.OperatorError, match="is not defined for"):
            km.reduce(np.ones(3, dtype), getattr(km, name))
        return
    for size in (*SMALL, CHUNK + 1):
        x = filled((size,), dtype, size)
        same(km.reduce(x, getattr(km, name)), expected(name, x))


def plain(a: Any, b: Any) -> Any:
    return a + b


def affine(a: Any, b: Any) -> Any:
    """Neither commutative nor associative: every change of the tree shows."""
    return a * 3 + b


either = km.op(plain, commutative=True, name="either")


@pytest.mark.parametrize("threads", [1, 2])
def test_chunk_edges(threads: int) -> None:
    with override(num_threads=threads):
        for size in EDGES:
            x = filled((size,), "f4", size)
            same(km.reduce(x), reduced(x, np.add))
            same(km.reduce(x, either), reduced(x, np.add))
            same(km.reduce(x, plain), reduced(x, np.add, commutative=False))
            y = filled((size,), "u8", size)
            with np.errstate(over="ignore"):
                same(km.reduce(y, affine), reduced(y, lambda a, b: a * np.uint64(3) + b,
                                                   commutative=False))  # fmt: skip


def test_a_larger_array() -> None:
    x = filled((19 * CHUNK + 11,), "f4", 1)
    same(km.reduce(x), reduced(x, np.add))
    same(km.reduce(x, plain), reduced(x, np.add, commutative=False))


@given(st.data())
@settings(max_examples=60)
def test_any_length_and_stride(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5000))
    step = data.draw(st.sampled_from((1, 2, 3, -1, -2)))
    x = filled((size * abs(step),), "f4", data.draw(st.integers(0, 99)))[::step]
    same(km.reduce(x), reduced(x, np.add))
    same(km.reduce(x, plain), reduced(x, np.add, commutative=False))
    same(km.reduce(np.broadcast_to(x[:1], size)), reduced(np.broadcast_to(x[:1], size), np.add))


SPECIAL = st.sampled_from((0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3e38, 1e-45))


@given(st.lists(SPECIAL, min_size=1, max_size=200))
@settings(max_examples=60)
def test_nan_infinities_and_signed_zeros(values: list[float]) -> None:
    x = np.array(values, "f4")
    names = ("add", "multiply", "minimum", "maximum")
    for name, found in zip(names, km.reduce(x, tuple(getattr(km, n) for n in names)), strict=True):
        same(found, expected(name, x))


# ----------------------------------------------------------------------------- operators


def test_python_and_numpy_spell_the_same_operators() -> None:
    import operator

    x = filled((1000,), "i4", 1)
    for spelled, known in ((operator.add, km.add), (np.multiply, km.multiply),
                           (operator.xor, km.bitwise_xor), (np.maximum, km.maximum)):  # fmt: skip
        same(km.reduce(x, spelled), km.reduce(x, known))


def test_operators_that_keep_one_side() -> None:
    x = filled((3 * CHUNK + 5,), "i8", 2)
    assert km.reduce(x, lambda a, b: a) == x[0]
    assert km.reduce(x, lambda a, b: b) == x[-1]
    assert km.reduce(x, max) == x.max()


def test_several_operators_are_independent() -> None:
    x = filled((2 * CHUNK + 77,), "i1", 3)
    found = km.reduce(x, (km.add, km.minimum, affine))
    assert [f.dtype.char for f in found] == ["l", "b", "b"]
    alone = [km.reduce(x, op) for op in (km.add, km.minimum, affine)]
    for a, b in zip(found, alone, strict=True):
        same(a, b)
    assert found[0] == x.sum(dtype="i8")


def test_accumulators_of_different_sizes_have_their_own_lanes() -> None:
    x = filled((CHUNK + 100,), "f4", 3)
    low, high = km.transform_reduce(x, lambda v: (v, np.float64(v)), (km.add, km.add))
    same(low, reduced(x, np.add))
    same(high, reduced(x.astype("f8"), np.add))


def test_the_result_type_of_the_operator_accumulates() -> None:
    x = filled((100,), "i1", 3)
    found = km.reduce(x, lambda a, b: np.int32(a) + np.int32(b))
    same(found, x.sum(dtype="i4"))
    assert km.reduce(x, lambda a, b: a / 2 + b / 2).dtype == np.float64


def test_halves_are_summed_in_float32_and_rounded_once() -> None:
    x = np.full(5000, 0.1, "f2")
    same(km.reduce(x), np.float16(reduced(x.astype("f4"), np.add)))
    same(km.reduce(x, init=1000), np.float16(np.float32(1000) + reduced(x.astype("f4"), np.add)))
    same(km.reduce(x, km.add, dtype="f8"), reduced(x.astype("f8"), np.add))


# ----------------------------------------------------------------------------- records


@km.struct
class Affine:
    """x ↦ scale·x + shift."""

    scale: km.uint32
    shift: km.uint32


def then(f: Any, g: Any) -> Any:
    return Affine(f.scale * g.scale, f.shift * g.scale + g.shift)


@km.struct
class Matrix:
    a: km.int64
    b: km.int64
    c: km.int64
    d: km.int64


def product(p: Any, q: Any) -> Any:
    return Matrix(
        p.a * q.a + p.b * q.c, p.a * q.b + p.b * q.d, p.c * q.a + p.d * q.c, p.c * q.b + p.d * q.d
    )


@pytest.mark.parametrize("size", [1, 17, 1000, CHUNK + 1, 3 * CHUNK + 5])
def test_records_compose_in_order(size: int) -> None:
    x = np.zeros(size, Affine.dtype)
    x["scale"], x["shift"] = filled((size,), "u4", 1), filled((size,), "u4", 2)
    scale, shift = 1, 0
    for s, t in zip(x["scale"].tolist(), x["shift"].tolist(), strict=True):
        scale, shift = scale * s % 2**32, (shift * s + t) % 2**32
    found = km.reduce(x, then)
    assert (int(found["scale"]), int(found["shift"])) == (scale, shift)
    found = km.reduce(x, then, init=Affine(3, 5))
    assert int(found["scale"]) == scale * 3 % 2**32
    assert int(found["shift"]) == (5 * scale + shift) % 2**32


def test_products_of_matrices() -> None:
    x = np.zeros(90, Matrix.dtype)
    for name in ("a", "b", "c"):
        x[name] = 1
    found = km.reduce(x, product)  # the Fibonacci numbers
    f = functools.reduce(lambda t, _: (t[1], t[0] + t[1]), range(90), (0, 1))
    assert (int(found["b"]), int(found["a"])) == f


def test_records_without_elements() -> None:
    x = np.zeros(0, Affine.dtype)
    assert km.reduce(x, then, init=Affine(3, 5)).tolist() == (3, 5)
    assert km.reduce(x, km.op(then, identity=Affine(1, 0))).tolist() == (1, 0)


def test_records_start_with_records() -> None:
    x = np.zeros(3, Affine.dtype)
    with pytest.raises(km.DTypeError) as caught:
        km.reduce(x, then, init=3)
    assert str(caught.value) == "`init` is 3; expected: a record with the fields scale, shift"


# ----------------------------------------------------------------------------- init, dtype, out


@pytest.mark.parametrize(
    ("dtype", "init", "expected_type"),
    [("i4", 5, "i8"), ("f4", 5, "f4"), ("f4", 0.1, "f4"), ("i4", 1.5, "f8"), ("u1", True, "u8"),
     ("f4", np.float64(0.1), "f8"), ("f4", 1j, "c8"), ("?", 3, "i8"), (BF16, 1.5, BF16)],
    ids=str,
)  # fmt: skip
def test_init_is_combined_once_on_the_left(dtype: Any, init: Any, expected_type: Any) -> None:
    x = np.ones(100, dtype)
    found = km.reduce(x, init=init)
    assert found.dtype == np.dtype(expected_type)
    same(found, np.asarray(init + 100).astype(expected_type))


def test_init_is_on_the_left_of_operators_that_do_not_commute() -> None:
    x = filled((100,), "u8", 1)
    with np.errstate(over="ignore"):
        alone = km.reduce(x, affine)
        same(km.reduce(x, affine, init=7), np.uint64(21) + alone)


def test_init_of_bfloat16() -> None:
    x = np.ones(3, BF16)
    same(km.reduce(x, plain, init=1.0), BF16.type(4))
    same(km.reduce(x, km.maximum, init=np.float32(5)), np.float32(5))


def test_one_init_for_each_operator() -> None:
    x = np.arange(4, dtype="i8")
    assert km.reduce(x, (km.add, km.maximum), init=(10, 2)) == (16, 3)
    assert km.reduce(x, (km.add, km.maximum), init=10) == (16, 10)
    assert km.reduce(x, (km.add, km.maximum), init=(None, 50)) == (6, 50)


@pytest.mark.parametrize("size", [0, 3])
def test_an_init_that_does_not_fit(size: int) -> None:
    with pytest.raises(OverflowError) as caught:
        km.reduce(np.ones(size, "i1"), km.maximum, init=300)
    assert str(caught.value) == (
        "Python integer 300 out of bounds for int8\n\nhint: `init` starts the result"
    )


@pytest.mark.parametrize(
    ("init", "dtype", "text"),
    [
        ("a", None, "`init` is 'a'; expected: a number"),
        ([1], None, "`init` is [1]; expected: a number"),
        (1.5, "i8", "`init` is 1.5, the reduction accumulates in int64: not of the same kind"),
        (1j, "f8", "`init` is 1j, the reduction accumulates in float64: not of the same kind"),
    ],
)
def test_an_init_of_the_wrong_kind(init: Any, dtype: Any, text: str) -> None:
    with pytest.raises(km.DTypeError) as caught:
        km.reduce(np.ones(3), init=init, dtype=dtype)
    assert caught.value.message == text


def test_dtype_is_accumulated_and_returned() -> None:
    x = filled((1000,), "i1", 1)
    same(km.reduce(x, dtype="i4"), x.sum(dtype="i4"))
    same(km.reduce(x, dtype="i1"), x.sum(dtype="i1"))
    same(km.reduce(x, plain, dtype=km.float64), np.float64(x.sum(dtype="f8")))
    y = filled((1000,), "f8", 1)
    same(km.reduce(y, dtype=np.float32), reduced(y.astype("f4"), np.add))
    with pytest.raises(km.DTypeError) as caught:
        km.reduce(np.ones(3, complex), dtype="f8")
    assert str(caught.value) == (
        "elements of complex128 cannot be accumulated by add in float64\n\n"
        "hint: convert them with `km.transform_reduce`, for example `lambda x: x.real`"
    )


def test_out() -> None:
    x = filled((1000,), "f4", 1)
    for out in (np.zeros(()), np.zeros((), "f4")):
        for _ in range(2):
            assert km.reduce(x, out=out) is out
            same(out, reduced(x, np.add).astype(out.dtype))
    outs = np.zeros((), "i8"), np.zeros((), "f4")
    assert km.reduce(x > 0, (km.add, km.add), out=outs) is outs
    assert outs[0] == outs[1] == (x > 0).sum()


def test_out_inside_the_input() -> None:
    for place in (0, 500, 999):
        x = filled((1000,), "f8", 1)
        wanted = reduced(x, np.add)
        km.reduce(x, out=x[place : place + 1].reshape(()))
        assert x[place] == wanted
    for place in (0, 50, 99):
        for axis in (0, 1):
            for _ in range(2):  # the second call takes the quick path
                x = filled((100, 100), "f8", 2)
                wanted = reduced(x, np.add, axis=axis)
                km.reduce(x, axis=axis, out=x[place])
                same(x[place], wanted)


# ----------------------------------------------------------------------------- nothing


@pytest.mark.parametrize(
    ("name", "dtype", "value"),
    [("add", "f4", 0), ("multiply", "i2", 1), ("minimum", "f8", np.inf), ("maximum", "i1", -128),
     ("minimum", "u2", 65535), ("maximum", "?", False), ("logical_and", "f4", True),
     ("bitwise_and", "u1", 255), ("bitwise_and", "i4", -1), ("bitwise_or", "i4", 0),
     ("bitwise_and", "?", True), ("maximum", BF16, -np.inf)],
    ids=str,
)  # fmt: skip
def test_no_elements_give_the_identity(name: str, dtype: Any, value: Any) -> None:
    x = np.zeros(0, dtype)
    same(km.reduce(x, getattr(km, name)),
         np.asarray(value).astype(result_of(name, np.dtype(dtype))))  # fmt: skip


def test_no_elements_and_no_identity() -> None:
    with pytest.raises(km.ArgumentError) as caught:
        km.reduce(np.zeros(0), plain)
    assert str(caught.value) == (
        "reduction of no elements with plain, which has no identity\n\n"
        "hint: pass `init=`, or declare one: `km.op(f, identity=...)`"
    )
    same(km.reduce(np.zeros(0), plain, init=2.5), np.float64(2.5))
    same(km.reduce(np.zeros(0), km.op(plain, identity=7)), np.float64(7))
    assert km.reduce(np.zeros((0, 3)), km.add, axis=0).tolist() == [0, 0, 0]
    assert km.reduce(np.zeros((3, 0)), plain, axis=0).tolist() == []


def test_an_identity_is_not_mixed_into_elements() -> None:
    wrong = km.op(plain, identity=1000, commutative=True)
    x = np.ones(100)
    assert km.reduce(x, wrong) == 100


# ----------------------------------------------------------------------------- transform_reduce


def test_transform_reduce_without_temporaries() -> None:
    a, b, c = (filled((2 * CHUNK + 9,), "f4", k) for k in range(3))
    found = km.transform_reduce((a, b, c), lambda p, q, r: (p - q) ** 2 * r)
    same(found, reduced((a - b) * (a - b) * c, np.add))


def test_transform_reduce_broadcasts() -> None:
    a, b = filled((40, 1), "f4", 1), filled((33,), "f4", 2)
    found = km.transform_reduce((a, b), lambda p, q: p * q)
    full = np.broadcast_arrays(a, b)
    same(found, reduced(a * b, np.add, like=[np.broadcast_to(f, (40, 33)) for f in full]))


def test_transform_reduce_with_a_python_scalar_and_captures() -> None:
    x = filled((1000,), "f4", 1)
    for factor in (2, 0.5, 3.25):
        for limit in (0.0, 1.0):
            found = km.transform_reduce(
                (x, limit), lambda v, t: v * factor if v > t else 0, km.maximum
            )
            same(found, np.where(x > limit, x * np.float32(factor), np.float32(0)).max())


def test_captures_of_all_operators_of_one_call() -> None:
    x = filled((1000,), "i4", 1)
    for low, step, shift in ((5, 2, 1), (100, 7, 3)):
        clipped = km.op(lambda a, b: max(max(a, b), low), commutative=True)
        mixed = lambda a, b: a * step + b
        found = km.transform_reduce(x, lambda v: v + shift, (clipped, mixed), init=(7, 9))
        y = (x + np.int32(shift)).astype("i4")
        assert found[0] == max(int(y.max()), low)
        with np.errstate(over="ignore"):
            tree = reduced(y, lambda a, b: a * np.int32(step) + b, commutative=False)
            assert found[1] == np.int32(9) * np.int32(step) + tree
