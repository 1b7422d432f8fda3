"""Arrays in device memory as the CUDA launcher sees them, in pure Python: a part of `_native_py`.

What each thing means stands in `_native_cuda_arrays.c`, which it equals.
"""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import c_int, c_int32, c_uint32, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill._native_py_address import DLTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ALIKE", "ANY", "FIXED", "ArraySlot", "Seen", "cuda_library", "ordered", "same_steps"]

MAX_RANK: Final = 8
MAX_LIBRARIES: Final = 16
DL_CUDA: Final = 2
DL_COMPLEX: Final = 5
DL_OPAQUE: Final = 255
ANY, ALIKE, FIXED = range(3)
KINDS: Final = ("exchange", "torch", "methods", "cupy", "own")
LAZY: Final = ("torch", "methods")
# What reading an array of another library may raise; the general way then says what is wrong.
UNREADABLE: Final = (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError)


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
    codes: dict[Any, int] | None
    methods: tuple[Callable[[Any], Any], ...]

    def is_lazy(self, obj: Any, code: int) -> bool:
        """Whether a tensor stands for the negative or the conjugate of what its memory holds."""
        if self.kind not in LAZY:
            return False
        assert self.is_negative is not None
        assert self.is_conjugate is not None
        return self.is_negative(obj) or (code == DL_COMPLEX and self.is_conjugate(obj))


_LIBRARIES: Final[dict[type, _Library]] = {}


def cuda_library(
    type: Any,  # noqa: A002 - as in the extension; Any: a class
    kind: str,
    *,
    api: int = 0,
    stream: Callable[..., int] | None = None,
    is_negative: Callable[[Any], bool] | None = None,
    is_conjugate: Callable[[Any], bool] | None = None,
    codes: dict[Any, int] | None = None,
    methods: tuple[Callable[[Any], Any], ...] = (),
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
        or (kind in LAZY and not (is_negative and is_conjugate))
        or (kind == "methods" and not (codes and methods))
    ):
        raise ValueError("cuda_library(): the arguments do not fit each other")
    if type not in _LIBRARIES and len(_LIBRARIES) >= MAX_LIBRARIES:
        raise ValueError(f"cuda_library(): more than {MAX_LIBRARIES} types")
    _LIBRARIES[type] = _Library(kind, table, stream, is_negative, is_conjugate, codes, methods)


_TYPE: Final = type
_OWN: Final = struct.Struct("=QQiiii")


# -------------------------------------------------------------------------------- one array


@dataclass(slots=True)
class Seen:
    """What is seen of an array."""

    library: _Library
    data: int = 0
    device: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    stream: int = 0
    size: int = 0
    reach: tuple[int, int] = field(default=(0, 0))


@dataclass(frozen=True, slots=True)
class ArraySlot:
    """Where an array goes in the record of a launch, and what it must be."""

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

    def see(self, obj: Any, mode: int, device: int) -> Seen | None:
        """Return what is seen of an array that the slot can take."""
        library = _LIBRARIES.get(type(obj))
        if library is None:
            return None
        looks = {"cupy": self._cupy, "own": self._own, "methods": self._by_methods}
        look = looks.get(library.kind, self._exchanged)
        try:
            seen = look(obj, library, mode)
        except UNREADABLE:
            return None
        if seen is None or seen.device != device or seen.data % self.alignment:
            return None
        fits = self.rank < 0 or len(seen.shape) == self.rank
        return self._laid_out(seen, mode) if fits and mode != ANY else seen if fits else None

    def _laid_out(self, seen: Seen, mode: int) -> Seen | None:
        wanted = (seen.shape, _c_order(seen.shape, self.size)) if mode == ALIKE else self.fixed
        assert wanted is not None
        if seen.shape != wanted[0] or not same_steps(seen.shape, seen.strides, wanted[1]):
            return None
        seen.size = self.size
        seen.reach = _reach(self.size, seen.shape, wanted[1])
        return seen

    def _exchanged(self, obj: Any, library: _Library, _: int) -> Seen | None:
        tensor, api = DLTensor(), library.api
        assert api is not None
        if library.kind == "torch" and obj.requires_grad is True:
            return None
        if api.to_tensor(obj, tensor) or library.is_lazy(obj, tensor.code):
            return None
        unfit = tensor.device_type != DL_CUDA or tensor.lanes != 1 or tensor.ndim > MAX_RANK
        if unfit or (
            self.dtype is not None and (tensor.code, tensor.bits) != (self.code, self.bits)
        ):
            return None
        item = tensor.bits // 8
        shape = tuple(tensor.shape[: tensor.ndim])
        steps = tensor.strides[: tensor.ndim] if tensor.strides else None
        return Seen(
            library,
            (tensor.data or 0) + tensor.byte_offset,
            tensor.device_id,
            shape,
            _c_order(shape, item) if steps is None else tuple(s * item for s in steps),
        )

    def _by_methods(self, obj: Any, library: _Library, _: int) -> Seen | None:
        data_ptr, stride, get_device = library.methods
        device = get_device(obj)
        if obj.requires_grad is True or device < 0:
            return None
        assert library.codes is not None
        code, bits = divmod(library.codes[obj.dtype], 256)
        unfit = self.dtype is not None and (code, bits) != (self.code, self.bits)
        if unfit or len(obj.shape) > MAX_RANK or library.is_lazy(obj, code):
            return None
        strides = tuple(step * (bits // 8) for step in stride(obj))
        return Seen(library, data_ptr(obj), device, tuple(obj.shape), strides)

    def _cupy(self, obj: Any, library: _Library, mode: int) -> Seen | None:
        memory = obj.data
        seen = Seen(library, int(memory.ptr), int(memory.device_id))
        if self.dtype is not None and obj.dtype != self.numpy:
            return None
        if mode != ANY or self.rank >= 0:
            seen.shape, seen.strides = obj.shape, obj.strides
            if len(seen.shape) > MAX_RANK or len(seen.strides) != len(seen.shape):
                return None
        return seen

    def _own(self, obj: Any, library: _Library, _: int) -> Seen | None:
        record = obj._record  # noqa: SLF001 - it is there for this
        data, stream, device, code, bits, rank = _OWN.unpack_from(record)
        if not 0 <= rank <= MAX_RANK or len(record) != _OWN.size + 8 * rank:
            return None
        if self.dtype is not None:
            known = code != DL_OPAQUE
            if ((code, bits) != (self.code, self.bits)) if known else obj.dtype != self.dtype:
                return None
        shape = struct.unpack_from(f"={rank}q", record, _OWN.size)
        return Seen(library, data, device, shape, _c_order(shape, bits // 8), stream)


def _c_order(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def same_steps(shape: Sequence[int], steps: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether strides agree wherever there is more than one element."""
    return all(n == 1 or a == b for n, a, b in zip(shape, steps, wanted, strict=True))


def _reach(itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    return sum(min(e, 0) for e in ends), itemsize + sum(max(e, 0) for e in ends)


# ---------------------------------------------------------------------------------- streams


def ordered(arrays: Sequence[Seen], device: int, stream: int | None) -> int | None:
    """Return the stream, given or the first library's, if each array is ordered on it."""
    for k, seen in enumerate(arrays):
        own = seen.library.kind == "own"
        chooses = k == 0 and stream is None
        if not own or chooses:
            try:
                current = _current(seen.library, device)
            except UNREADABLE:
                return None
            if chooses:
                stream = current
            if current is None or current != stream:
                return None
        if own and seen.stream != stream:
            return None
    return stream


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
    return library.stream(device)
