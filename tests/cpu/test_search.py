"""`lower_bound` and `upper_bound` on each device: NumPy's places, comparators, bad arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km

pytestmark = pytest.mark.usefixtures("device")

TYPES = ["?", "i4", "u8", "f2", "f4", "c8",
         *(pytest.param(t, marks=pytest.mark.slow) for t in ("i1", "u2", "i8", "f8"))]  # fmt: skip
SIDES = (("lower_bound", "left"), ("upper_bound", "right"))


@pytest.mark.parametrize("dtype", TYPES)
def test_places_are_those_of_numpy(dtype: str) -> None:
    rng = np.random.default_rng(4)
    for length in (0, 1, 2, 1000):
        data = rng.integers(0, 50, length).astype(dtype)
        values = rng.integers(0, 60, (7, 11)).astype(dtype)
        if data.dtype.kind in "fc":
            values[1, 1] = np.nan
            data[: length // 10] = np.nan
        data.sort()
        for name, side in SIDES:
            found = getattr(km, name)(data, values.T)
            assert found.dtype == np.int64
            assert np.array_equal(found, np.searchsorted(data, values.T, side))


@settings(max_examples=40)
@given(
    st.lists(st.integers(-9, 9), max_size=40),
    st.lists(st.integers(-9, 9), min_size=1, max_size=40),
    st.sampled_from([("i4", "i4"), ("i4", "f8"), ("f4", "i8")]),
)
def test_any_lengths_and_types(data: list[int], values: list[int], types: tuple[str, str]) -> None:
    a, v = np.array(sorted(data), types[0]), np.array(values, types[1])
    for name, side in SIDES:
        assert np.array_equal(getattr(km, name)(a, v), np.searchsorted(a, v, side))


def test_a_comparator_says_what_comes_first() -> None:
    rng = np.random.default_rng(6)
    data, values = np.sort(rng.normal(size=500))[::-1], rng.normal(size=90)
    found = km.lower_bound(data, values, lambda a, b: a > b)
    assert np.array_equal(found, 500 - np.searchsorted(data[::-1], values, "right"))
    limit = 2.0
    near = km.upper_bound(data[::-1], values, lambda a, b: a + limit < b)
    assert np.array_equal(near, np.searchsorted(data[::-1] - limit, values, "right"))


def test_structs_are_searched_by_a_comparator() -> None:
    row = np.dtype([("key", "i4"), ("value", "f8")])
    data = np.array([(k // 2, k) for k in range(20)], row)
    found = km.lower_bound(data, np.array([3, 99]), lambda r, k: r.key < k)
    assert found.tolist() == [6, 20]


def test_data_in_no_order_give_some_place() -> None:
    rng = np.random.default_rng(7)
    data, values = rng.normal(size=333), rng.normal(size=2000)
    for found in (
        km.lower_bound(data, values),
        km.upper_bound(data, values, lambda a, b: a > a + b),
    ):
        assert found.min() >= 0
        assert found.max() <= 333


def test_results_go_to_out() -> None:
    out = np.full((2, 4), -1)
    data = np.array([1, 2, 3])
    km.lower_bound(data, np.array([[2, 9], [0, 3]]), out=out[:, ::2])
    assert out.tolist() == [[1, -1, 3, -1], [0, -1, 2, -1]]


@pytest.mark.host
def test_a_plan_takes_arrays_of_its_shapes() -> None:
    plan = km.upper_bound.plan(np.zeros(3, np.float32), np.zeros(2, np.float32))
    assert plan(np.float32([1, 2, 3]), np.float32([2, 5])).tolist() == [2, 3]
    assert km.lower_bound(np.array([1, 2, 3]), 3) == 2  # a number gives a number


FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: km.lower_bound(np.zeros((2, 2)), np.zeros(1)), km.ShapeError, "`data` has shape (2, 2); expected: one dimension"),
    (lambda: km.lower_bound(np.zeros(2), np.zeros(1), lambda a, b: a + b), km.DTypeError, "lambda returns float64; a comparator returns a bool"),
    (lambda: km.lower_bound(np.zeros(2, "c8"), np.zeros(1)), km.DTypeError, "`data` has elements of complex64, `values` of float64: they have no order"),
    (lambda: km.lower_bound(np.zeros(2), np.zeros(1), out=np.zeros(1)), km.DTypeError, "`out` has elements of float64; places are int64"),
    (lambda: km.lower_bound(np.zeros(2), np.zeros(1), out=np.zeros(2, int)), km.ShapeError, "`out` has shape (2,), the result has (1,)"),
    (lambda: km.lower_bound(np.zeros(2), np.zeros(1), out=(np.zeros(1, int), np.zeros(1, int))), km.ArgumentError, "`out` has 2 arrays for 1 results"),
    (lambda: km.lower_bound(np.zeros(2), np.zeros(1), 3), km.ArgumentError, "`comparator` expects a function or a km.op, got 3"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), FAULTS, ids=[f[2][:40] for f in FAULTS])
@pytest.mark.host
def test_bad_arguments_are_named(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == text  # type: ignore[attr-defined]
