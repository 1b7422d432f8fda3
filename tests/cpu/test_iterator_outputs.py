"""Outputs that are iterators, or strided arrays, in scans and selections, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill import iterators as it

SIZES = (1, 1000, 9001)
GAIN = 3


def numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 4, n).astype(np.int32)


# ----------------------------------------------------------------------------- scans


@pytest.mark.parametrize("n", SIZES)
def test_a_scan_writes_backwards_apart_and_through_a_function(n: int, place: str) -> None:
    x = numbers(n)
    sums = np.cumsum(x, dtype=np.int64)
    backwards = np.zeros(n, np.int64)
    out = it.reverse(backwards)
    assert km.inclusive_scan(x, out=out) is out
    np.testing.assert_array_equal(backwards[::-1], sums)

    halves = np.zeros(n)
    km.inclusive_scan(it.reverse(x), out=it.transform_output(halves, lambda v: v * 0.5 + GAIN))
    np.testing.assert_array_equal(halves, np.cumsum(x[::-1]) * 0.5 + GAIN)

    apart = np.full(2 * n, -1, np.int16)
    km.exclusive_scan(x, init=7, out=it.strided(apart, 2))
    np.testing.assert_array_equal(apart[::2], sums - x + 7)
    assert (apart[1::2] == -1).all()


@pytest.mark.parametrize("n", SIZES)
def test_a_scan_writes_to_places_and_to_several_arrays(n: int, place: str) -> None:
    x = numbers(n)
    order = np.random.default_rng(n).permutation(n)
    made = np.zeros(n, np.int64)
    km.exclusive_scan(x, km.maximum, init=1, out=it.permutation(made, order))
    wanted = np.maximum.accumulate(np.concatenate([[1], x[:-1]]))
    np.testing.assert_array_equal(made[order], wanted)

    sums, last = np.zeros(n, np.int64), np.zeros(n, np.int64)
    km.inclusive_scan(it.zip(x, it.counting()), both, out=it.zip(it.reverse(sums), last))
    np.testing.assert_array_equal(sums[::-1], np.cumsum(x))
    np.testing.assert_array_equal(last, np.arange(n))
    km.inclusive_scan(it.zip(x, it.counting()), both, out=it.zip(it.discard(), last))
    assert km.inclusive_scan(x, out=(nothing := it.discard())) is nothing
    twos = it.strided(it.constant(2), 1, count=n)
    km.inclusive_scan(twos, out=it.reverse(sums))
    np.testing.assert_array_equal(sums[::-1], 2 * np.arange(1, n + 1))


def both(a: Any, b: Any) -> Any:
    return a[0] + b[0], max(a[1], b[1])


def test_a_scan_reads_first_what_it_writes_over(place: str) -> None:
    x = numbers(5000).astype(np.int64)
    wanted = np.cumsum(x)
    km.inclusive_scan(x, out=it.reverse(x))
    np.testing.assert_array_equal(x[::-1], wanted)


def test_outputs_of_scans_that_are_refused() -> None:
    x, short = np.arange(5), np.zeros(4, np.int64)
    with pytest.raises(km.ShapeError, match="`out` has 4 elements; expected: 5"):
        km.inclusive_scan(x, out=it.reverse(short))
    with pytest.raises(km.DTypeError, match="a result is float64, `out` has int64: not of the sam"):
        km.inclusive_scan(x * 0.5, out=it.reverse(np.zeros(5, np.int64)))
    with pytest.raises(km.ArgumentError, match="of kind Counting cannot be written to"):
        km.inclusive_scan(x, out=it.counting())
    with pytest.raises(km.ShapeError, match=r"`x` has shape \(2, 2\); expected: one dim"):
        km.inclusive_scan(np.zeros((2, 2)), out=it.discard())


# ----------------------------------------------------------------------------- selections


@pytest.mark.parametrize("n", SIZES)
def test_a_selection_writes_apart_backwards_and_through_a_function(n: int, place: str) -> None:
    x = numbers(n)
    wanted, count = x[x > 1], np.zeros(1, np.int64)
    apart = np.full(2 * n, -1, np.int32)
    out = apart[::2], count
    assert km.select(x, lambda v: v > 1, out=out) is out
    assert count[0] == len(wanted)
    np.testing.assert_array_equal(apart[::2][: len(wanted)], wanted)
    assert (apart[1::2] == -1).all()
    assert (apart[::2][len(wanted) :] == -1).all()

    backwards, count = np.full(n, -1), np.zeros(1, np.int32)
    given = it.transform_output(it.reverse(backwards), lambda v: v * 2 + GAIN), count
    assert km.select(it.reverse(x), lambda v: v > 1, out=given) is given
    assert count[0] == len(wanted)
    np.testing.assert_array_equal(backwards[::-1][: len(wanted)], wanted[::-1] * 2 + GAIN)
    assert (backwards[::-1][len(wanted) :] == -1).all()


@pytest.mark.parametrize("n", SIZES)
def test_each_part_goes_where_it_is_sent(n: int, place: str) -> None:
    x, count = numbers(n), np.zeros(1, np.int64)
    large, rest = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    km.partition(x, lambda v: v > 1, out=(large, it.reverse(rest), count))
    np.testing.assert_array_equal(large[: count[0]], x[x > 1])
    np.testing.assert_array_equal(rest[::-1][: n - count[0]], x[x <= 1])

    counts, moved = np.zeros(2, np.int32), np.full(n, -1, np.int32)
    km.three_way_partition(
        x, lambda v: v > 2, lambda v: v == 0,
        out=(large, it.discard(), it.transform_output(moved, lambda v: v + GAIN), counts),
    )  # fmt: skip
    np.testing.assert_array_equal(counts, [(x > 2).sum(), (x == 0).sum()])
    others = x[(x <= 2) & (x != 0)]
    np.testing.assert_array_equal(moved[: len(others)], others + GAIN)


@pytest.mark.parametrize("n", SIZES)
def test_runs_and_their_lengths_go_where_they_are_sent(n: int, place: str) -> None:
    x, count = numbers(n), np.zeros(1, np.int64)
    begins = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
    runs, lengths = np.full(n, -1, np.int32), np.full(n, -1, np.int16)
    km.run_length_encode(x, out=(runs, it.reverse(lengths), count))
    assert count[0] == len(begins)
    np.testing.assert_array_equal(runs[: len(begins)], x[begins])
    np.testing.assert_array_equal(lengths[::-1][: len(begins)], np.diff(begins, append=n))
    order, places = np.random.default_rng(n).permutation(n), np.full(n, -1)
    out = it.discard(), it.permutation(places, order), count
    km.unique_by_key(x, it.counting(), out=out)
    np.testing.assert_array_equal(places[order][: len(begins)], begins)
    pairs = np.full(n, -1), np.full(n, -1, np.int32)
    km.unique(it.zip(it.counting(), x), equal=lambda a, b: a[1] == b[1],
              out=(it.zip(*pairs), count))  # fmt: skip
    np.testing.assert_array_equal(pairs[0][: len(begins)], begins)
    np.testing.assert_array_equal(pairs[1][: len(begins)], x[begins])


def test_a_selection_reads_first_what_it_writes_over(place: str) -> None:
    x, count = numbers(5000), np.zeros(1, np.int64)
    wanted = x[x > 1]
    km.select(x, lambda v: v > 1, out=(it.reverse(x), count))
    np.testing.assert_array_equal(x[::-1][: len(wanted)], wanted)


def test_outputs_of_selections_that_are_refused() -> None:
    x, count = np.arange(5), np.zeros(1, np.int64)
    room = np.full(3, -1)
    with pytest.raises(km.ShapeError, match=r"`out\[0\]` has room for 3 elements, 4 were found"):
        km.select(x, lambda v: v > 0, out=(it.reverse(room), count))
    np.testing.assert_array_equal(room, [3, 2, 1])
    with pytest.raises(km.DTypeError, match=r"a result is int64, `out\[0\]` has bool: not of the"):
        km.select(x, lambda v: v > 0, out=(it.reverse(np.zeros(5, bool)), count))
    with pytest.raises(km.ArgumentError, match=r"`out\[1\]` takes the counts; accepted: a contig"):
        km.select(x, lambda v: v > 0, out=(it.discard(), it.discard()))
    with pytest.raises(km.ArgumentError, match=r"`out\[0\]` and `out\[1\]` overlap"):
        km.partition(x, lambda v: v > 0, out=(it.reverse(x), x, count))
    with pytest.raises(
        km.ShapeError, match=r"`out\[0\]` has shape \(5, 1\); accepted: arrays of on"
    ):
        km.select(x, lambda v: v > 0, out=(np.zeros((5, 1)), count))
