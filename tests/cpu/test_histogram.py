"""`histogram` and its kin on each device: NumPy's bins, weights, channels, plans, bad arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import kernelmill as km

pytestmark = pytest.mark.usefixtures("device")

BF16 = np.dtype(ml_dtypes.bfloat16)
SLOW = partial(pytest.param, marks=pytest.mark.slow)
TYPES = ["?", "i1", "u1", "i4", "u8", "f2", "f4", "f8",
         *map(SLOW, ("i2", "u2", "u4", "i8"))]  # fmt: skip
WEIGHTS = [
    "?",
    "i4",
    "f2",
    "f4",
    "c8",
    *map(SLOW, ("u1", "u8", "f8", "c16")),
]


def expected(x: np.ndarray, *rest: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.histogram(x.astype(np.uint8) if x.dtype == bool else x, *rest, **options)


def check(x: np.ndarray, *rest: Any, **options: Any) -> None:
    counts, edges = km.histogram(x, *rest, **options)
    wanted, wanted_edges = expected(x, *rest, **options)
    assert edges.dtype == wanted_edges.dtype
    assert np.array_equal(edges, wanted_edges)
    assert counts.dtype == wanted.dtype
    assert np.array_equal(counts, wanted), (x.dtype, rest, options)


def drawn(dtype: str | np.dtype, size: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else 100, size).astype(dtype)
    values = rng.normal(size=size)
    values[:: max(1, size // 5)] = [np.nan, np.inf, -np.inf, 0.25, -0.5][
        : len(values[:: max(1, size // 5)])
    ]
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", [*TYPES, pytest.param(BF16, marks=pytest.mark.not_on("cuda"))])
def test_counts_are_those_of_numpy(dtype: Any) -> None:
    x = drawn(dtype, 3000)
    bounds = (0, 90) if x.dtype.kind in "biu" else (-1.0, 1.5)
    check(x, 50, range=bounds)
    check(x[::-3], 7, range=bounds)


@settings(max_examples=60)
@given(
    st.sampled_from(["f4", "f8", "i4"]),
    st.integers(1, 400),
    st.integers(0, 70),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
)
def test_values_on_edges_fall_where_numpy_puts_them(
    dtype: str, bins: int, size: int, low: float, width: float
) -> None:
    """Edges themselves and their neighbours, between which a quotient cannot tell."""
    low, high = float(np.float32(low)), float(np.float32(low + width))
    try:
        edges = np.histogram_bin_edges(np.empty(0, dtype), bins, range=(low, high))
    except ValueError:
        reject()
    near = edges.astype(dtype)
    if near.dtype.kind == "f":
        near = np.concatenate([near, np.nextafter(near, near.dtype.type(np.inf)),
                               np.nextafter(near, near.dtype.type(-np.inf))])  # fmt: skip
    x = np.resize(near, max(size, len(near)))
    check(x, bins, range=(low, high))


@pytest.mark.parametrize("dtype", ["f2", SLOW("f4"), "i2", SLOW("u1")])
def test_the_range_of_the_values_is_found(dtype: str) -> None:
    x = np.random.default_rng(3).normal(scale=20, size=777).astype(dtype)
    check(x, 13)
    check(x.reshape(7, 111).T[::2], 13)
    check(np.full(5, 3, dtype), 4)
    check(x[:0], 4)


def test_edges_may_be_uneven_and_meet() -> None:
    x = drawn("f4", 2000)
    check(x, np.array([-1, -0.5, -0.5, 0.25, 2.0]))
    check(drawn("i8", 2000), [0, 1, 1, 7, 50, 50])
    check(x, [0.0, 1e-3, np.inf])


@pytest.mark.parametrize("size", [0, 1, 4096, 33000])
def test_sizes_and_many_bins(size: int) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    for bins in (1, 256, 9000):
        check(x, bins, range=(-2.0, 2.0))


@pytest.mark.parametrize("dtype", WEIGHTS)
def test_weights_are_added(dtype: str) -> None:
    """Small whole numbers, whose sums are exact in any order."""
    x = drawn("f4", 5000)
    weights = np.random.default_rng(1).integers(0, 3, 5000).astype(dtype)
    if weights.dtype.kind == "c":
        weights += 2j * weights.real
    check(x, 20, range=(-2, 2), weights=weights)
    if dtype != "?":  # which np.histogram refuses between edges
        check(x[::8], [-1, 0, 3], weights=weights[::8])


def test_sums_have_the_same_bits_again() -> None:
    rng = np.random.default_rng(5)
    x, weights = rng.integers(0, 9, 60000), rng.normal(size=60000).astype(np.float32)
    first = km.histogram(x, 9, range=(0, 9), weights=weights)[0]
    assert np.allclose(first, np.histogram(x, 9, range=(0, 9), weights=weights)[0], rtol=1e-3)
    for _ in range(3):
        again = km.histogram(x, 9, range=(0, 9), weights=weights)[0]
        assert first.tobytes() == again.tobytes()


@pytest.mark.host
def test_sums_do_not_depend_on_the_threads() -> None:
    from kernelmill.config import override

    rng = np.random.default_rng(5)
    x, weights = rng.integers(0, 9, 300000), rng.normal(size=300000)
    found = []
    for threads in (1, 2):
        with override(num_threads=threads):
            found.append(km.bincount(x, weights=weights).tobytes())
    assert found[0] == found[1]


def test_channels_are_counted_in_one_pass() -> None:
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, (31, 17, 4), dtype=np.uint8)
    found = km.histogram_even(image, (256, 16, 4), 0, 256, channels=3)
    for k, bins in enumerate((256, 16, 4)):
        wanted = np.histogram(image[..., k], bins, range=(0, 256))[0]
        assert np.array_equal(found[k], wanted)
    a, b = rng.normal(size=(2, 1000)).astype(np.float32)
    found = km.histogram_even((a, b), 8, (-1.0, 0.0), 1.0)
    for counts, x, low in zip(found, (a, b), (-1.0, 0.0), strict=True):
        assert np.array_equal(counts, np.histogram(x, 8, range=(low, 1.0))[0])
    found = km.histogram_range((a, b), [-1, 0.5, 2])
    assert np.array_equal(found[1], np.histogram(b, [-1, 0.5, 2])[0])


def test_the_upper_bound_is_not_counted() -> None:
    x = np.array([0.0, 1.0, 2.0, 2.0])
    assert km.histogram_even(x, 2, 0, 2).tolist() == [1, 1]
    assert km.histogram_range(x, [0, 1, 2]).tolist() == [1, 1]
    assert km.histogram(x, 2, range=(0, 2))[0].tolist() == [1, 3]


@pytest.mark.parametrize("dtype", [SLOW("?"), "u1", "i4", SLOW("u8")])
def test_bincount_is_that_of_numpy(dtype: str) -> None:
    x = drawn(dtype, 2000)
    assert np.array_equal(km.bincount(x), np.bincount(x))
    assert np.array_equal(km.bincount(x, minlength=300), np.bincount(x, minlength=300))
    weights = np.arange(2000) % 5
    found = km.bincount(x, weights=weights)
    assert found.dtype == np.float64
    assert np.array_equal(found, np.bincount(x, weights=weights))


def test_bincount_of_nothing() -> None:
    assert km.bincount(np.array([], int)).shape == (0,)
    assert km.bincount(np.array([], int), minlength=3).tolist() == [0, 0, 0]


@pytest.mark.not_on("cuda")
def test_results_go_to_out() -> None:
    out = np.full(6, -1)
    counts, _ = km.histogram(np.array([0.5, 2.5]), 3, range=(0, 3), out=out[::2])
    assert counts.tolist() == [1, 0, 1]
    assert out.tolist() == [1, -1, 0, -1, 1, -1]


@pytest.mark.host
def test_a_plan_keeps_its_bins() -> None:
    plan = km.histogram.plan(np.zeros(4, np.float32), 2, range=(0.0, 1.0))
    assert plan(np.float32([0, 0.6, 0.7, 5])).tolist() == [1, 2]
    assert plan(np.float32([0, 0, 0.1, 1])).tolist() == [3, 1]
    fixed = km.bincount.plan(np.zeros(4, int), minlength=3)
    assert fixed(np.array([0, 2, 2, 7])).tolist() == [1, 0, 2]


def test_equal_bounds_of_other_types_have_edges_of_their_own() -> None:
    """Edges of bounds are kept, and (0.0, 1.0) == (np.float64(0), np.float64(1))."""
    x = np.linspace(0, 1, 1001, dtype=np.float32)
    for kind in (float, np.float64, np.float32, int, np.float64, float):
        bounds = kind(0), kind(1)
        wanted, edges = np.histogram(x, 7, bounds)
        counts, found = km.histogram(x, 7, bounds)
        np.testing.assert_array_equal(counts, wanted)
        np.testing.assert_array_equal(found, edges)
        assert found.dtype == edges.dtype


# ----------------------------------------------------------------------------- bad arguments

NUMBERS = np.arange(4.0)
FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: km.histogram(NUMBERS, 0), km.ArgumentError, "`bins` is 0; the limits are 1 and 2147483584"),
    (lambda: km.histogram(NUMBERS, 2.5), km.ArgumentError, "`bins` is 2.5; expected: an integer or edges"),
    (lambda: km.histogram(NUMBERS, "auto"), km.ArgumentError, "`bins` is 'auto': estimates of the number of bins are not computed here"),
    (lambda: km.histogram(NUMBERS, 3, range=(2, 1)), km.ArgumentError, "`range` is (2, 1): max must be larger than min in range parameter."),
    (lambda: km.histogram(NUMBERS, 3, range=(0, np.inf)), km.ArgumentError, "`range` is (0, inf): supplied range of [0, inf] is not finite"),
    (lambda: km.histogram(np.array([1, np.nan]), 3), km.ArgumentError, "autodetected range of [nan, nan] is not finite"),
    (lambda: km.histogram(NUMBERS, [0, 2, 1]), km.ArgumentError, "`bins` must increase monotonically: edge 1 is 2, edge 2 is 1"),
    (lambda: km.histogram(NUMBERS, [1]), km.ArgumentError, "`bins` has shape (1,); expected: at least two edges"),
    (lambda: km.histogram(NUMBERS, [0, np.nan]), km.ArgumentError, "`bins` holds nan at 1"),
    (lambda: km.histogram(NUMBERS, [0, np.nan, 2]), km.ArgumentError, "`bins` holds nan at 1"),
    (lambda: km.histogram(NUMBERS, 3, range=(1, 2, 3)), km.ArgumentError, "`range` is (1, 2, 3); expected: two numbers, the outer edges"),
    (lambda: km.histogram(NUMBERS, ((1, 2), 3)), km.ArgumentError, "`bins` is ((1, 2), 3); expected: an integer or edges"),
    (lambda: km.histogram_even(NUMBERS, 3, "a", 1), km.ArgumentError, "`lower` is a, `upper` is 1; expected: less"),
    (lambda: km.histogram(NUMBERS, 3, range=np.array(5)), km.ArgumentError, "`range` is array(5); expected: two numbers, the outer edges"),
    (lambda: km.bincount(np.arange(3), minlength=2.5), km.ArgumentError, "`minlength` is 2.5; expected: an integer"),
    (lambda: km.histogram_even(np.zeros((3, 2)), 3, 0, 1, channels="a"), km.ArgumentError, "`channels` is 'a'; expected: an integer"),
    (lambda: km.histogram(NUMBERS, 3, range=5), km.ArgumentError, "`range` is 5; expected: two numbers, the outer edges"),
    (lambda: km.bincount(np.array([1 << 40])), km.ArgumentError, "`x` holds 1099511627776; the limit is 2147483583"),
    (lambda: km.bincount(np.array([(1 << 64) - 1], np.uint64)), km.ArgumentError, "`x` holds 18446744073709551615; the limit is 2147483583"),
    (lambda: km.bincount(np.array([1]), minlength=1 << 40), km.ArgumentError, "`minlength` is 1099511627776; the limit is 2147483584"),
    (lambda: km.bincount(np.zeros(0, int), np.ones(3)), km.ShapeError, "`weights` has shape (3,), `x` has (0,)"),
    (lambda: km.bincount(np.arange(3), np.ones(3, complex)), km.DTypeError, "`weights` has elements of complex128; they are added in float64"),
    (lambda: km.histogram(NUMBERS + 1j, 3), km.DTypeError, "`x` has elements of complex128, which have no order"),
    (lambda: km.histogram(NUMBERS, 3, range=(0, 1), weights=np.ones(3)), km.ShapeError, "`weights` has shape (3,), `x` has (4,)"),
    (lambda: km.histogram(NUMBERS, 3, range=(0, 1), weights=np.ones(4), determinism="device_to_device"), km.NotImplementedHere,
     "sums of float64 weights have no order that is the same on every device: `determinism='device_to_device'`"),
    (lambda: km.bincount(np.array([3, -2])), km.ArgumentError, "`x` holds -2; the least is 0"),
    (lambda: km.bincount(NUMBERS), km.DTypeError, "`x` has elements of float64; expected: integers"),
    (lambda: km.bincount(np.zeros((2, 2), int)), km.ShapeError, "`x` has shape (2, 2); expected: one dimension"),
    (lambda: km.histogram_even((NUMBERS, NUMBERS[:2]), 3, 0, 1), km.ShapeError,
     "`x[1]` is float64 of shape (2,), `x[0]` is float64 of shape (4,): channels are alike"),
    (lambda: km.histogram_even(NUMBERS, 3, 1, 1), km.ArgumentError, "`lower` is 1, `upper` is 1; expected: less"),
    (lambda: km.histogram_even(np.zeros((3, 9)), 3, 0, 1, channels=9), km.ArgumentError, "`channels` is 9; the limits are 1 and 8"),
    (lambda: km.histogram(NUMBERS, 3, range=(0, 1), out=np.zeros(4, int)), km.ShapeError, "`out` has shape (4,), the result has (3,)"),
    (lambda: km.histogram(NUMBERS, 3, range=(0, 1), out=np.zeros(3)), km.DTypeError, "`out` has elements of float64; the counts are int64"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), FAULTS, ids=[f[2][:40] for f in FAULTS])
@pytest.mark.host
def test_bad_arguments_are_named(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == text  # type: ignore[attr-defined]
