"""Threads, forks and the interpreter lock: the same answers, no hang, no kernel built twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from kernelmill import events
from kernelmill.config import override

THREADS = 8


def together(work: Any) -> list[Any]:
    """Run `work(i)` in several threads that start at one moment; errors are raised here."""
    barrier = threading.Barrier(THREADS)

    def start(i: int) -> Any:
        barrier.wait(timeout=600)
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS), timeout=600))


def test_one_plan_in_many_threads(device: str) -> None:
    x = filled((100_000,), "f4", 1)
    plan = km.reduce.plan(x)
    wanted = km.reduce(x)
    columns = filled((500, 300), "f4", 2)
    along = km.reduce.plan(columns, axis=0)
    sums = km.reduce(columns, axis=0)

    def work(_: int) -> None:
        for _ in range(3 if device == "emulator" else 30):
            same(plan(x), wanted)
            same(along(columns), sums)

    together(work)


@pytest.mark.usefixtures("device")
def test_different_operators_in_many_threads() -> None:
    x = filled((50_000,), "f4", 1)
    ops = [lambda v: v + 1, lambda v: v * 2, lambda v: v - 3]
    wanted = [x + np.float32(1), x * 2, x - np.float32(3)]

    def work(i: int) -> None:
        for k in range(12):
            at = (i + k) % 3
            same(km.transform(x, ops[at]), wanted[at])
            same(km.reduce(x, km.maximum), x.max())

    together(work)


def test_families_in_many_threads() -> None:
    """Each call has counters, chains and workspace of its own, and the pool is shared."""
    x = np.random.default_rng(0).integers(0, 500, 150_000)
    ordered, cuts = np.sort(x), np.array([0, 7, 8, 90_000, len(x)])
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    calls = [
        (lambda: km.select(x, lambda v: v > 250), x[x > 250]),
        (lambda: km.segmented_reduce(x, cuts), np.add.reduceat(x, cuts[:-1])),
        (lambda: km.histogram(x, 50, range=(0, 500))[0], np.histogram(x, 50, range=(0, 500))[0]),
        (lambda: km.lower_bound(ordered, x), np.searchsorted(ordered, x)),
        (lambda: km.reduce_by_key(ordered, x)[1], np.add.reduceat(x, begins)),
        (lambda: km.inclusive_scan(x), np.cumsum(x)),
    ]

    def work(i: int) -> None:
        for k in range(len(calls)):
            call, wanted = calls[(i + k) % len(calls)]
            np.testing.assert_array_equal(call(), wanted)

    together(work)


def test_threads_that_race_for_a_new_operator_build_it_once() -> None:
    x = filled((60, 40), "f4", 3).T  # strided: no quick path
    op = lambda v: v * 7 + 5
    with events.listen("compile") as seen:
        plans = together(lambda _: km.transform.plan(x, op))
        for plan in plans:
            same(plan(x), x * 7 + np.float32(5))
    assert len(seen) == 1


@pytest.mark.usefixtures("device")
def test_captures_of_one_thread_do_not_reach_another() -> None:
    x = filled((20_000,), "f4", 1)

    def work(i: int) -> None:
        for k in range(i, i + 20):
            same(km.transform(x, lambda v: v * k), x * np.float32(k))

    together(work)


def test_the_current_device_belongs_to_a_thread() -> None:
    x = np.arange(5.0)
    inside, done = threading.Event(), threading.Event()
    out = np.zeros(5)

    def elsewhere() -> None:
        with km.Device("null"):
            inside.set()
            done.wait(600)
            km.transform(x, lambda v: v + 1, out=out)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    inside.wait(600)
    same(km.transform(x, lambda v: v + 1), x + 1)
    done.set()
    thread.join(600)
    assert not thread.is_alive()
    assert not out.any()


def test_calls_from_a_listener_of_a_call() -> None:
    x = filled((1000,), "f4", 1)
    inner = []

    def again(event: events.Event) -> None:
        if event.kind == "launch":
            inner.append(km.reduce(x, km.maximum))

    stop = events.subscribe(again)
    try:
        km.transform(x, lambda v: v + 1)
    finally:
        stop()
    assert inner == [x.max()]


def test_the_interpreter_lock_is_released_on_large_arrays() -> None:
    x = np.ones(1 << 22)
    plan = km.transform.plan(x, lambda v: np.exp(np.sin(v)), out=x)
    turns, inside, stop = 0, 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=count)
    with override(num_threads=1):
        try:
            thread.start()
            end = time.monotonic() + 120
            while inside < 50 and time.monotonic() < end:
                before = turns
                plan(x, out=x)
                inside = turns - before
        finally:
            stop.set()
            thread.join(600)
            sys.setswitchinterval(interval)
    assert inside >= 50  # the other thread ran during one call


def run_child(work: Any) -> int:
    """Fork, run `work` in the child, return its exit status; a child that hangs is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the status tells the parent
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + 600
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_computes_too() -> None:
    x = filled((300_000,), "f4", 1)
    k = 2.0
    op = lambda v: v * k
    with override(num_threads=2):
        total = km.reduce(x)
        same(km.transform(x, op), x * 2)

        def work() -> None:
            for _ in range(5):
                same(km.reduce(x), total)
                same(km.transform(x, op), x * 2)
            same(km.transform(x, lambda v: v - 41), x - np.float32(41))  # compiles in the child

        assert run_child(work) == 0
        same(km.reduce(x), total)


def test_many_processes_share_the_cache() -> None:
    text = textwrap.dedent(
        """
        import numpy as np, kernelmill as km
        x = np.arange(1000, dtype=np.float32)
        assert (km.transform(x, lambda v: v * 3 + 19) == x * 3 + 19).all()
        """
    )
    children = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(4)]
    assert [c.wait(timeout=600) for c in children] == [0] * 4
