"""Launching kernels on CUDA devices in pure Python: a half of `_native_py`.

Nothing of CUDA and nothing of kernelmill is imported: who makes a launcher passes the addresses of
the driver's functions. What each thing means stands in `_native_cuda.c`, which it equals.
"""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import c_int, c_int32, c_uint, c_uint32, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kernelmill._native_py_address import DLTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

__all__ = ["CudaLauncher", "cuda_library"]

MAX_SLOTS: Final = 64
MAX_PARAMETERS: Final = 128
MAX_RECORD: Final = 4096
MAX_RANK: Final = 8
MAX_LIBRARIES: Final = 16
DL_CUDA: Final = 2
DL_COMPLEX: Final = 5
DL_OPAQUE: Final = 255
ANY, ALIKE, FIXED = range(3)
ATTRIBUTE_BYTES: Final = 72
INT64_MAX: Final = (1 << 63) - 1
KINDS: Final = ("exchange", "torch", "cupy", "own")

Slot: TypeAlias = tuple[Any, ...]
Triple: TypeAlias = tuple[int, int, int]


# ------------------------------------------------------------------------ libraries of arrays


class _Exchange(ctypes.Structure):
    """The table of DLPack's C functions."""


_Exchange._fields_ = (
    ("major", c_uint32),
    ("minor", c_uint32),
    ("previous", ctypes.POINTER(_Exchange)),
    ("allocate", c_void_p),
    ("to_managed", c_void_p),
    ("from_managed", c_void_p),
    ("to_tensor", ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
    (
        "current_stream",
        ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, ctypes.POINTER(c_void_p)),
    ),
)


@dataclass(frozen=True, slots=True)
class _Library:
    kind: str
    api: _Exchange | None
    stream: Callable[..., int] | None
    is_negative: Callable[[Any], bool] | None
    is_conjugate: Callable[[Any], bool] | None


_LIBRARIES: Final[dict[type, _Library]] = {}


def cuda_library(
    type: Any,  # noqa: A002 - as in the extension; Any: a class
    kind: str,
    *,
    api: int = 0,
    stream: Callable[..., int] | None = None,
    is_negative: Callable[[Any], bool] | None = None,
    is_conjugate: Callable[[Any], bool] | None = None,
) -> None:
    """Tell of a type of arrays; the kind "none" forgets it."""
    if kind == "none":
        _LIBRARIES.pop(type, None)
        return
    table = _Exchange.from_address(api) if api else None
    while table is not None and table.major != 1:
        table = table.previous.contents if table.previous else None
    exchanges = kind in ("exchange", "torch")
    if (
        kind not in KINDS
        or not isinstance(type, _TYPE)
        or (exchanges and not (table is not None and table.to_tensor))
        or (not exchanges and stream is None)
        or (kind == "torch" and not (is_negative and is_conjugate))
    ):
        raise ValueError("cuda_library(): the arguments do not fit each other")
    if type not in _LIBRARIES and len(_LIBRARIES) >= MAX_LIBRARIES:
        raise ValueError(f"cuda_library(): more than {MAX_LIBRARIES} types")
    _LIBRARIES[type] = _Library(kind, table, stream, is_negative, is_conjugate)


_TYPE: Final = type
_OWN: Final = struct.Struct("=QQiiii")


# -------------------------------------------------------------------------------- one array


@dataclass(slots=True)
class _Seen:
    library: _Library
    data: int = 0
    device: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    stream: int = 0
    size: int = 0
    reach: tuple[int, int] = field(default=(0, 0))


@dataclass(frozen=True, slots=True)
class _ArraySlot:
    at: int
    dtype: Any
    numpy: Any
    code: int
    bits: int
    size: int
    alignment: int
    shape_at: int
    strides_at: int
    rank: int
    fixed: tuple[tuple[int, ...], tuple[int, ...]] | None

    def see(self, obj: Any, mode: int, device: int) -> _Seen | None:
        """Return what is seen of an array that the slot can take."""
        library = _LIBRARIES.get(type(obj))
        if library is None:
            return None
        look = {"cupy": self._cupy, "own": self._own}.get(library.kind, self._exchanged)
        try:
            seen = look(obj, library, mode)
        except Exception:  # noqa: BLE001 - the general way says what is wrong
            return None
        if seen is None or seen.device != device or seen.data % self.alignment:
            return None
        fits = self.rank < 0 or len(seen.shape) == self.rank
        return self._laid_out(seen, mode) if fits and mode != ANY else seen if fits else None

    def _laid_out(self, seen: _Seen, mode: int) -> _Seen | None:
        wanted = (seen.shape, _c_order(seen.shape, self.size)) if mode == ALIKE else self.fixed
        assert wanted is not None
        if seen.shape != wanted[0] or not _same_steps(seen.shape, seen.strides, wanted[1]):
            return None
        seen.size = self.size
        seen.reach = _reach(self.size, seen.shape, wanted[1])
        return seen

    def _exchanged(self, obj: Any, library: _Library, _: int) -> _Seen | None:
        tensor, api = DLTensor(), library.api
        assert api is not None
        if library.kind == "torch":
            assert library.is_negative is not None
            if obj.requires_grad is True or library.is_negative(obj):
                return None
        if api.to_tensor(obj, tensor):
            return None
        conjugate = library.is_conjugate if tensor.code == DL_COMPLEX else None
        if conjugate is not None and conjugate(obj):
            return None
        unfit = tensor.device_type != DL_CUDA or tensor.lanes != 1 or tensor.ndim > MAX_RANK
        if unfit or (
            self.dtype is not None and (tensor.code, tensor.bits) != (self.code, self.bits)
        ):
            return None
        item = tensor.bits // 8
        shape = tuple(tensor.shape[: tensor.ndim])
        steps = tensor.strides[: tensor.ndim] if tensor.strides else None
        return _Seen(
            library,
            (tensor.data or 0) + tensor.byte_offset,
            tensor.device_id,
            shape,
            _c_order(shape, item) if steps is None else tuple(s * item for s in steps),
        )

    def _cupy(self, obj: Any, library: _Library, mode: int) -> _Seen | None:
        memory = obj.data
        seen = _Seen(library, int(memory.ptr), int(memory.device_id))
        if self.dtype is not None and obj.dtype != self.numpy:
            return None
        if mode != ANY or self.rank >= 0:
            seen.shape, seen.strides = obj.shape, obj.strides
            if len(seen.shape) > MAX_RANK or len(seen.strides) != len(seen.shape):
                return None
        return seen

    def _own(self, obj: Any, library: _Library, _: int) -> _Seen | None:
        record = obj._record  # noqa: SLF001 - it is there for this
        data, stream, device, code, bits, rank = _OWN.unpack_from(record)
        if not 0 <= rank <= MAX_RANK or len(record) != _OWN.size + 8 * rank:
            return None
        if self.dtype is not None:
            known = code != DL_OPAQUE
            if ((code, bits) != (self.code, self.bits)) if known else obj.dtype != self.dtype:
                return None
        shape = struct.unpack_from(f"={rank}q", record, _OWN.size)
        return _Seen(library, data, device, shape, _c_order(shape, bits // 8), stream)


def _c_order(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _same_steps(shape: Sequence[int], steps: Sequence[int], wanted: Sequence[int]) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(shape, steps, wanted, strict=True))


def _reach(itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    return sum(min(e, 0) for e in ends), itemsize + sum(max(e, 0) for e in ends)


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


class CudaLauncher:
    """A kernel, called with arrays; False when they need the general path."""

    def __init__(
        self,
        driver: Triple,
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
    ) -> None:
        self._record = memoryview(record).cast("B")
        size = self._record.nbytes
        for at in parameters:
            _check(0 <= at < size, "a parameter lies outside the record")
        fits = 0 <= captures <= size and (count_at < 0 or count_at + 8 <= size)
        _check(
            bool(driver[0] and function and fits and size <= MAX_RECORD and len(slots) <= MAX_SLOTS)
            and ANY <= mode <= FIXED and tile >= 0 and most >= 1
            and not (context and not (driver[1] and driver[2])),
            "an argument is out of range",
        )  # fmt: skip
        self._slots = tuple(_slot(made, size, mode) for made in slots)
        arrays = sum(isinstance(s, _ArraySlot) for s in self._slots)
        _check(
            0 <= outputs <= arrays
            and not (not arrays and (mode != ANY or not takes_stream))
            and not (tile and mode == ANY),
            "an argument is out of range",
        )
        self._driver = (_Launch(driver[0]), _GetCurrent(driver[1]), _SetCurrent(driver[2]))
        self._function, self._parameters = function, parameters
        self._grid, self._block, self._shared = grid, block, shared
        raw = b"" if attributes is None else bytes(memoryview(attributes))
        self._attributes = ctypes.create_string_buffer(raw, len(raw)) if raw else None
        self._device, self._context, self._outputs, self._mode = device, context, outputs, mode
        self._tile, self._most, self._count_at, self._captures = tile, most, count_at, captures
        self._takes_stream, self._name, self._note, self._failed = takes_stream, name, note, failed

    def __call__(self, *args: Any) -> bool:
        """Launch on arrays and scalars; a first stream and a last `bytes` where they are due."""
        stream = None
        if self._takes_stream:
            if not args or type(args[0]) is not int:
                return False
            stream, args = args[0] & ((1 << 64) - 1), args[1:]
        n = len(self._slots)
        scalars = args[n] if len(args) == n + 1 else None
        if len(args) != n and type(scalars) is not bytes:
            return False
        record = bytearray(self._record)
        if scalars is not None or self._captures:
            if scalars is None or len(scalars) != self._captures:
                return False
            record[: self._captures] = scalars
        arrays = self._fill(record, args[:n])
        if arrays is None:
            return False
        stream = self._ordered(arrays, stream)
        if stream is None:
            return False
        grid = self._grid
        if self._tile:
            count = math.prod(arrays[0].shape)
            grid = (min(-(-count // self._tile), self._most), *grid[1:])
            if self._count_at >= 0:
                struct.pack_into("=q", record, self._count_at, count)
        return self._run(grid, stream, record)

    def _fill(self, record: bytearray, args: Sequence[Any]) -> list[_Seen] | None:
        arrays: list[_Seen] = []
        for slot, arg in zip(self._slots, args, strict=True):
            if not isinstance(slot, _ArraySlot):
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

    def _clash(self, arrays: Sequence[_Seen]) -> bool:
        inputs = len(arrays) - self._outputs
        for out in range(inputs, len(arrays)):
            b = arrays[out]
            for k, a in enumerate(arrays[:out]):
                apart = (
                    a.data + a.reach[1] <= b.data + b.reach[0]
                    or b.data + b.reach[1] <= a.data + a.reach[0]
                )
                same = (a.data, a.shape, a.size) == (b.data, b.shape, b.size)
                same = same and k < inputs and _same_steps(a.shape, a.strides, b.strides)
                if not apart and not same:
                    return True
        return False

    def _ordered(self, arrays: Sequence[_Seen], stream: int | None) -> int | None:
        """Return the stream if each array is ordered on it."""
        for k, seen in enumerate(arrays):
            own = seen.library.kind == "own"
            chooses = k == 0 and stream is None
            if not own or chooses:
                try:
                    current = _current(seen.library, self._device)
                except Exception:  # noqa: BLE001 - as above
                    return None
                if chooses:
                    stream = current
                if current is None or current != stream:
                    return None
            if own and seen.stream != stream:
                return None
        return stream

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


def _current(library: _Library, device: int) -> int | None:
    """Return the stream on which the library of an array works at this moment."""
    api = library.api
    if library.kind == "own":
        api = next((x.api for x in _LIBRARIES.values() if x.kind == "torch"), None)
    if api is not None and api.current_stream:
        handle = c_void_p()
        return None if api.current_stream(DL_CUDA, device, handle) else handle.value or 0
    if library.stream is None:
        return None
    return library.stream(device) if library.kind == "own" else library.stream()


# ------------------------------------------------------------------------------------- slots


def _check(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(f"CudaLauncher: {what}")


def _slot(made: Slot, record: int, mode: int) -> _ArraySlot | Callable[[Any, bytearray], bool]:
    _check(bool(made), "a slot is no tuple that begins with its kind")
    kind, rest = made[0], made[1:]
    if kind == "a":
        return _array_slot(_ArraySlot(*rest), record, mode)
    makers: dict[str, Callable[..., Callable[[Any, bytearray], bool]]] = {
        "i": _integer,
        "f": _float,
        "n": _named,
    }
    _check(kind in makers, "a slot is of no kind")
    at, size = rest[:2]
    fits = {"i": size <= 8, "f": size in (4, 8)}.get(kind, True)  # noqa: PLR2004 - bytes
    _check(0 <= at <= at + size <= record and fits, "a scalar lies outside the record")
    return makers[kind](*rest)


def _array_slot(slot: _ArraySlot, record: int, mode: int) -> _ArraySlot:
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
