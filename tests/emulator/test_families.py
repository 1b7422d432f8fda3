"""Histograms, searches, reductions and transforms on the emulator: blocks of several sizes, orders.

Scans, selections, sorts and segments have files of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled

SCHEDULES = (Schedule(), Schedule("reversed", blocks=3), Schedule("random", seed=4, blocks=4))
RANDOM = np.random.default_rng(9)
BYTES = RANDOM.integers(0, 256, 20011).astype(np.uint8)
WIDE = RANDOM.integers(-500, 500, 30007).astype(np.int32)
FLOATS = RANDOM.normal(size=30007).astype(np.float32)
SORTED = np.sort(RANDOM.integers(0, 4000, 5003)).astype(np.int64)


@pytest.fixture(params=[128, 512])
def threads(request, monkeypatch):
    """Give histograms and searches blocks of so many threads, whatever the tables say."""
    kinds = (policy.HistogramPolicy, policy.SearchPolicy)
    changed = 0
    for name, value in list(vars(policy).items()):
        rows = value if isinstance(value, tuple) else (value,)
        if rows and all(isinstance(row, kinds) for row in rows):
            made = tuple(replace(row, threads=request.param) for row in rows)
            monkeypatch.setattr(policy, name, made if isinstance(value, tuple) else made[0])
            changed += 1
    assert changed == len(kinds)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_histograms_and_searches_give_numpy_s_values(threads, schedule):
    edges = np.linspace(-3, 3, 41, dtype=np.float32)
    with km.Device("emulator"), scheduled(schedule):
        assert np.array_equal(km.bincount(BYTES), np.bincount(BYTES))
        counts, _ = km.histogram(WIDE, 100, range=(-500, 500))
        assert np.array_equal(counts, np.histogram(WIDE, 100, range=(-500, 500))[0])
        counts, _ = km.histogram(FLOATS, edges)
        assert np.array_equal(counts, np.histogram(FLOATS, edges)[0])
        for find, side in ((km.lower_bound, "left"), (km.upper_bound, "right")):
            found = find(SORTED, SORTED[::3] + 1)
            assert np.array_equal(found, np.searchsorted(SORTED, SORTED[::3] + 1, side))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_reductions_and_transforms_give_the_bits_of_the_cpu(schedule):
    def run():
        rows = FLOATS[:30000].reshape(100, 300)
        return [
            km.reduce(FLOATS, km.add, determinism="device_to_device"),
            km.reduce(WIDE, lambda a, b: max(a, b)),
            km.reduce(rows, km.add, axis=0, determinism="device_to_device"),
            km.reduce(rows, km.add, axis=1, determinism="device_to_device"),
            km.transform((FLOATS, WIDE), lambda x, y: x * 2 + y),
            km.adjacent_difference(WIDE),
        ]

    with km.Device("cpu"):
        wanted = run()
    with km.Device("emulator"), scheduled(schedule):
        found = run()
    for one, other in zip(found, wanted, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_the_sanitizer_finds_nothing():
    with km.Device("emulator"), scheduled(SCHEDULES[2]), sanitized():
        assert np.array_equal(km.bincount(BYTES[:3001]), np.bincount(BYTES[:3001]))
        assert km.histogram(WIDE[:3001], 100, range=(-500, 500))[0].sum() == 3001
        found = km.lower_bound(SORTED[:801], SORTED[:200] + 1)
        assert np.array_equal(found, np.searchsorted(SORTED[:801], SORTED[:200] + 1))
        assert km.reduce(WIDE[:3001], km.add) == WIDE[:3001].sum()
