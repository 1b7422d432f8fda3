"""Launching kernels on CUDA devices in pure Python: a half of `_native_py`.

Nothing of CUDA and nothing of kernelmill is imported: who makes a launcher passes the addresses of
the driver's functions. What each thing means stands in `_native_cuda.c`, which it equals.
"""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import c_int, c_uint, c_void_p
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kernelmill._native_py_cuda_arrays import (
    ALIKE,
    ANY,
    FIXED,
    MAX_RANK,
    ArraySlot,
    Seen,
    cuda_library,
    ordered,
    same_steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

__all__ = ["CudaLauncher", "cuda_library"]

MAX_SLOTS: Final = 64
MAX_RECORD: Final = 4096
ATTRIBUTE_BYTES: Final = 72
INT64_MAX: Final = (1 << 63) - 1
_OF_THREAD: Final = 2  # CU_STREAM_PER_THREAD

Slot: TypeAlias = tuple[Any, ...]
Triple: TypeAlias = tuple[int, int, int]


# ------------------------------------------------------------------------------ the launcher


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("n_attributes", c_uint),
    )


_Launch: Final = ctypes.CFUNCTYPE(
    c_int, ctypes.POINTER(_Config), c_void_p, ctypes.POINTER(c_void_p), c_void_p
)
_GetCurrent: Final = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_void_p))
_SetCurrent: Final = ctypes.CFUNCTYPE(c_int, c_void_p)
_IsCapturing: Final = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_int))


class CudaLauncher:
    """A kernel, called with arrays; False when they need the general path."""

    def __init__(
        self,
        driver: tuple[int, int, int, int],
        function: int,
        record: Buffer,
        parameters: tuple[int, ...],
        slots: tuple[Slot, ...],
        *,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        shared: int = 0,
        device: int = 0,
        context: int = 0,
        outputs: int = 0,
        mode: int = ANY,
        tile: int = 0,
        most: int = (1 << 31) - 1,
        count_at: int = -1,
        captures: int = 0,
        takes_stream: bool = False,
        attributes: Buffer | None = None,
        name: object = None,
        note: Callable[[object], object] | None = None,
        failed: Callable[[int], BaseException] | None = None,
        scratch: tuple[int, Callable[[int], bytes]] | None = None,
    ) -> None:
        self._record = memoryview(record).cast("B")
        size = self._record.nbytes
        for at in parameters:
            _check(0 <= at < size, "a parameter lies outside the record")
        fits = 0 <= captures <= size and (count_at < 0 or count_at + 8 <= size)
        _check(
            bool(driver[0] and function and fits and size <= MAX_RECORD and len(slots) <= MAX_SLOTS)
            and ANY <= mode <= FIXED and tile >= 0 and most >= 1
            and not (context and not (driver[1] and driver[2]))
            and (scratch is None or bool(driver[3] and scratch[0] >= 0)),
            "an argument is out of range",
        )  # fmt: skip
        self._slots = tuple(_slot(made, size, mode) for made in slots)
        arrays = sum(isinstance(s, ArraySlot) for s in self._slots)
        _check(
            0 <= outputs <= arrays
            and not (not arrays and (mode != ANY or not takes_stream))
            and not (tile and mode == ANY),
            "an argument is out of range",
        )
        self._driver = (_Launch(driver[0]), _GetCurrent(driver[1]), _SetCurrent(driver[2]))
        self._is_capturing, self._scratch = _IsCapturing(driver[3]), scratch
        self._scratch_of: tuple[int, bytes] | None = None
        self._function, self._parameters = function, parameters
        self._grid, self._block, self._shared = grid, block, shared
        raw = b"" if attributes is None else bytes(memoryview(attributes))
        self._attributes = ctypes.create_string_buffer(raw, len(raw)) if raw else None
        self._device, self._context, self._outputs, self._mode = device, context, outputs, mode
        self._tile, self._most, self._count_at, self._captures = tile, most, count_at, captures
        self._takes_stream, self._name, self._note, self._failed = takes_stream, name, note, failed

    def __call__(self, *args: Any) -> bool:
        """Launch on arrays and scalars; a first stream and a last `bytes` where they are due."""
        given = None
        if self._takes_stream:
            if not args or type(args[0]) is not int:
                return False
            given, args = args[0] & ((1 << 64) - 1), args[1:]
        record = self._with_captures(args[len(self._slots) :])
        arrays = None if record is None else self._fill(record, args)
        stream = None if arrays is None else ordered(arrays, self._device, given)
        if record is None or arrays is None or stream is None:
            return False
        grid = self._grid
        if self._tile:
            count = math.prod(arrays[0].shape)
            grid = (min(-(-count // self._tile), self._most), *grid[1:])
            if self._count_at >= 0:
                struct.pack_into("=q", record, self._count_at, count)
        if self._scratch is not None and not self._write_scratch(self._scratch, stream, record):
            return False
        return self._run(grid, stream, record)

    def _with_captures(self, rest: Sequence[Any]) -> bytearray | None:
        """Return a record of this launch, with the captured scalars where they are due."""
        scalars = rest[0] if len(rest) == 1 else b""
        if len(rest) > 1 or type(scalars) is not bytes or len(scalars) != self._captures:
            return None
        record = bytearray(self._record)
        record[: len(scalars)] = scalars
        return record

    def _write_scratch(
        self, scratch: tuple[int, Callable[[int], bytes]], stream: int, record: bytearray
    ) -> bool:
        """Write what belongs to the stream; the default stream of a thread is one in each."""
        at, make = scratch
        capturing = c_int()
        if stream == _OF_THREAD or self._is_capturing(stream, capturing) or capturing.value:
            return False
        if self._scratch_of is None or self._scratch_of[0] != stream:
            self._scratch_of = stream, make(stream)
        raw = self._scratch_of[1]
        if at + len(raw) > len(record):
            return False
        record[at : at + len(raw)] = raw
        return True

    def _fill(self, record: bytearray, args: Sequence[Any]) -> list[Seen] | None:
        arrays: list[Seen] = []
        if len(args) < len(self._slots):
            return None
        for slot, arg in zip(self._slots, args, strict=False):
            if not isinstance(slot, ArraySlot):
                if not slot(arg, record):
                    return None
                continue
            seen = slot.see(arg, self._mode, self._device)
            if seen is None or (self._mode == ALIKE and arrays and seen.shape != arrays[0].shape):
                return None
            arrays.append(seen)
            struct.pack_into("=Q", record, slot.at, seen.data)
            for at, numbers in ((slot.shape_at, seen.shape), (slot.strides_at, seen.strides)):
                if at >= 0:
                    struct.pack_into(f"={len(numbers)}q", record, at, *numbers)
        if self._mode != ANY and (not math.prod(arrays[0].shape) or self._clash(arrays)):
            return None
        return arrays

    def _clash(self, arrays: Sequence[Seen]) -> bool:
        inputs = len(arrays) - self._outputs
        for out in range(inputs, len(arrays)):
            b = arrays[out]
            for k, a in enumerate(arrays[:out]):
                apart = (
                    a.data + a.reach[1] <= b.data + b.reach[0]
                    or b.data + b.reach[1] <= a.data + a.reach[0]
                )
                same = (a.data, a.shape, a.size) == (b.data, b.shape, b.size)
                same = same and k < inputs and same_steps(a.shape, a.strides, b.strides)
                if not apart and not same:
                    return True
        return False

    def _run(self, grid: Triple, stream: int, record: bytearray) -> bool:
        launch, get_current, set_current = self._driver
        held = (ctypes.c_char * len(record)).from_buffer(record)
        base = ctypes.addressof(held)
        parameters = (c_void_p * max(1, len(self._parameters)))(
            *(base + at for at in self._parameters)
        )
        attributes = self._attributes
        config = _Config(
            (c_uint * 3)(*grid),
            (c_uint * 3)(*self._block),
            self._shared,
            stream,
            None if attributes is None else ctypes.addressof(attributes),
            0 if attributes is None else len(attributes) // ATTRIBUTE_BYTES,
        )
        if self._note is not None:
            self._note(self._name)
        before = c_void_p()
        elsewhere = (
            self._context and not get_current(before) and (before.value or 0) != self._context
        )
        status = set_current(self._context) if elsewhere else 0
        status = status or launch(config, self._function, parameters, None)
        if elsewhere and before.value:
            set_current(before)
        if not status:
            return True
        assert self._failed is not None
        raise self._failed(status)


# ------------------------------------------------------------------------------------- slots


def _check(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(f"CudaLauncher: {what}")


def _slot(made: Slot, record: int, mode: int) -> ArraySlot | Callable[[Any, bytearray], bool]:
    _check(bool(made), "a slot is no tuple that begins with its kind")
    kind, rest = made[0], made[1:]
    if kind == "a":
        return _array_slot(ArraySlot(*rest), record, mode)
    makers: dict[str, Callable[..., Callable[[Any, bytearray], bool]]] = {
        "i": _integer,
        "f": _float,
        "n": _named,
        "b": _bool,
        "z": _zero,
    }
    _check(kind in makers, "a slot is of no kind")
    at, size = rest[:2]
    fits = {"i": size <= 8, "f": size in (4, 8)}.get(kind, True)  # noqa: PLR2004 - bytes
    _check(0 <= at < at + size <= record and fits, "a scalar lies outside the record")
    return makers[kind](*rest)


def _array_slot(slot: ArraySlot, record: int, mode: int) -> ArraySlot:
    ends = [
        slot.at + 8,
        *(at + 8 * slot.rank for at in (slot.shape_at, slot.strides_at) if at >= 0),
    ]
    loose = slot.rank < 0 and (slot.shape_at >= 0 or slot.strides_at >= 0)
    _check(
        slot.at >= 0 and max(ends) <= record and slot.alignment >= 1 and slot.rank <= MAX_RANK
        and not loose,
        "an array lies outside the record",
    )  # fmt: skip
    if mode == FIXED:
        assert slot.fixed is not None
        same = len(slot.fixed[0]) == len(slot.fixed[1])
        _check(same, "shape and strides of an array do not fit")
    return slot


def _integer(at: int, size: int, low: int, high: int) -> Callable[[Any, bytearray], bool]:
    limit = (1 << 64) - 1 if size == 8 and high == INT64_MAX else high  # noqa: PLR2004 - bytes

    def write(value: Any, record: bytearray) -> bool:
        fits = type(value) is int and low <= value <= limit
        if fits:
            record[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return fits

    return write


def _float(at: int, size: int) -> Callable[[Any, bytearray], bool]:
    code = "=f" if size == 4 else "=d"  # noqa: PLR2004 - bytes

    def write(value: Any, record: bytearray) -> bool:
        if type(value) is not float:
            return False
        try:
            struct.pack_into(code, record, at, value)
        except OverflowError:
            return False
        return True

    return write


def _bool(at: int, size: int) -> Callable[[Any, bytearray], bool]:
    def write(value: Any, record: bytearray) -> bool:
        if type(value) is bool:
            record[at : at + size] = value.to_bytes(size, "little")
        return type(value) is bool

    return write


def _zero(at: int, size: int) -> Callable[[Any, bytearray], bool]:
    def write(value: Any, record: bytearray) -> bool:
        if value is None:
            record[at : at + size] = bytes(size)
        return value is None

    return write


def _named(at: int, size: int, wanted: Any) -> Callable[[Any, bytearray], bool]:
    def write(value: Any, record: bytearray) -> bool:
        if type(value) is not wanted:
            return False
        try:
            raw = bytes(
                memoryview(value).cast("B") if memoryview(value).ndim else memoryview(value)
            )
        except (TypeError, BufferError):
            return False
        if len(raw) == size:
            record[at : at + size] = raw
        return len(raw) == size

    return write
