"""`sort`, `argsort` and `sort_by_key`: NumPy's order on every type, stable; faults by their texts."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from kernelmill.algorithms import sort_numbers
from kernelmill.config import override
from sorted_order import order

TYPES = ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16"]
LENGTHS = (0, 1, 2, 3, 127, 128, 129, 511, 513, 4095, 4097, 70000)
SPLIT = sort_numbers.SPLIT_FROM


def sample(dtype: str, length: int, seed: int = 0) -> np.ndarray:
    """Numbers of a type, many of them equal, with everything that floats have."""
    random = np.random.default_rng([seed, length])
    x = random.integers(0, 200, length).astype(dtype)
    if x.dtype.kind in "iu" and x.itemsize > 1:
        x = random.integers(np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, length, x.dtype)
        x[: length // 2] %= 50
    if x.dtype.kind == "f":
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
        x -= x.dtype.type(100)
        at = random.integers(0, max(1, length), length // 3)
        x[at] = random.choice(special, at.size)
    if x.dtype.kind == "c":
        special = [complex(np.nan, 1), complex(1, np.nan), complex(np.nan, np.nan), -0.0, 0.0, 1j]
        at = random.integers(0, max(1, length), length // 3)
        x[at] = random.choice(special, at.size)
    return x


def same(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits; of structs, which may be padded, the same values."""
    if a.dtype.fields:
        return a.dtype == b.dtype and bool(np.array_equal(a, b))
    return a.dtype == b.dtype and a.shape == b.shape and bool(a.tobytes() == b.tobytes())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_every_type_is_sorted_as_numpy_does_and_stable(dtype: str, descending: bool) -> None:
    for length in LENGTHS:
        x = sample(dtype, length)
        wanted = order(x, descending=descending)
        assert same(km.sort(x, descending=descending), x[wanted])
        assert same(km.argsort(x, descending=descending), wanted)
        keys, values = km.sort_by_key(x, np.arange(length), descending=descending)
        assert same(keys, x[wanted])
        assert same(values, wanted)


@pytest.mark.parametrize("dtype", TYPES)
def test_merging_gives_the_same(dtype: str) -> None:
    for length in (0, 1, 9, 4097, 50001):
        x = sample(dtype, length, 1)
        wanted = order(x)
        assert same(km.sort(x, algorithm="merge"), x[wanted])
        assert same(km.argsort(x, algorithm="merge"), wanted)
        assert same(km.argsort(x, algorithm="merge", descending=True), order(x, descending=True))
        assert same(km.sort(x, algorithm="radix"), x[wanted])


def check_arrangements(x: np.ndarray) -> None:
    for arranged in (x, np.sort(x), np.sort(x)[::-1], x[:1].repeat(len(x))):
        assert same(km.sort(arranged), arranged[order(arranged)])
        assert same(km.sort(arranged, descending=True), arranged[order(arranged, descending=True)])


@pytest.mark.parametrize("dtype", ["i4", "u4", "f4", "i8", "u8", "f8"])
def test_numbers_are_sorted_by_vectors(dtype: str) -> None:
    for threads in (1, 2):
        with override(num_threads=threads):
            for length in (2048, 2049, 65536, 65537, 200_000):
                check_arrangements(sample(dtype, length, threads))


@pytest.mark.parametrize("length", [*range(1, 140, 9), 16, 32, 33, 64, 65])
def test_few_numbers_are_sorted_by_vectors(length: int) -> None:
    for dtype in ("i4", "u8", "f4", "f8"):
        x = sample(dtype, length)
        out = np.empty_like(x)
        assert same(km.sort(x, out=out), x[order(x)])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an instruction set of x86")
@pytest.mark.parametrize("dtype", ["i4", "u8", "f4"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_without_vectors_numpy_sorts_parts(dtype: str, threads: int) -> None:
    with override(num_threads=threads, march="x86-64-v2"):
        assert "numpy.sort of parts" in km.sort.plan(np.zeros(SPLIT, dtype)).explain()
        assert "by numpy.sort" in km.sort.plan(np.zeros(100, dtype)).explain()
        for length in (SPLIT, 2 * SPLIT + 77):
            check_arrangements(sample(dtype, length, threads))


def test_arrangements_that_are_hard_on_pivots() -> None:
    half = np.arange(30_000.0)
    pipe = np.concatenate([half, half[::-1]])
    for x in (pipe, pipe[::-1], np.tile(half[:17], 4000), half % 2, -pipe, np.roll(pipe, 7)):
        check_arrangements(np.ascontiguousarray(x))


def test_bfloat16_and_float16_go_by_their_values() -> None:
    for dtype in (ml_dtypes.bfloat16, np.float16):
        x = sample("f4", 5000).astype(dtype)
        wanted = order(x.astype("f4"))
        assert same(km.sort(x).view("u2"), x[wanted].view("u2"))
        assert same(km.argsort(x), wanted)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9) | st.integers(-(1 << 31), (1 << 31) - 1), max_size=300),
    st.sampled_from(["i4", "i8", "f4", "f8", "c8"]),
    st.booleans(),
    st.sampled_from(["auto", "radix", "merge"]),
)
def test_any_list_is_sorted(
    numbers: list[int], dtype: str, descending: bool, algorithm: Any
) -> None:
    x = np.array(numbers, dtype)
    wanted = order(x, descending=descending)
    options = {"descending": descending, "algorithm": algorithm}
    assert same(km.argsort(x, **options), wanted)
    assert same(km.sort(x, **options), x[wanted])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 13, 16, 64])
def test_values_of_any_size_go_with_their_keys(size: int) -> None:
    random = np.random.default_rng(size)
    keys = random.integers(0, 9, 3000).astype("f4")
    values = random.integers(0, 256, (3000, size), np.uint8)
    row = np.dtype([(f"b{i}", "u1") for i in range(size)])
    found, (moved, places) = km.sort_by_key(keys, (values.view(row)[:, 0], np.arange(3000)))
    wanted = order(keys)
    assert same(found, keys[wanted])
    assert np.array_equal(places, wanted)
    assert moved.tobytes() == values[wanted].tobytes()


def test_bits_choose_what_counts() -> None:
    x = np.random.default_rng(1).integers(-(1 << 31), (1 << 31) - 1, 9999, np.int32)
    part = (x.view("u4") ^ np.uint32(1 << 31)) >> 5 & 0x7FF
    wanted = np.argsort(part, kind="stable")
    assert same(km.argsort(x, bits=(5, 16)), wanted)
    assert same(km.sort(x, bits=(5, 16)), x[wanted])
    assert same(km.sort(x, bits=(0, 32)), np.sort(x))
    assert same(km.sort(x, bits=(7, 7)), x)


@pytest.mark.parametrize("type_", ["f2", "f4", "f8"])
def test_bits_of_floats_are_those_of_cub(type_: str) -> None:
    x = np.random.default_rng(2).uniform(-9, 9, 999).astype(type_)
    x[:9] = [0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, -0.0, 0.0, 2.0]
    coded, top = x.view(f"u{x.itemsize}").copy(), 1 << (8 * x.itemsize - 1)
    coded[x == 0] = 0
    coded = np.where(coded & top, ~coded, coded ^ coded.dtype.type(top))
    for low, high in ((0, 2), (2, 6), (6, 11), (3, 8 * x.itemsize)):
        part = coded >> low & coded.dtype.type((1 << (high - low)) - 1)
        assert np.array_equal(km.argsort(x, bits=(low, high)), np.argsort(part, kind="stable"))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["f4", "u1", "c8", "f2"])
def test_rows_along_an_axis(dtype: str, axis: int) -> None:
    x = sample(dtype, 24 * 50 * 31).reshape(24, 50, 31)
    wide = x.astype("f4") if dtype == "f2" else x
    wanted = np.argsort(wide, axis=axis, kind="stable")
    taken = np.take_along_axis(x, wanted, axis)
    assert same(km.sort(x, axis=axis), taken)
    assert same(km.argsort(x, axis=axis), wanted)
    for values in (
        np.arange(x.size).reshape(x.shape),
        np.arange(x.size, dtype="i2").reshape(x.shape),
    ):
        keys, found = km.sort_by_key(x, values, axis=axis)
        assert same(keys, taken)
        assert same(found, np.take_along_axis(values, wanted, axis))
    assert same(km.sort(x, axis=axis, algorithm="merge"), taken)
    whole = np.abs(np.nan_to_num(x, nan=3)) + x.dtype.type(1)
    falling = -np.sort(-(whole.astype("f4") if dtype == "f2" else whole), axis=axis)
    if dtype not in ("u1", "c8"):
        assert same(km.sort(whole, axis=axis, descending=True), falling.astype(x.dtype))


def test_long_rows_are_sorted_by_all_threads() -> None:
    x = np.random.default_rng(5).normal(size=(3, 90000)).astype("f4")
    wanted = np.argsort(x, axis=1, kind="stable")
    assert same(km.argsort(x), wanted)
    assert same(km.argsort(x, algorithm="merge"), wanted)


def test_views_and_given_outputs() -> None:
    x = sample("f8", 6000)
    wide = np.zeros((6000, 3))
    wide[:, 1] = x
    assert same(km.sort(wide[::-2, 1]), x[::-2][order(x[::-2])])
    out = np.zeros((6000, 2))
    assert km.sort(x, out=out[:, 1]).base is out
    assert same(out[:, 1].copy(), x[order(x)])
    assert not out[:, 0].any()
    places = np.zeros(6000, np.int64)
    assert km.argsort(x, out=places) is places
    assert same(places, order(x))
    for algorithm in ("auto", "radix", "merge"):
        y = x.copy()
        assert km.sort(y, out=y, algorithm=algorithm) is y
        assert same(y, x[order(x)])
        keys, values = x.copy(), np.arange(6000.0)
        km.sort_by_key(keys, values, algorithm=algorithm, out=(keys, values))
        assert same(keys, x[order(x)])
        assert same(values, order(x).astype("f8"))
    packed = np.zeros(500, np.dtype([("a", "u1"), ("x", "f4")]))
    packed["x"] = sample("f4", 500)
    assert same(km.sort(packed["x"], algorithm="radix"), packed["x"][order(packed["x"])])


@pytest.mark.parametrize("algorithm", ["auto", "radix", "merge"])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "i8"])
def test_outputs_may_be_other_inputs(place: str, algorithm: Any, dtype: str) -> None:
    for length in (9, 700):
        x, y, z = (np.roll(np.arange(length) % 90, k).astype(dtype) for k in (5, 7, 40))
        wanted = order(x)
        a, b = x.copy(), y.copy()
        km.sort_by_key(a, b, algorithm=algorithm, out=(b, a))
        assert same(b, x[wanted])
        assert same(a, y[wanted])
        a, b, c = x.copy(), y.copy(), z.copy()
        km.sort_by_key(a, (b, c), algorithm=algorithm, out=(a, c, b))
        assert same(a, x[wanted])
        assert same(c, y[wanted])
        assert same(b, z[wanted])


ROW = km.struct({"name": "i4", "weight": "f8"}, name="Row")


def rows(length: int) -> np.ndarray:
    made = np.zeros(length, ROW.dtype)
    random = np.random.default_rng(length)
    made["name"], made["weight"] = np.arange(length), random.integers(0, 20, length)
    return made


def test_structs_go_by_a_key_or_a_comparator() -> None:
    for length in (0, 1, 100, 20000):
        x = rows(length)
        wanted = np.argsort(x["weight"], kind="stable")
        assert same(km.sort(x, key=lambda r: r.weight), x[wanted])
        assert same(km.sort(x, comparator=lambda a, b: a.weight < b.weight), x[wanted])
        assert same(km.argsort(x, key=lambda r: r.weight), wanted)
        falling = order(x["weight"], descending=True)
        assert same(km.sort(x, key=lambda r: r.weight, descending=True), x[falling])
        assert same(
            km.argsort(x, comparator=lambda a, b: a.weight < b.weight, descending=True), falling
        )
        keys, values = km.sort_by_key(x, np.arange(length), key=lambda r: -r.weight)
        assert same(keys, x[np.argsort(-x["weight"], kind="stable")])
        assert same(values.astype("i4"), keys["name"])


def test_a_comparator_reads_what_it_captured_at_each_call() -> None:
    x = np.arange(1000)
    for modulus in (3, 7):
        found = km.sort(x, comparator=lambda a, b: a % modulus < b % modulus)
        assert same(found, x[np.argsort(x % modulus, kind="stable")])


@pytest.mark.parametrize("length", [7, 8, 64, 1000, 100_000])
def test_a_comparator_that_is_no_order_gives_some_permutation(length: int) -> None:
    x = np.random.default_rng(length).integers(0, 1 << 30, length)
    for bad in (
        lambda a, b: True,
        lambda a, b: a <= b,
        lambda a, b: (a * 7 ^ b * 13) % 3 == 0,
        lambda a, b: (a + 1) % 3 == b % 3,
    ):
        assert np.array_equal(np.sort(km.sort(x, comparator=bad)), np.sort(x))
        assert np.array_equal(np.sort(km.argsort(x, comparator=bad)), np.arange(length))


def test_tensors_stay_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        x = torch.arange(3000).flip(0).remainder(97).to(dtype)
        keys, values = km.sort_by_key(x, torch.arange(3000))
        wanted = torch.sort(x, stable=True)
        assert torch.equal(km.sort(x), wanted.values)
        assert torch.equal(keys, wanted.values)
        assert torch.equal(values, wanted.indices)
        assert torch.equal(km.argsort(x), wanted.indices)


def test_iterators_are_sorted() -> None:
    x = sample("f4", 500)
    found = km.sort(km.iterators.transform(x, lambda v: -v))
    assert same(found, (-x)[order(-x)])


def test_plans_sort_arrays_like_theirs() -> None:
    x, y = sample("f4", 3000), sample("f4", 3000, 7)
    sorts, places = km.sort.plan(x), km.argsort.plan(x, descending=True)
    assert same(sorts(y), y[order(y)])
    assert same(places(y), order(y, descending=True))
    assert "radix" in places.explain()
    keys, values = km.sort_by_key.plan(x, np.arange(3000))(y, np.arange(3000))
    assert same(keys, y[order(y)])
    assert same(values, order(y))
    with pytest.raises(km.ArgumentError, match="this plan was prepared for sort"):
        sorts(y.astype("f8"))


def test_sorting_goes_on_in_a_child_of_a_fork() -> None:
    text = """
import os, numpy as np, kernelmill as km
x = np.random.default_rng(0).random(1 << 18)
km.sort(x); km.argsort(x)
if os.fork() == 0:
    ok = (np.diff(km.sort(x)) >= 0).all() and (np.diff(x[km.argsort(x)]) >= 0).all()
    os._exit(0 if ok else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, timeout=600)


X = np.arange(3.0)
FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: km.sort(rows(3)), km.DTypeError, "`x` has elements of Struct, which have no order"),
    (
        lambda: km.sort(X, comparator=lambda a, b: a - b),
        km.DTypeError,
        "lambda returns float64; a comparator returns a bool",
    ),
    (lambda: km.sort(np.float64(3)), km.ShapeError, "`x` has no dimension; expected: at least one"),
    (lambda: km.sort(X, axis=1), km.ShapeError, "`axis` is 1; `x` has 1 dimensions"),
    (
        lambda: km.sort(X, algorithm="quick"),
        km.ArgumentError,
        "`algorithm` is 'quick'; expected: 'auto', 'radix' or 'merge'",
    ),
    (
        lambda: km.sort(X, algorithm="radix", comparator=lambda a, b: a < b),
        km.ArgumentError,
        "`algorithm` is 'radix', which compares nothing, and there is a comparator",
    ),
    (
        lambda: km.sort(X, bits=(0, 65)),
        km.ArgumentError,
        "`bits` are (0, 65); the limits are 0 and 64, and the first comes first",
    ),
    (
        lambda: km.sort(X, bits=(0, 8), algorithm="merge"),
        km.ArgumentError,
        "`bits` are those of a radix sort, which takes no comparator",
    ),
    (
        lambda: km.sort(X, key=lambda v: v, comparator=lambda a, b: a < b),
        km.ArgumentError,
        "`key` and `comparator` were both given; one says what the order is",
    ),
    (
        lambda: km.sort_by_key(X, np.arange(4)),
        km.ShapeError,
        "`values` has shape (4,), `keys` has (3,); there is a value for each key",
    ),
    (
        lambda: km.sort_by_key(X, ()),
        km.ArgumentError,
        "`values` is empty; at least one array is needed",
    ),
    (
        lambda: km.sort_by_key(X, X, out=X),
        km.ArgumentError,
        "`out` takes the keys and 1 arrays of values: a tuple of 2",
    ),
    (
        lambda: km.sort(X, out=np.zeros(3, "f4")),
        km.DTypeError,
        "`out` has elements of float32; they are float64 here",
    ),
    (
        lambda: km.argsort(X, out=np.zeros(4, "i8")),
        km.ShapeError,
        "`out` has shape (4,), the result has (3,)",
    ),
    (
        lambda: km.sort(X, out=(X.copy(), X.copy())),
        km.ArgumentError,
        "`out` has 2 arrays for 1 results",
    ),
    (
        lambda: km.topk(X, 2, out=np.zeros(2)),
        km.ArgumentError,
        "`out` has 1 arrays for 2 results",
    ),
    (lambda: km.sort(X, axis=0.5), km.ArgumentError, "`axis` is 0.5; expected: an integer"),
    (
        lambda: km.sort(X, bits=3),
        km.ArgumentError,
        "`bits` is 3; expected: a pair, first and behind last",
    ),
    (
        lambda: km.sort(X, bits=(0.5, 2)),
        km.ArgumentError,
        "`bits[0]` is 0.5; expected: an integer",
    ),
    (
        lambda: km.sort_by_key(X, [X, X]),
        km.ArgumentError,
        "`values` is a list of arrays",
    ),
    (
        lambda: km.sort_by_key.plan(X, ()),
        km.ArgumentError,
        "`values` is empty; at least one array is needed",
    ),
    (lambda: km.sort.plan(X)(X, X), km.ArgumentError, "2 arrays were given; expected: x"),
    (
        lambda: km.sort_by_key.plan(X, X)(X),
        km.ArgumentError,
        "1 arrays were given; expected: keys, values",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), FAULTS)
def test_faults_say_what_was_found(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message.startswith(text)  # type: ignore[attr-defined]


def test_values_may_be_large(place: str) -> None:
    random = np.random.default_rng(20)
    layouts = ("u1,f8", [(f"f{i}", "f8") for i in range(9)], [("k", "i4"), ("rest", "u1")])
    for layout in layouts:
        type_ = np.dtype(layout, align=True)
        large = np.frombuffer(random.bytes(300 * type_.itemsize), type_).copy()
        keys = random.integers(0, 20, 300)
        places = order(keys)
        found, values = km.sort_by_key(keys, large)
        assert np.array_equal(found, keys[places])
        assert all(values[n].tobytes() == large[places][n].tobytes() for n in type_.names)
        segments = km.segmented_sort(keys, np.array([0, 300]), values=large)[1]
        assert all(segments[n].tobytes() == values[n].tobytes() for n in type_.names)


def test_a_key_of_several_numbers_is_refused() -> None:
    for x, key in ((X, lambda v: (v, v)), (np.zeros(3, "u1,f4"), lambda v: v)):
        with pytest.raises(km.DTypeError) as caught:
            km.sort(x, key=key)
        assert caught.value.message == "`key` returns several numbers; an order goes by one"
