"""Inputs that are iterators, read in place by families with loops of their own, on every device."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill import iterators as it

DATA = np.sort(np.random.default_rng(1).integers(0, 1000, 777)).astype(np.int32)
SHIFT = 3


@pytest.mark.parametrize("n", [0, 1, 300, 5000])
def test_values_are_searched_for_as_they_are_computed(n: int, place: str) -> None:
    values = np.random.default_rng(n).integers(-5, 1010, n).astype(np.int32)
    with events.listen("copy") as copies:
        found = km.lower_bound(DATA, it.transform(it.reverse(values), lambda v: v + SHIFT))
    assert all(copy.reason != "iterator" for copy in copies)
    np.testing.assert_array_equal(found, np.searchsorted(DATA, values[::-1] + SHIFT))
    order = np.random.default_rng(2).permutation(n)
    places = np.zeros(n, np.int64)
    apart = DATA[::2]
    assert km.upper_bound(apart, it.permutation(values, order), out=places) is places
    np.testing.assert_array_equal(places, np.searchsorted(apart, values[order], side="right"))


def test_values_of_several_fields_and_data_that_are_computed(place: str) -> None:
    values = np.arange(-5, 1200, 7, dtype=np.int32)
    found = km.lower_bound(DATA, it.zip(values, it.counting()), lambda d, v: d * 2 < v[0] + SHIFT)
    np.testing.assert_array_equal(found, np.searchsorted(DATA * 2, values + SHIFT))
    fifty = it.strided(it.counting(), 1, count=50)
    with events.listen("copy") as copies:
        doubled = km.upper_bound(it.transform(DATA, lambda d: d * 2), values)
        far = km.lower_bound(it.strided(it.counting(), 1, count=1 << 40), np.array([1 << 39, 7]))
    assert all(copy.reason != "iterator" for copy in copies)
    np.testing.assert_array_equal(doubled, np.searchsorted(DATA * 2, values, side="right"))
    assert far.tolist() == [1 << 39, 7]
    square = km.lower_bound(it.reverse(DATA[::-1].copy()), values[:100].reshape(10, 10))
    np.testing.assert_array_equal(square, np.searchsorted(DATA, values[:100].reshape(10, 10)))
    found = np.zeros(60, np.int64)  # there is no array but this one to decide what a result is
    assert km.lower_bound(fifty, it.strided(it.counting(), 2, count=60), out=found) is found
    np.testing.assert_array_equal(found, np.minimum(np.arange(0, 120, 2), 50))
    assert not km.lower_bound(DATA[:0], it.reverse(values)).any()


def test_values_without_end_are_refused() -> None:
    with pytest.raises(km.ArgumentError, match="`data` has no end"):
        km.lower_bound(it.counting(), DATA)
    with pytest.raises(km.ArgumentError, match="`values` has no end"):
        km.lower_bound(DATA, it.counting(0))
    with pytest.raises(km.DTypeError, match="a comparator returns a bool"):
        km.upper_bound(DATA, it.reverse(DATA), lambda a, b: a - b)
