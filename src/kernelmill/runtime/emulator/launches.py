"""A launch on the emulator: the record that the runtime takes, and the error it may end in."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, ClassVar, Final

from kernelmill.errors import ArgumentError, DeviceError, KernelmillError, NotImplementedHere
from kernelmill.runtime.emulator.build import load_runtime
from kernelmill.runtime.emulator.schedule import ORDERS, current_schedule
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.emulator.schedule import Schedule

__all__ = [
    "STARTER",
    "Geometry",
    "LaunchRecord",
    "check_geometry",
    "raise_for",
    "record_of",
    "start",
]

_MESSAGE: Final = 2000
_MOST_THREADS: Final = 1024
_MOST_SHARED: Final = 227 << 10
_GRID: Final = (2**31 - 1, 65535, 65535)
_BLOCK: Final = (1024, 1024, 64)

Geometry = tuple[int, int, int]


class _Extent(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_uint32) for name in "xyz"]


class _Schedule(ctypes.Structure):
    _fields_: ClassVar = [
        ("order", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("live", ctypes.c_int64),
        ("patience", ctypes.c_double),
    ]


class LaunchRecord(ctypes.Structure):
    """`km_emu::Launch` of thread.hpp."""

    _fields_: ClassVar = [
        ("grid", _Extent),
        ("block", _Extent),
        ("shared", ctypes.c_uint32),
        ("cooperative", ctypes.c_int32),
        ("schedule", _Schedule),
        ("parallel_for", ctypes.c_void_p),
        ("status", ctypes.c_int32),
        ("message", ctypes.c_char * _MESSAGE),
    ]


# By the value of `km_emu::Fault`: the error and what to do.
_FAULTS: Final[dict[int, tuple[type[KernelmillError], str]]] = {
    1: (DeviceError, ""),
    2: (DeviceError, ""),
    3: (
        DeviceError,
        (
            "every thread of a block must come to the same barriers, and a block may wait for "
            "earlier blocks only, unless the launch is cooperative"
        ),
    ),
    4: (DeviceError, ""),
    5: (NotImplementedHere, "launch it from the host"),
}


def check_geometry(kernel: str, grid: Geometry, block: Geometry, shared: int) -> None:
    """Refuse what no GPU would launch; names what exceeds which limit."""
    rows = [(f"grid in {a}", n, m) for a, n, m in zip("xyz", grid, _GRID, strict=True)]
    rows += [(f"block in {a}", n, m) for a, n, m in zip("xyz", block, _BLOCK, strict=True)]
    rows += [("threads a block", math.prod(block), _MOST_THREADS)]
    rows += [("bytes of dynamic shared memory a block", shared, _MOST_SHARED)]
    for what, asked, limit in rows:
        if asked > limit:
            raise ArgumentError(
                f"kernel {kernel!r} cannot be launched on the emulator: {what}: {asked} asked, "
                f"the limit is {limit}",
                hint="launch a smaller grid or block",
            )


def record_of(
    grid: Geometry, block: Geometry, shared: int, *, cooperative: bool, schedule: Schedule
) -> LaunchRecord:
    """Return the record of a launch."""
    record = LaunchRecord()
    record.grid, record.block = _Extent(*grid), _Extent(*block)
    record.shared, record.cooperative = shared, cooperative
    record.schedule = _Schedule(
        ORDERS.index(schedule.order),
        native().thread_count(),
        schedule.seed,
        schedule.blocks,
        schedule.patience,
    )
    record.parallel_for = native().parallel_for_address
    return record


def start(
    kernel: str,
    entry: int,
    arguments: Sequence[int],
    grid: Geometry,
    block: Geometry,
    *,
    shared: int = 0,
    cooperative: bool = False,
) -> None:
    """Run a kernel to its end.

    Parameters
    ----------
    kernel
        Its name, for error texts.
    entry
        Address of the function of the library that starts it.
    arguments
        Address of each argument.
    grid, block
        Blocks and threads of a block in each direction.
    shared
        Bytes of dynamic shared memory.
    cooperative
        Whether blocks may wait for each other.

    Raises
    ------
    ArgumentError
        A limit is exceeded.
    DeviceError
        The kernel trapped, failed an assertion, or came to a standstill; says where.
    NotImplementedHere
        It did what the emulator cannot do.
    """
    check_geometry(kernel, grid, block, shared)
    load_runtime()
    record = record_of(grid, block, shared, cooperative=cooperative, schedule=current_schedule())
    pointers = (ctypes.c_void_p * max(1, len(arguments)))(*arguments)
    STARTER(entry)(ctypes.byref(record), pointers)
    raise_for(kernel, record.status, record.message.decode(errors="replace"))


def raise_for(kernel: str, status: int, message: str) -> None:
    """Raise the error of a launch that failed."""
    if status:
        error, hint = _FAULTS[status]
        raise error(f"kernel {kernel!r}: {message}", hint=hint)


STARTER: Final = ctypes.CFUNCTYPE(None, ctypes.POINTER(LaunchRecord), ctypes.c_void_p)
