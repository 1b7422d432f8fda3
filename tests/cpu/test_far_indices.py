"""More elements than 32 bits can number, without memory for them: iterators, and pages of zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from capability_table import there
from kernelmill.algorithms.capabilities import absence

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

it = km.iterators
N = (1 << 32) + 1000
LAST = 4


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def far(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device that is current."""
    if absence(request.param):
        pytest.skip(absence(request.param))
    with km.Device(request.param):
        yield request.param


def numbers() -> Any:
    return it.strided(it.counting(), 1, count=N)


def ones() -> Any:
    return it.strided(it.constant(np.int64(1)), 1, count=N)


def the_last(kept: np.ndarray) -> Any:
    """Where results go of which the last ones are kept."""
    return it.permutation(kept, it.transform(it.counting(), lambda i: i - (N - LAST)))


def test_reductions(far: str) -> None:
    del far
    assert there(km.reduce(ones())) == N
    assert there(km.reduce(numbers(), km.maximum)) == N - 1
    assert there(km.argmax(numbers())) == N - 1


def test_scans(far: str) -> None:
    del far
    kept = np.zeros(LAST, np.int64)
    km.inclusive_scan(ones(), out=the_last(kept))
    assert kept.tolist() == list(range(N - LAST + 1, N + 1))
    km.inclusive_scan_by_key(it.transform(numbers(), lambda i: i < 5), ones(), out=the_last(kept))
    assert kept.tolist() == list(range(N - LAST - 4, N - 4))


def test_selections(far: str) -> None:
    del far
    kept, count = np.zeros(LAST, np.int64), np.zeros(1, np.int64)
    km.select(numbers(), lambda i: i >= N - LAST, out=(kept, count))
    assert (kept.tolist(), count[0]) == (list(range(N - LAST, N)), LAST)
    assert km.unique_count(it.transform(numbers(), lambda i: i >> 31)) == 3


def test_histograms(far: str) -> None:
    del far
    edges = [0, 10, 1 << 32, N]
    assert there(km.histogram_range(numbers(), edges)).tolist() == [10, (1 << 32) - 10, 1000]
    found = km.bincount(it.transform(numbers(), lambda i: i >> 31))
    assert there(found).tolist() == [1 << 31, 1 << 31, 1000]


def test_segments(far: str) -> None:
    del far
    offsets = np.array([0, 3, (1 << 32) + 5, (1 << 32) + 6, N])
    assert km.segmented_reduce(ones(), offsets).tolist() == np.diff(offsets).tolist()
    assert (
        km.segmented_reduce(numbers(), offsets, km.maximum).tolist() == (offsets[1:] - 1).tolist()
    )


def test_by_key(far: str) -> None:
    del far
    keys, totals, count = (np.zeros(n, np.int64) for n in (3, 3, 1))
    halves = it.transform(numbers(), lambda i: i >> 31)
    km.reduce_by_key(halves, ones(), out=(keys, totals, count))
    assert keys.tolist() == [0, 1, 2]
    assert totals.tolist() == [1 << 31, 1 << 31, 1000]
    assert count[0] == 3


def test_searches(far: str) -> None:
    del far
    data = np.zeros(N, np.uint8)  # pages that are never read take no memory
    data[-7:] = 1
    assert km.lower_bound(data, np.array([0, 1, 2], np.uint8)).tolist() == [0, N - 7, N]
    assert km.upper_bound(data, np.array([0, 1], np.uint8)).tolist() == [N - 7, N]


def test_segments_of_one_and_of_ten_million_in_one_call(far: str) -> None:
    del far
    long = 10_000_000
    x = np.ones(long + 5000, np.int64)
    offsets = np.concatenate([np.arange(2500), [2499 + long], np.arange(2500 + long, long + 5001)])
    lengths = np.diff(offsets)
    assert np.array_equal(km.segmented_reduce(x, offsets), lengths)
    assert np.array_equal(km.segmented_scan(x, offsets)[offsets[1:] - 1], lengths)
