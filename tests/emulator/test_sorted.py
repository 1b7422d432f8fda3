"""The first of an order and sorted segments on the emulator: small blocks, orders of blocks, faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import devices
import kernelmill as km
from kernelmill.algorithms import policy_radix
from kernelmill.algorithms.policy_radix import RadixTile, SegmentedRows, TopkPolicy
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled
from sorted_order import order

# Blocks of 128 threads that hold 512 elements; rows of 600 are read by one alone.
SMALL = TopkPolicy(128, 512, 100, alone=600, blocks=2, sample=8)
# Blocks of 1024 elements; segments of 5000 are sorted as arrays.
ROWS = SegmentedRows(RadixTile(8, 8, 1 << 62, 8, 4), long=5000)
LENGTHS = (0, 1, 2, 8, 9, 32, 33, 0, 100, 512, 513, 1024, 1025, 2500, 1, 5, 31, 64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let some hundred elements take all ways; run what a test sorts on the emulator."""
    monkeypatch.setattr(policy_radix, "_TOPK", {"bulk": SMALL, "plain": SMALL})
    monkeypatch.setattr(policy_radix, "_SEGMENTED_ROWS", {"bulk": ROWS, "plain": ROWS})
    devices.on("emulator", monkeypatch)
    with km.Device("emulator"):
        yield


def sample(name: str, size: int) -> np.ndarray:
    """Any bits that a type has, many of them equal, with everything that floats have."""
    dtype = np.dtype(name)
    random = np.random.default_rng([size, dtype.itemsize])
    if name == "?":
        return random.random(size) < 0.4
    x = np.frombuffer(random.bytes(size * dtype.itemsize), dtype).copy()
    x[: size // 3] = x[:1]
    if dtype.kind == "f":
        at = random.permutation(size)[: size // 2]
        x[at] = random.choice(np.array([0.0, -0.0, np.nan, -np.nan, np.inf], dtype), at.size)
    random.shuffle(x)
    return x


# ----------------------------------------------------------------------------- topk


@pytest.mark.parametrize("name", ["?", "f2", "f4", "i8", "c8"])
def test_the_first_of_an_order(name):
    for size in (1, 129, 601, 9000):
        x = sample(name, size)
        for k, largest in ((0, True), (1, False), (60, True), (100, True)):
            if k <= size:
                wanted = order(x, descending=largest)[:k]
                values, places = km.topk(x, k, largest)
                assert places.dtype == np.int64
                assert np.array_equal(places, wanted)
                assert values.tobytes() == x[wanted].tobytes()


def test_more_than_a_block_holds_and_wider_elements_are_sorted():
    for name, k in (("f4", 300), ("c16", 5)):
        x = sample(name, 1000)
        wanted = order(x, descending=True)[:k]
        values, places = km.topk(x, k)
        assert np.array_equal(places, wanted)
        assert values.tobytes() == x[wanted].tobytes()
    rows = sample("i4", 1800).reshape(2, 900)
    wanted = np.argsort(rows, kind="stable")[:, :200]
    assert np.array_equal(km.batched_topk(rows, 200, largest=False)[1], wanted)


def test_rows_along_any_axis():
    x = sample("i2", 3 * 700 * 4).reshape(3, 700, 4)
    for axis in range(3):
        values, places = km.topk(x, 3, largest=False, axis=axis)
        wanted = np.argsort(x, axis=axis, kind="stable").take(range(3), axis=axis)
        assert np.array_equal(places, wanted)
        assert np.array_equal(values, np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize(
    "make", [np.zeros, np.arange, lambda n: np.arange(n)[::-1].copy()], ids=["same", "up", "down"]
)
def test_data_that_are_hard_on_limits(make):
    x = make(4000).astype("f4")
    for largest in (True, False):
        wanted = order(x, descending=largest)[:50]
        assert np.array_equal(km.topk(x, 50, largest)[1], wanted)


@pytest.mark.parametrize("which", [1, 100])
def test_a_limit_that_leaves_too_little_or_too_much(monkeypatch, which):
    limited = replace(SMALL, room=1 if which > 1 else 4)
    monkeypatch.setattr(policy_radix, "_TOPK", {"bulk": limited, "plain": limited})
    monkeypatch.setattr(TopkPolicy, "which", lambda *_: which)
    x = sample("f4", 5000)
    assert np.array_equal(km.topk(x, 90)[1], order(x, descending=True)[:90])


@pytest.mark.parametrize("schedule", [Schedule("reversed"), Schedule("random", seed=5)], ids=str)
def test_who_runs_when_does_not_matter(schedule):
    x = sample("f4", 3000)
    wanted = order(x, descending=True)[:40]
    offsets = np.concatenate([[0], np.cumsum(LENGTHS[:12])])
    y = sample("i4", int(offsets[-1]))
    with scheduled(schedule):
        assert np.array_equal(km.topk(x, 40)[1], wanted)
        assert np.array_equal(km.segmented_sort(y, offsets), y[in_segments(y, offsets)])


def test_the_sanitizer_finds_nothing():
    x = sample("f4", 1500)
    offsets = np.array([3, 4, 20, 200, 900, 1490])
    with sanitized():
        assert np.array_equal(km.topk(x, 9)[1], order(x, descending=True)[:9])
        keys, values = km.segmented_sort(x, offsets, values=np.arange(1500, dtype="u4"))
    wanted = in_segments(x, offsets)
    assert keys.tobytes() == x[wanted].tobytes()
    assert np.array_equal(values, wanted)


# ----------------------------------------------------------------------------- segments


def in_segments(x: np.ndarray, offsets: np.ndarray, *, descending: bool = False) -> np.ndarray:
    """The places of elements that are sorted in their segments."""
    places = np.arange(len(x))
    for begin, end in pairwise(offsets):
        places[begin:end] = begin + order(x[begin:end], descending=descending)
    return places


@pytest.mark.parametrize("name", ["?", "f2", "f4", "i8", "c8"])
def test_segments_of_all_lengths(name):
    offsets = np.concatenate([[3], 3 + np.cumsum(LENGTHS)])
    x = sample(name, int(offsets[-1]) + 5)
    for descending in (False, True):
        wanted = in_segments(x, offsets, descending=descending)
        found = km.segmented_sort(x, offsets, descending=descending)
        assert found.tobytes() == x[wanted].tobytes()
        for values in (np.arange(x.size, dtype="u4"), np.arange(x.size).astype("i2")):
            keys, moved = km.segmented_sort(
                x, offsets.astype("i4"), values=values, descending=descending
            )
            assert keys.tobytes() == x[wanted].tobytes()
            assert np.array_equal(moved, values[wanted])


def test_long_segments_and_results_over_their_input():
    x = sample("f4", 15_000)
    offsets = np.array([0, 100, 12_000, 12_003, 15_000])
    wanted = in_segments(x, offsets)
    numbers = np.arange(x.size)
    keys, (places, small) = km.segmented_sort(x, offsets, values=(numbers, numbers.astype("i2")))
    assert keys.tobytes() == x[wanted].tobytes()
    assert np.array_equal(places, wanted)
    assert np.array_equal(small, numbers.astype("i2")[wanted])
    over = x.copy()
    km.segmented_sort(over, offsets, out=over)
    assert over.tobytes() == x[wanted].tobytes()
    odd = x[::2]
    found = km.segmented_sort(odd, np.array([0, 3000, 7500]))
    assert found.tobytes() == odd[in_segments(odd, np.array([0, 3000, 7500]))].tobytes()


def test_no_segments_and_no_elements():
    x = sample("f4", 40)
    assert km.segmented_sort(x, np.array([7])).tobytes() == x.tobytes()
    assert km.segmented_sort(x[:0], np.array([0, 0])).size == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i1", "u1", "i2", "u2", "i4", "u4", "u8", "f8"])
def test_all_other_types(name):
    x = sample(name, 2000)
    offsets = np.array([0, 5, 400, 2000])
    assert km.segmented_sort(x, offsets).tobytes() == x[in_segments(x, offsets)].tobytes()
    assert np.array_equal(km.topk(x, 33)[1], order(x, descending=True)[:33])


@pytest.mark.slow
def test_the_blocks_of_the_table(monkeypatch):
    monkeypatch.setitem(policy_radix._TOPK, "bulk", TopkPolicy(1024, 4096, 1024, alone=5000))
    x = sample("f4", 70_000)
    assert np.array_equal(km.topk(x, 500)[1], order(x, descending=True)[:500])
