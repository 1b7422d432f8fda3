"""Histograms and segments on the emulator under other orders of threads, and under its sanitizer."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest

import kernelmill as km
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
        patch.setattr(segments, "_checked_on_host", lambda *_: None)
        assert km.segmented_reduce(x, places).shape == (len(offsets) - 1,)
