"""Segments, histograms and calls by key whose elements are computed, and whose results go elsewhere."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from capability_table import there
from kernelmill import events

if TYPE_CHECKING:
    from collections.abc import Callable

it = km.iterators
N = 5000


def numbers(seed: int, most: int = 50, size: int = N) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, size)


def doubled(v: Any) -> Any:
    return v * 2


def of_both(a: Any, b: Any) -> Any:
    return a[0] + b[0], max(a[1], b[1])


def equal(found: Any, wanted: Any) -> None:
    """Compares a result, which is of a device where nothing came from the host."""
    np.testing.assert_array_equal(np.asarray(there(found)), wanted)


# ----------------------------------------------------------------------------- segments


CUTS = np.array([0, 3, 3, 4, 90, 3000, N])


def sums(x: np.ndarray) -> np.ndarray:
    return np.array([x[a:b].sum() for a, b in pairwise(CUTS)])


def test_segments_of_what_is_computed(place: str) -> None:
    del place
    x = numbers(1)
    with events.listen("copy") as copies:
        equal(km.segmented_reduce(it.transform(x, doubled), CUTS), sums(2 * x))
        equal(km.segmented_reduce(it.reverse(x), CUTS), sums(x[::-1]))
        equal(km.segmented_reduce(it.permutation(x, x), CUTS, init=5), sums(x[x]) + 5)
        counted = it.strided(it.counting(dtype="int32"), 1, count=N)
        equal(km.segmented_reduce(counted, CUTS), sums(np.arange(N)))
        both = km.segmented_reduce((x, it.reverse(x)), CUTS[2:], of_both)
    assert all(copy.reason != "iterator" for copy in copies)
    equal(both["f0"], sums(x)[2:])
    equal(both["f1"], [x[::-1][a:b].max() for a, b in pairwise(CUTS[2:])])


def test_scans_of_segments_of_what_is_computed(place: str) -> None:
    del place
    x = numbers(2)
    wanted = np.concatenate([np.cumsum(2 * x[a:b]) for a, b in pairwise(CUTS)])
    equal(km.segmented_scan(it.transform(x, doubled), CUTS), wanted)
    before = km.segmented_scan(it.transform(x, doubled), CUTS, exclusive=True)
    equal(before, wanted - 2 * x)


def test_results_of_segments_go_through_iterators(place: str) -> None:
    del place
    x, out, all_ = numbers(3), np.zeros(6, np.int64), np.zeros(N, np.int64)
    km.segmented_reduce(x, CUTS, out=it.reverse(out))
    equal(out[::-1], sums(x))
    km.segmented_reduce(x, (CUTS[:-1], CUTS[1:]), out=it.transform_output(out, doubled))
    equal(out, 2 * sums(x))
    km.segmented_reduce(it.reverse(x), CUTS, out=it.permutation(out, np.arange(6)[::-1]))
    equal(out[::-1], sums(x[::-1]))
    km.segmented_scan(it.reverse(x), CUTS, out=it.reverse(all_))
    equal(all_[::-1], km.segmented_scan(x[::-1], CUTS))
    km.segmented_scan(x, CUTS, out=it.discard())


def test_segments_of_one_length(place: str) -> None:
    del place
    x, out = numbers(4), np.zeros(500, np.int64)
    rows = (2 * x).reshape(500, 10)
    computed = it.transform(x, doubled)
    options: dict[str, Any] = {"segment_size": 10, "determinism": "device_to_device"}
    equal(km.segmented_reduce(computed, **options), rows.sum(axis=1))
    equal(km.segmented_reduce(it.transform(x, lambda v: v / 3), **options),
          km.segmented_reduce(x / 3, **options))  # fmt: skip
    equal(km.segmented_reduce(it.strided(it.counting(), 1, count=20), segment_size=5),
          np.arange(20).reshape(4, 5).sum(axis=1))  # fmt: skip
    equal(km.segmented_scan(computed, segment_size=10), np.cumsum(rows, axis=1).ravel())
    km.segmented_reduce(computed, segment_size=10, out=it.reverse(out))
    equal(out[::-1], rows.sum(axis=1))


# ----------------------------------------------------------------------------- histograms


def test_histograms_of_what_is_computed(place: str) -> None:
    del place
    x, weights = numbers(5), numbers(6) / 4
    y, computed = 2 * x, it.transform(x, doubled)
    with events.listen("copy") as copies:
        equal(km.histogram(computed, 7)[0], np.histogram(y, 7)[0])
        equal(km.histogram(computed, [0, 10, 60, 98])[0], np.histogram(y, [0, 10, 60, 98])[0])
        equal(km.histogram(x, 7, weights=it.reverse(weights))[0],
              np.histogram(x, 7, weights=weights[::-1])[0])  # fmt: skip
        equal(km.bincount(computed), np.bincount(y))
        equal(km.bincount(it.transform(x, lambda v: np.uint8(v))), np.bincount(x))
        equal(km.bincount(computed, weights=x), np.bincount(y, weights=x))
        first, second = km.histogram_even((computed, it.reverse(y)), 8, 0, 100)
        tail = km.histogram_range(it.strided(it.counting(), 1, count=100), [0, 10, 50])
    assert all(copy.reason != "iterator" for copy in copies)
    equal(first, np.histogram(y, 8, (0, 100))[0])
    equal(second, first)
    equal(tail, [10, 40])


def test_counts_go_through_iterators(place: str) -> None:
    del place
    x, out = numbers(7), np.zeros(6, np.int64)
    wanted = np.histogram(x, 6)[0]
    km.histogram(x, 6, out=it.reverse(out))
    equal(out[::-1], wanted)
    km.histogram(x.reshape(50, 100).T, 6, out=it.transform_output(out, doubled))
    equal(out, 2 * wanted)
    km.histogram_even((x, x[::-1]), 6, 0, 60, out=(it.discard(), out))
    equal(out, np.histogram(x, 6, (0, 60))[0])


def test_histograms_of_nothing_and_of_numbers_that_are_captured(place: str) -> None:
    del place
    x = numbers(8)
    assert km.bincount(it.reverse(x[:0])).size == 0
    equal(km.histogram(it.reverse(x[:0]), 3)[0], [0, 0, 0])
    for factor in (2, 3):
        found = km.histogram(it.transform(x, lambda v: v * factor), 5, range=(0, 200))[0]
        equal(found, np.histogram(x * factor, 5, (0, 200))[0])


# ----------------------------------------------------------------------------- by key


def runs(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[begins], np.add.reduceat(values, begins)


def test_keys_and_values_that_are_computed(place: str) -> None:
    del place
    keys, values = np.sort(numbers(9, 200)), numbers(10)
    K, V = it.transform(keys, doubled), it.transform(values, doubled)
    scan = km.inclusive_scan_by_key(keys, 2 * values)
    with events.listen("copy") as copies:
        for a, b in ((K, V), (keys, V), (K, 2 * values)):
            equal(km.inclusive_scan_by_key(a, b), scan)
        equal(km.exclusive_scan_by_key(K, V, init=3), scan - 2 * values + 3)
        found, totals = km.reduce_by_key(K, it.reverse(values))
        tens, of_tens = km.reduce_by_key(
            it.transform(it.counting(), lambda i: i // 10), values, km.maximum
        )
        each, ones = km.reduce_by_key(keys, it.constant(1))
    assert all(copy.reason != "iterator" for copy in copies)
    for a, b in zip((found, totals), runs(2 * keys, values[::-1]), strict=True):
        equal(a, b)
    equal(tens, np.arange(N // 10))
    equal(of_tens, values.reshape(-1, 10).max(axis=1))
    equal(ones, runs(keys, np.ones(N, int))[1])
    equal(each, np.unique(keys))


def test_results_by_key_go_through_iterators(place: str) -> None:
    del place
    keys, values = np.sort(numbers(11, 30)), numbers(12)
    wanted_keys, wanted = runs(keys, values)
    size = len(wanted)
    out, count = np.zeros(N, np.int64), np.zeros(1, np.int64)
    km.inclusive_scan_by_key(keys, values, out=it.reverse(out))
    equal(out[::-1], km.inclusive_scan_by_key(keys, values))
    found, totals = np.zeros(size, np.int64), np.zeros(2 * size, np.int64)
    km.reduce_by_key(keys, values, out=(it.reverse(found), totals[::2], count))
    assert count[0] == size
    equal(found[::-1], wanted_keys)
    equal(totals[::2], wanted)
    assert not totals[1::2].any()
    km.reduce_by_key(it.reverse(keys), values, out=(
        it.discard(), it.transform_output(totals, doubled), count))  # fmt: skip
    equal(totals[:size], 2 * runs(keys[::-1], values)[1])


def test_what_is_written_over_is_read_first(place: str) -> None:
    del place
    x = numbers(13)
    wanted = km.segmented_scan(2 * x, CUTS)
    km.segmented_scan(it.transform(x, doubled), CUTS, out=it.reverse(x))
    equal(x[::-1], wanted)
    x = numbers(14)
    wanted = km.inclusive_scan_by_key(x // 10, x[::-1])
    km.inclusive_scan_by_key(it.transform(x, lambda v: v // 10), it.reverse(x), out=it.reverse(x))
    equal(x[::-1], wanted)


# ----------------------------------------------------------------------------- refusals

X, W = np.arange(8), np.arange(8.0)
COUNT = np.zeros(1, np.int64)
REFUSED: dict[str, tuple[Callable[[], Any], type[km.KernelmillError], str]] = {
    "segments without end": (lambda: km.segmented_reduce(it.counting(), CUTS), km.ArgumentError,
                             "`x` has no end"),
    "equal segments without end": (lambda: km.segmented_reduce(it.counting(), segment_size=2),
                                   km.ArgumentError, "`x` has no end"),
    "a plan of equal segments": (
        lambda: km.segmented_reduce.plan(it.reverse(X), segment_size=2), km.ArgumentError,
        "`segment_size` with an iterator has no plan"),
    "offsets behind the end": (lambda: km.segmented_reduce(it.reverse(X), np.array([0, 9])),
                               km.ArgumentError,
                               "`offsets[1]` is 9; the limits are 0 and 8, the length of `x`"),
    "an output of segments that is too short": (
        lambda: km.segmented_reduce(X, np.array([0, 3, 8]), out=it.reverse(W[:1])), km.ShapeError,
        "`out` has 1 elements; expected: 2"),
    "counts without end": (lambda: km.histogram(it.counting(), 3, range=(0, 1)), km.ArgumentError,
                           "`x` has no end"),
    "numbers without end": (lambda: km.bincount(it.counting()), km.ArgumentError, "`x` has no end"),
    "weights of another length": (lambda: km.histogram(it.reverse(X), 3, weights=W[1:]),
                                  km.ShapeError, "`weights` has shape (7,), `x` has (8,)"),
    "structs to count": (lambda: km.histogram(it.zip(X, X), 3), km.DTypeError,
                         "`x` has elements of Struct, which have no order"),
    "channels of an iterator": (lambda: km.histogram_even(it.reverse(X), 3, 0, 1, channels=2),
                                km.ArgumentError,
                                "`channels` is for one array whose last axis holds the channels"),
    "counts into too few": (lambda: km.histogram(X, 3, out=it.reverse(W[:2])), km.ShapeError,
                            "`out` has 2 elements; expected: 3"),
    "counts into what is read only": (lambda: km.histogram(X, 3, out=it.counting()),
                                      km.ArgumentError,
                                      "an iterator of kind Counting cannot be written to"),
    "keys without end": (lambda: km.reduce_by_key(it.counting(), it.constant(1)), km.ArgumentError,
                         "reduce_by_key got iterators without an end"),
    "keys and values": (lambda: km.reduce_by_key(it.reverse(X), W[1:]), km.ShapeError,
                        "`keys` has 8 elements, `values` has 7"),
    "a count that is discarded": (
        lambda: km.reduce_by_key(X, W, out=(it.discard(), it.discard(), it.discard())),
        km.ArgumentError, "`out[2]` takes the count; accepted: an array"),
    "buffers that overlap": (
        lambda: km.reduce_by_key(X, X, out=(it.reverse(X), it.reverse(X), COUNT)),
        km.ArgumentError, "`out[0]` and `out[1]` overlap"),
    "keys into too few": (
        lambda: km.reduce_by_key(X, W, out=(it.reverse(np.zeros(3, int)), W.copy(), COUNT)),
        km.ShapeError, "`out[0]` has room for 3 elements, 8 were found"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        call()
