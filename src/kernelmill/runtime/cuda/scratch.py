"""Scratch memory of launches: parts of results, and tickets by which the last block is found.

Launches on one stream follow each other, so they share theirs. What is recorded into a graph may
run beside anything else: each capture has memory of its own, which stays as long as the process,
since nobody says when the last graph of it is gone.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.runtime.cuda.driver import api, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.runtime.backend import Grid
    from kernelmill.runtime.cuda.stream import StreamHandle

__all__ = ["scratch"]

_TICKET: Final = 4
# The least that is allocated, so that most calls never ask for more.
_LEAST_PARTS: Final = 1 << 18
_LEAST_TICKETS: Final = 1 << 10
_LOCK: Final = threading.Lock()
# CU_STREAM_CAPTURE_STATUS_ACTIVE
_CAPTURING: Final = 1


@dataclass(slots=True)
class _Area:
    """A piece of device memory; tickets are zero whenever no kernel uses them."""

    parts: int = 0
    parts_bytes: int = 0
    tickets: int = 0
    tickets_count: int = 0


_AREAS: Final[dict[tuple[int, int, int], _Area]] = {}


def scratch(grid: Grid, stream: StreamHandle, device: int) -> tuple[int, int]:
    """Return the addresses of parts and tickets for a launch on a stream of the current device.

    Raises
    ------
    DeviceError
        There is not that much memory.
    """
    if not grid.tickets:
        return 0, 0
    answer = check(api().cuStreamGetCaptureInfo(stream.handle), "ask whether a stream is captured")
    capture = int(answer[1]) if int(answer[0]) == _CAPTURING else 0
    key = (device, stream.handle, capture)
    area = _AREAS.get(key)
    fits = area and area.parts_bytes >= grid.parts and area.tickets_count >= grid.tickets
    if area is None or not fits:
        with _LOCK:
            area = _AREAS.setdefault(key, _Area())
            _enlarge(area, grid, stream, captured=bool(capture))
    return area.parts, area.tickets


def _enlarge(area: _Area, grid: Grid, stream: StreamHandle, *, captured: bool) -> None:
    """Replace what is too small by twice as much as is asked for.

    The old memory stays: a graph, or a launch of another thread, may be about to use it.
    """
    with _outside_capture(captured=captured) as quiet:
        if area.parts_bytes < grid.parts or not area.parts:
            area.parts_bytes = max(_LEAST_PARTS, 2 * grid.parts)
            area.parts = _allocate(area.parts_bytes)
        if area.tickets_count < grid.tickets:
            count = max(_LEAST_TICKETS, 2 * grid.tickets)
            made = _allocate(count * _TICKET)
            on = quiet if captured else stream.handle
            check(api().cuMemsetD32Async(made, 0, count, on), "clear tickets")
            if captured:
                check(api().cuStreamSynchronize(quiet), "clear tickets")
            area.tickets, area.tickets_count = made, count


def _allocate(nbytes: int) -> int:
    return int(check(api().cuMemAlloc(nbytes), f"allocate {nbytes} bytes of scratch memory"))


@contextmanager
def _outside_capture(*, captured: bool) -> Iterator[Any]:  # Any: a stream of the driver
    """Let this thread allocate while it captures; yields a stream that is not captured."""
    if not captured:
        yield 0
        return
    cuda = api()
    relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(cuda.cuThreadExchangeStreamCaptureMode(relaxed), "allocate during a capture")
    flag = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
    quiet = check(cuda.cuStreamCreate(int(flag)), "make a stream")
    try:
        yield quiet
    finally:
        cuda.cuStreamDestroy(quiet)
        check(cuda.cuThreadExchangeStreamCaptureMode(before), "go on with a capture")
