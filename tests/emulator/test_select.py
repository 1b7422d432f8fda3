"""The two ways of selections through their tiles, under adversarial orders and the sanitizer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import devices
import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled

pytestmark = pytest.mark.usefixtures("unoptimised")

SCHEDULES = (
    Schedule("reversed", blocks=4),
    Schedule("random", seed=3, blocks=4),
    Schedule("random", seed=11, blocks=3),
)
# Several tiles, the last one of every kind: whole, of one element, of a part of a packet.
SIZES = (8192 * 3, 8192 * 2 + 1, 8192 * 4 - 3, 5, 8192)


@pytest.fixture(params=["tiles", "ring"])
def way(request, monkeypatch):
    """Let every size take one of the ways; texts are compiled for chips too."""
    if request.param == "ring":
        rows = tuple(replace(row, least=1) for row in policy._RINGS)
        monkeypatch.setattr(policy, "_RINGS", rows)
    with pytest.MonkeyPatch.context() as patch:
        devices.on("emulator", patch)
        with km.Device("emulator"):
            yield request.param


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy at an address that the copy engine takes."""
    raw = np.empty(values.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    made = raw[start : start + values.nbytes].view(values.dtype)
    made[:] = values
    return made


def data(size: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(size)
    keys = np.repeat(random.integers(0, 4, size), random.integers(1, 5, size))[:size]
    return aligned(keys.astype(np.float32)), aligned(np.arange(size, dtype=np.float64))


def check(size: int) -> None:
    x, y = data(size)
    first = np.append(True, x[1:] != x[:-1])
    assert km.select(x, lambda v: v > 1).tolist() == x[x > 1].tolist()
    a, b, c = km.three_way_partition(x, lambda v: v > 2, lambda v: v > 0)
    assert np.array_equal(a, x[x > 2])
    assert np.array_equal(b, x[(x > 0) & (x <= 2)])
    assert np.array_equal(c, x[x <= 0])
    keys, values = km.unique_by_key(x, y)
    assert np.array_equal(keys, x[first])
    assert np.array_equal(values, y[first])
    values, lengths = km.run_length_encode(x)
    assert np.array_equal(values, x[first])
    assert np.array_equal(np.repeat(values, lengths), x)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_results_do_not_depend_on_who_runs_when(way, schedule):
    with scheduled(schedule):
        for size in SIZES:
            check(size)


@pytest.mark.parametrize("way", ["ring"], indirect=True)
def test_the_ring_serves_columns_of_other_sizes(way):
    x, y = data(20001)
    narrow, wide = aligned((x * 50).astype(np.uint8)), aligned(y + 1j)
    flags = aligned(x > 1)
    yes, no = km.partition((narrow, wide), flags=flags)
    assert np.array_equal(yes[0], narrow[flags])
    assert np.array_equal(yes[1], wide[flags])
    assert np.array_equal(no[0], narrow[~flags])
    assert np.array_equal(no[1], wide[~flags])
    triple = np.dtype([("a", "i4"), ("b", "i4"), ("c", "i4")], align=True)
    s = aligned(np.zeros(20001, triple))
    s["a"] = narrow
    first = np.append(True, narrow[1:] != narrow[:-1])
    assert np.array_equal(km.unique(s)["a"], narrow[first])


def test_what_does_not_fit_the_ring_takes_the_other_way(way):
    x, _ = data(20001)
    odd = x[1:]  # not at a multiple of 16
    assert np.array_equal(km.select(odd, lambda v: v > 1), odd[odd > 1])
    assert np.array_equal(km.select(x[::-1], lambda v: v > 1), x[::-1][x[::-1] > 1])


@pytest.mark.parametrize("schedule", SCHEDULES[1:2], ids=str)
def test_the_sanitizer_finds_nothing(way, schedule):
    with sanitized(), scheduled(schedule):
        check(8192 * 2 + 1)


def test_short_buffers_are_not_overrun(way):
    x, _ = data(20001)
    for room in (0, 1, 4097, 20000):
        held = np.full(room + 64, -7, np.float32)
        count = np.zeros(1, np.int64)
        kept = x[x < 3]
        if kept.size > room:
            with pytest.raises(km.ShapeError, match="has room for"):
                km.select(x, lambda v: v < 3, out=(held[:room], count))
        else:
            km.select(x, lambda v: v < 3, out=(held[:room], count))
        written = min(room, kept.size)
        assert count[0] == kept.size
        assert np.array_equal(held[:written], kept[:written])
        assert (held[written:] == -7).all()


def test_an_element_that_no_tile_holds_is_refused(way):
    wide = np.dtype([(f"f{i}", "f8") for i in range(8)])
    columns = tuple(np.zeros(4, wide) for _ in range(17))
    with pytest.raises(km.ArgumentError, match="has 1089 bytes; on a GPU up to 1024 are served"):
        km.select(columns, flags=np.ones(4, bool))
