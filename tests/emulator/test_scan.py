"""Look-back and the ring of stages, whatever order threads and blocks run in, under the sanitizer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.runtime import devices as registry
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("unoptimised")

# At most so many blocks are under way at a time; "reversed" starts threads from the last one.
SCHEDULES = (
    Schedule(),
    Schedule("reversed", blocks=3),
    Schedule("random", seed=1, blocks=4),
    Schedule("random", seed=2, blocks=1),
    Schedule("random", seed=3, blocks=2),
)
TILE = 6144


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    with km.Device("emulator"):
        yield


@pytest.fixture(params=["tiles", "ring"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Send scans through the ring whatever their size, or never."""
    least = 1 if request.param == "ring" else 1 << 40
    rows = tuple(
        replace(row, least=least, most=1 << 62, stages=min(row.stages, 3)) for row in policy._RINGS
    )
    monkeypatch.setattr(policy, "_RINGS", rows)
    return str(request.param)


def later(a: float, b: float) -> float:
    return a * 0.5 + b  # not associative: any other order has other bits


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_order_gives_the_same_bits(way: str, schedule: Schedule) -> None:
    x = np.random.default_rng(1).normal(size=7 * TILE + 77).astype(np.float32)
    plan = km.inclusive_scan.plan(x)
    assert ("scan_ring" in plan.source) == (way == "ring")
    with scheduled(schedule):
        found = km.inclusive_scan(x)
    with km.Device("cpu"):
        np.testing.assert_array_equal(found, km.inclusive_scan(x))


@pytest.mark.parametrize("dtype", ["f4", "i8", "c16"])
@pytest.mark.usefixtures("way")
def test_nothing_is_found_by_the_sanitizer(dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 9, 5 * TILE // 3 + 3).astype(dtype)
    with ExitStack() as stack:
        stack.enter_context(scheduled(Schedule("random", seed=5, blocks=3)))
        stack.enter_context(sanitized())
        found = km.inclusive_scan(x)
    np.testing.assert_array_equal(found, np.cumsum(x))


def test_keys_under_the_sanitizer() -> None:
    keys = np.arange(4000) // 7
    with scheduled(Schedule("reversed", blocks=2)), sanitized():
        found, totals = km.reduce_by_key(keys, np.ones(4000, np.int32))
    np.testing.assert_array_equal(found, np.arange(572))
    np.testing.assert_array_equal(totals, np.bincount(keys))


@pytest.mark.parametrize("size", [1, 15, TILE - 1, TILE, TILE + 1, 3 * TILE + 1, 131 * TILE + 5])
@pytest.mark.usefixtures("way")
def test_ends_and_groups(size: int) -> None:
    x = np.random.default_rng(size).integers(0, 100, size).astype(np.int32)
    np.testing.assert_array_equal(
        km.inclusive_scan(x, dtype=np.int32), np.cumsum(x, dtype=np.int32)
    )


@pytest.mark.usefixtures("way")
def test_results_wider_than_elements_and_first_values() -> None:
    x = np.random.default_rng(2).integers(0, 100, 3 * TILE + 11).astype(np.int16)
    np.testing.assert_array_equal(km.inclusive_scan(x), np.cumsum(x, dtype=np.int64))
    found = km.exclusive_scan(x, init=5, dtype=np.int64)
    np.testing.assert_array_equal(found, np.cumsum(x, dtype=np.int64) - x + 5)
    values = x.astype(np.float64)
    found = km.inclusive_scan(values, later)
    with km.Device("cpu"):
        np.testing.assert_array_equal(found, km.inclusive_scan(values, later))


def test_unaligned_arrays_leave_the_ring(way: str) -> None:
    x = np.arange(2 * TILE + 1, dtype=np.int32)[1:]
    plan = km.inclusive_scan.plan(x, dtype=np.int32)
    aligned = x.ctypes.data % 16 == 0
    assert ("scan_ring" in plan.source) == (way == "ring" and aligned)
    np.testing.assert_array_equal(plan(x), np.cumsum(x, dtype=np.int32))


def test_chips_without_bulk_copies_get_tiles(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del way
    monkeypatch.setattr(registry.backend_named("emulator"), "arch", "sm_80")
    x = np.arange(3 * TILE, dtype=np.float32)
    plan = km.inclusive_scan.plan(x)
    assert "scan_ring" not in plan.source
    with km.Device("cpu"):
        wanted = km.inclusive_scan(x)
    np.testing.assert_array_equal(plan(x), wanted)
