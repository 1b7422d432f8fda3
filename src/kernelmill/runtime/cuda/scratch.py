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
# The least bytes that are allocated, so that most calls never ask for more.
_LEAST_PARTS: Final = 1 << 18
_LEAST_TAGGED: Final = 1 << 16
_LEAST_TICKETS: Final = 1 << 12
_LOCK: Final = threading.Lock()
# CU_STREAM_CAPTURE_STATUS_ACTIVE
_CAPTURING: Final = 1
# CU_STREAM_PER_THREAD: the same handle means another stream in each thread.
_OF_THREAD: Final = 2


@dataclass(slots=True)
class _Area:
    """Device memory of one kind: its address and size, and whether it is zero at first."""

    zeroed: bool
    least: int
    address: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class _Areas:
    """What launches on one stream, or in one capture, share."""

    parts: _Area
    tagged: _Area
    packed: _Area
    tickets: _Area


_AREAS: Final[dict[tuple[int, int, int], _Areas]] = {}


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
    thread = threading.get_ident() if stream.handle == _OF_THREAD else 0
    key = (device, stream.handle, capture or thread)
    areas = _AREAS.get(key)
    if areas is None:
        areas = _AREAS.setdefault(
            key,
            _Areas(
                _Area(zeroed=False, least=_LEAST_PARTS),
                _Area(zeroed=True, least=_LEAST_TAGGED),
                _Area(zeroed=True, least=_LEAST_TAGGED),
                _Area(zeroed=True, least=_LEAST_TICKETS),
            ),
        )
    parts = areas.packed if grid.packed else areas.tagged if grid.tagged else areas.parts
    for area, nbytes in ((parts, grid.parts), (areas.tickets, _TICKET * grid.tickets)):
        if area.nbytes < nbytes:
            with _LOCK:
                _enlarge(area, nbytes, stream, captured=bool(capture))
    return parts.address, areas.tickets.address


def _enlarge(area: _Area, nbytes: int, stream: StreamHandle, *, captured: bool) -> None:
    """Replace what is too small by twice as much as is asked for.

    The old memory stays: a graph, or a launch of another thread, may be about to use it.
    """
    size = max(area.least, 2 * nbytes)
    with _outside_capture(captured=captured) as quiet:
        made = int(check(api().cuMemAlloc(size), f"allocate {size} bytes of scratch memory"))
        if area.zeroed:
            on = quiet if captured else stream.handle
            check(api().cuMemsetD8Async(made, 0, size, on), "clear scratch memory")
            if captured:
                check(api().cuStreamSynchronize(quiet), "clear scratch memory")
    area.address, area.nbytes = made, size


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
