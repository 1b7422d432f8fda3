"""Histograms and segments on the emulator under other orders of threads, and under its sanitizer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.algorithms.policy import segment_tree
from kernelmill.runtime.emulator.sanitizer import sanitized
from kernelmill.runtime.emulator.schedule import Order, Schedule, scheduled

pytestmark = pytest.mark.usefixtures("unoptimised")

TILE = segment_tree(4).tile
X = np.random.default_rng(1).integers(-9, 9, 5 * TILE + 3).astype(np.float32)
OFFSETS = np.array([0, 0, 5, 5, 1000, 3 * TILE + 1, 3 * TILE + 1, 4 * TILE, len(X), len(X)])
SUMS = [X[a:b].sum() for a, b in itertools.pairwise(OFFSETS)]


@pytest.mark.parametrize("order", get_args(Order))
def test_blocks_and_threads_may_run_in_any_order(order: Order) -> None:
    weights = np.arange(len(X)) % 7
    with km.Device("emulator"), scheduled(Schedule(order, seed=3)):
        assert np.array_equal(km.segmented_reduce(X, OFFSETS), SUMS)
        scanned = km.segmented_scan(X, OFFSETS)
        counts, _ = km.histogram(X, 18, range=(-9, 9), weights=weights)
    full = np.diff(OFFSETS) > 0
    assert np.array_equal(scanned[OFFSETS[1:][full] - 1], np.array(SUMS)[full])
    assert np.array_equal(counts, np.histogram(X, 18, range=(-9, 9), weights=weights)[0])


def test_the_sanitizer_finds_nothing() -> None:
    """No access outside, no race, nothing read that was not written."""
    x, offsets = X[: TILE + 77], np.array([0, 3, 3, 900, TILE + 77])
    with km.Device("emulator"), sanitized():
        found = km.segmented_reduce(x, offsets)
        counts, _ = km.histogram(x[:3000], 18, range=(-9, 9))
        summed = km.bincount(np.arange(500) % 9, weights=np.arange(500.0))
        places = km.lower_bound(np.arange(50), np.arange(-3, 60))
    assert np.array_equal(found, [x[a:b].sum() for a, b in itertools.pairwise(offsets)])
    assert np.array_equal(counts, np.histogram(x[:3000], 18, range=(-9, 9))[0])
    assert np.array_equal(summed, np.bincount(np.arange(500) % 9, weights=np.arange(500.0)))
    assert np.array_equal(places, np.searchsorted(np.arange(50), np.arange(-3, 60)))


@pytest.mark.parametrize(
    "offsets", [[-3, 70000, 2, 9, 4], pytest.param([5, 5, 1, 8, 8], marks=pytest.mark.slow)]
)
def test_offsets_in_no_order_read_nothing_outside(offsets: list[int]) -> None:
    """What a GPU is not asked to check: results are any, but nothing outside is touched."""
    from kernelmill.algorithms import segments

    x, places = X[:3000], np.array(offsets)
    with pytest.MonkeyPatch.context() as patch, km.Device("emulator"), sanitized():
        patch.setattr(segments, "check_offsets", lambda *_, **__: None)
        assert km.segmented_reduce(x, places).shape == (len(offsets) - 1,)


# ----------------------------------------------------------------------------- even lengths


def lengths_of(kind: str) -> np.ndarray:
    random = np.random.default_rng(7)
    if kind == "some late":  # two that are longer than others by far, and some of no elements
        lengths = random.integers(0, 9, 700)
        lengths[[100, 600]] = 300, 299
        return lengths
    low, high, count = {
        "ones": (1, 1, 2000), "mostly empty": (0, 1, 3000), "short": (5, 11, 400),
        "warps": (30, 90, 60), "long": (700, 900, 9),
    }[kind]  # fmt: skip
    return random.integers(low, high, count, endpoint=True)


EVEN = ("ones", "mostly empty", "short", "warps", "long", "some late")


def last(a: Any, b: Any) -> Any:
    """Return the second: an operator that does not commute."""
    return a * 0 + b


@pytest.mark.parametrize("kind", EVEN)
def test_even_lengths(kind: str) -> None:
    lengths = lengths_of(kind)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = np.random.default_rng(5).integers(-99, 99, offsets[-1])
    with km.Device("emulator"), sanitized():
        found = km.segmented_reduce(x, offsets, km.add, init=3)
        ended = km.segmented_reduce(x, offsets, last, init=3)
    sums = np.concatenate([[0], np.cumsum(x)])
    assert np.array_equal(found, sums[offsets[1:]] - sums[offsets[:-1]] + 3)
    assert np.array_equal(ended, np.where(lengths > 0, x[np.maximum(offsets[1:] - 1, 0)], 3))


def test_even_lengths_of_other_layouts() -> None:
    """Elements that lie apart, at odd addresses, and of another type than sums."""
    offsets = np.arange(0, 3001, 60)
    apart = np.arange(6000, dtype=np.float32)[::2]
    small = (np.arange(3000) % 9).astype(np.float16)
    odd = np.frombuffer(bytes(1) + small.tobytes(), np.float16, offset=1)
    with km.Device("emulator"):
        found = km.segmented_reduce(apart, offsets), km.segmented_reduce(odd, offsets)
    assert np.array_equal(found[0], np.add.reduceat(apart, offsets[:-1]))
    assert np.array_equal(found[1], np.add.reduceat(odd.astype("f4"), offsets[:-1]).astype("f2"))


MANY = {
    "short and long": [2] * 3000 + [9000] + [1, 0, 3] * 1000 + [300] * 20 + [20_000] + [64] * 100,
    "of one element": [1] * 20_000,
    "none, then one that is open for long": [0] * 3000 + [9000] + [0] * 500 + [0, 1] * 4500,
}


@pytest.mark.parametrize("kind", MANY)
def test_tiles_of_many_segments(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_EVENLY", replace(policy.segments_evenly(), most=0))
    offsets = np.concatenate([[0], np.cumsum(MANY[kind])])
    x = np.random.default_rng(5).integers(-99, 99, offsets[-1]).astype(np.float32)
    sums = np.concatenate([[0], np.cumsum(x, dtype=np.float64)])
    for used in (offsets, offsets[700:-700]):  # elements before and behind all segments
        with km.Device("emulator"), sanitized():
            found = km.segmented_reduce(x, used, km.add, init=3)
        assert np.array_equal(found, sums[used[1:]] - sums[used[:-1]] + 3)
