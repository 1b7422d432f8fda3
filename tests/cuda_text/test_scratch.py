"""Scratch memory of launches, against a driver that writes down what it is asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cuda_stand_ins import Result
from kernelmill.errors import DeviceError
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.cuda import scratch as scratch_module
from kernelmill.runtime.cuda.scratch import scratch
from kernelmill.runtime.cuda.stream import StreamHandle

OK = Result.CUDA_SUCCESS
STREAM = StreamHandle(7)


class Driver:
    """Allocates addresses that are far apart; `capture` is that of every stream."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self) -> None:
        self.capture, self.full, self.log = 0, False, []
        self.mode = "global"

    def cuStreamGetCaptureInfo(self, stream):
        return OK, int(bool(self.capture)), self.capture, None

    def cuMemAlloc(self, nbytes):
        if self.full:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        self.log.append(("allocate", nbytes, self.mode))
        return OK, 1_000_000_000 * len(self.log)

    def cuMemsetD8Async(self, address, value, nbytes, stream):
        assert value == 0
        self.log.append(("clear", address, nbytes, stream))
        return (OK,)

    def cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.mode = self.mode, mode
        return OK, before

    def cuStreamCreate(self, flags):
        return OK, 99

    def cuStreamDestroy(self, stream):
        self.log.append(("destroy", stream))
        return (OK,)

    def cuStreamSynchronize(self, stream):
        self.log.append(("wait", stream))
        return (OK,)


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    monkeypatch.setattr(scratch_module, "api", lambda: found)
    monkeypatch.setattr(scratch_module, "_AREAS", {})
    return found


def grid(parts=1000, tickets=1, *, tagged=False):
    return Grid(8, 128, (), parts, tickets, tagged)


def test_launches_without_parts_ask_for_nothing(driver):
    assert scratch(Grid(8, 128, ()), STREAM, 0) == (0, 0)
    assert driver.log == []


def test_launches_on_one_stream_share_what_is_allocated_once(driver):
    first = scratch(grid(), STREAM, 0)
    asked = len(driver.log)
    assert scratch(grid(2000, 5), STREAM, 0) == first
    assert len(driver.log) == asked
    assert [entry[0] for entry in driver.log] == ["allocate", "allocate", "clear"]
    assert driver.log[-1] == ("clear", first[1], 4096, 7), "tickets are cleared on the stream"
    for other in (scratch(grid(), StreamHandle(8), 0), scratch(grid(), STREAM, 1)):
        assert not set(other) & set(first)


def test_the_default_stream_of_each_thread_is_its_own(driver):
    mine = scratch(grid(), StreamHandle(2), 0)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(scratch, grid(), StreamHandle(2), 0).result()
    assert not set(mine) & set(other)
    assert scratch(grid(), StreamHandle(2), 0) == mine


def test_tagged_parts_are_cleared_and_kept_from_others(driver):
    plain, tagged = scratch(grid(), STREAM, 0), scratch(grid(tagged=True), STREAM, 0)
    assert plain[1] == tagged[1]
    assert plain[0] != tagged[0]
    assert ("clear", tagged[0], 1 << 16, 7) in driver.log
    assert not any(entry[:2] == ("clear", plain[0]) for entry in driver.log)


def test_larger_ones_are_allocated_anew_and_old_ones_stay(driver):
    first = scratch(grid(), STREAM, 0)
    larger = scratch(grid(1 << 20, 5000), STREAM, 0)
    assert not set(larger) & set(first)
    assert [entry[1] for entry in driver.log if entry[0] == "allocate"] == [
        1 << 18, 1 << 12, 1 << 21, 40_000,
    ]  # fmt: skip
    assert scratch(grid(), STREAM, 0) == larger


def test_a_capture_has_memory_of_its_own_cleared_outside_it(driver):
    outside = scratch(grid(tagged=True), STREAM, 0)
    driver.capture, start = 41, len(driver.log)
    inside = scratch(grid(tagged=True), STREAM, 0)
    assert scratch(grid(tagged=True), STREAM, 0) == inside
    assert not set(inside) & set(outside)
    log = driver.log[start:]
    assert {entry[2] for entry in log if entry[0] == "allocate"} == {"relaxed"}
    assert {entry[3] for entry in log if entry[0] == "clear"} == {99}
    assert log.count(("wait", 99)) == log.count(("destroy", 99)) == 2
    assert driver.mode == "global"
    driver.capture = 42
    assert not set(scratch(grid(tagged=True), STREAM, 0)) & {*inside, *outside}


def test_no_memory_is_said_with_what_was_asked(driver):
    driver.full = True
    with pytest.raises(DeviceError, match="cannot allocate 262144 bytes of scratch memory"):
        scratch(grid(), STREAM, 0)
    driver.full = False
    assert all(scratch(grid(), STREAM, 0))
