"""Selections, segments, histograms, searches and calls by key at once, and without memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.cuda

SIZES = (1000, 70_001, 1 << 20)


def families(torch: Any, size: int, seed: int) -> list[tuple[Callable[[], Any], np.ndarray]]:
    """Calls on arrays of the device, and what they give."""
    x = np.random.default_rng(seed).integers(0, 1000, size)
    keys, offsets = np.sort(x) // 10, np.array([0, size // 3, size // 3 + 1, size])
    given, sorted_, by, cuts = (
        torch.tensor(a, device="cuda") for a in (x, np.sort(x), keys, offsets)
    )
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return [
        (lambda: km.select(given, lambda v: v > 500), x[x > 500]),
        (lambda: km.segmented_reduce(given, cuts), np.add.reduceat(x, offsets[:-1])),
        (lambda: km.histogram(given, 100, range=(0, 1000))[0],
         np.histogram(x, 100, range=(0, 1000))[0]),
        (lambda: km.lower_bound(sorted_, given), np.searchsorted(np.sort(x), x)),
        (lambda: km.reduce_by_key(by, given)[1], np.add.reduceat(x, begins)),
        (lambda: km.unique(by), keys[begins]),
    ]  # fmt: skip


def test_threads_with_streams_of_their_own(torch: Any) -> None:
    calls = [families(torch, size, seed) for seed, size in enumerate(SIZES * 3)]
    torch.cuda.synchronize()

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for turn in range(8):
                for call, wanted in calls[number][turn % 2 :: 1]:
                    np.testing.assert_array_equal(call().cpu().numpy(), wanted)

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(work, range(len(calls))))


def test_without_memory_all_stays_usable(torch: Any) -> None:
    size = 1 << 24
    x = torch.arange(size, device="cuda")
    offsets = torch.arange(size + 1, device="cuda")
    calls: list[Callable[[], Any]] = [
        lambda: km.select(x, lambda v: v >= 0),
        lambda: km.unique(x),
        lambda: km.inclusive_scan(x),
        lambda: km.segmented_reduce(x, offsets),
        lambda: km.lower_bound(x, x),
        lambda: km.reduce_by_key(x, x)[1],
    ]
    wanted = [call().cpu().numpy() for call in calls]
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(free - (96 << 20), dtype=torch.uint8, device="cuda")
    for call in calls:
        with pytest.raises((torch.OutOfMemoryError, km.DeviceError)):
            call()
    assert int(km.reduce(x[:1000])) == 499_500  # what needs no memory is computed
    del hog
    torch.cuda.empty_cache()
    for call, right in zip(calls, wanted, strict=True):
        np.testing.assert_array_equal(call().cpu().numpy(), right)
