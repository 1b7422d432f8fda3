"""Above 2^20 elements every family leaves its work to the pool: what a call does outside is a small part.

The pool is replaced by one that runs all tasks in the calling thread and clocks them, so the test
says the same on a busy machine and on one with a single processor.
"""

from __future__ import annotations

import ctypes
import functools
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.config import override
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEAST, LONG = (1 << 20) + 77_777, (1 << 22) + 77_777
# Of the time of a long call; what else there is: checks, and new memory. All of it where one thread works.
SERIAL = 0.4

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
POOL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Clocked:
    """Regions that had work for several threads, and the seconds of all tasks."""

    def __init__(self) -> None:
        self.shared = 0
        self.inside = 0.0

    def run(self, tasks: int, most: int, task: int, context: int | None) -> None:
        self.shared += tasks > 1 and most > 1
        start = time.thread_time()
        TASK(task)(context, 0, tasks, 0)  # a call for each task would count as serial
        self.inside += time.thread_time() - start


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    with override(num_threads=2):
        entry = ctypes.c_void_p.from_address(native().runtime_address)
        made, kept = Clocked(), entry.value
        pool = POOL(made.run)
        entry.value = ctypes.cast(pool, ctypes.c_void_p).value
        try:
            yield made
        finally:
            entry.value = kept


def larger(a: Any, b: Any) -> Any:
    return max(b, a)


@functools.cache
def calls(n: int) -> dict[str, Callable[[], Any]]:
    """A call of every family on at least `n` elements."""
    f4 = np.random.default_rng(1).uniform(-9, 9, n).astype("f4")
    i4 = (f4 * 50).astype("i4")
    ids = np.abs(i4)
    runs = np.arange(n) // 7
    offsets = np.unique(np.random.default_rng(2).integers(0, n, n // 5))
    offsets[[0, -1]] = 0, n
    wide = np.append(np.arange(0, n // 2, 3), [n // 2, n])
    even = np.append(np.arange(0, n, 4096), n)
    grid = np.resize(f4, (256, 256, n >> 16))
    return {
        "transform": lambda: km.transform((f4, i4), lambda a, b: a * 2 + b),
        "transform, turned": lambda: km.transform(grid.transpose(2, 1, 0), lambda a: a * 2),
        "adjacent_difference": lambda: km.adjacent_difference(f4),
        "reduce": lambda: km.reduce(f4),
        "reduce, in order": lambda: km.reduce(f4, larger),
        "reduce, columns": lambda: km.reduce(grid, axis=0),
        "argmin": lambda: km.argmin(f4),
        "reduce_by_key": lambda: km.reduce_by_key(runs, f4),
        "inclusive_scan": lambda: km.inclusive_scan(f4),
        "inclusive_scan, in order": lambda: km.inclusive_scan(f4, larger),
        "inclusive_scan_by_key": lambda: km.inclusive_scan_by_key(runs, f4),
        "select": lambda: km.select(f4, lambda a: a > 0),
        "partition": lambda: km.partition(f4, lambda a: a > 0),
        "three_way_partition": lambda: km.three_way_partition(
            f4, lambda a: a > 3, lambda a: a < -3
        ),
        "unique": lambda: km.unique(runs),
        "unique_by_key": lambda: km.unique_by_key(runs, f4),
        "run_length_encode": lambda: km.run_length_encode(runs),
        "histogram": lambda: km.histogram(f4, 256, range=(-9, 9)),
        "bincount": lambda: km.bincount(ids),
        "bincount, weights": lambda: km.bincount(runs, weights=f4),
        "lower_bound": lambda: km.lower_bound(runs, i4),
        "segmented_reduce": lambda: km.segmented_reduce(f4, offsets),
        "segmented_reduce, one long": lambda: km.segmented_reduce(f4, wide),
        "segmented_reduce, a few hundred": lambda: km.segmented_reduce(f4, even),
        "segmented_scan": lambda: km.segmented_scan(f4, offsets),
        "sort": lambda: km.sort(i4),
        "argsort": lambda: km.argsort(i4),
        "merge": lambda: km.merge(runs, runs),
    }


@pytest.mark.parametrize("name", calls(LEAST))
def test_work_is_left_to_the_pool(clocked: Clocked, name: str) -> None:
    calls(LEAST)[name]()
    assert clocked.shared, f"{name} gave the pool nothing to share out"
    call = calls(LONG)[name]
    call()
    best, rounds = 1.0, 0
    while best >= SERIAL and rounds < 20:
        rounds += 1
        clocked.inside = 0.0
        start, all_start = time.thread_time(), time.process_time()
        call()
        mine, work = time.thread_time() - start, time.process_time() - all_start
        best = min(best, (mine - clocked.inside) / work)
    assert best < SERIAL, f"{best:.0%} of the work is done by the calling thread alone"
