"""The short way of `launch`: slots for the arguments of a call, and handles of streams.

A kernel launched again with arguments of the same types needs no general path; which those are is
decided here, what a launch is in `launches.py`.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.dtypes import DType, StructType
from kernelmill.runtime.cuda.arguments import Pointer
from kernelmill.runtime.cuda.arrays import CudaArray
from kernelmill.runtime.cuda.direct import array_slot
from kernelmill.runtime.cuda.libraries import SCALAR_TYPES, tell
from kernelmill.runtime.cuda.stream import StreamHandle, as_stream
from kernelmill.runtime.memory import QUICK_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.cuda.arguments import Type

__all__ = ["handle_of", "slots_of"]

_POINTER: Final = 8
_LARGEST: Final = (1 << 63) - 1
_FLOATS: Final = (4, 8)
_WHOLE: Final = ("bool", "int", "uint")


def handle_of(stream: Any, device: int) -> int:  # Any: a stream of any library
    """Return the handle of a stream, quickly for the common kinds; raises what `as_stream` does."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if stream is None and torch.cuda.is_initialized():
            return int(torch._C._cuda_getCurrentRawStream(device))  # noqa: SLF001
        if type(stream) is torch.cuda.Stream:
            return int(stream.cuda_stream)
    if type(stream) is StreamHandle:
        return stream.handle
    return as_stream(stream, device).handle


def slots_of(
    args: Sequence[Any],
    parameters: Sequence[tuple[int, int]],
    signature: Sequence[Type] | None,
) -> tuple[tuple[Any, ...], ...] | None:
    """Return slots for arguments of the types of these; None where one needs the general path.

    `parameters` are offset and size of each in bytes.
    """
    tell("own", CudaArray)
    wanted = signature or (None,) * len(args)
    made = [
        _slot(value, at, size, type_)
        for value, (at, size), type_ in zip(args, parameters, wanted, strict=True)
    ]
    return None if None in made else tuple(slot for slot in made if slot is not None)


def _slot(value: Any, at: int, size: int, wanted: Type | None) -> tuple[Any, ...] | None:
    kind = type(value)
    if kind is int:
        return _integer(at, size, wanted)
    if value is None or kind in QUICK_TYPES - SCALAR_TYPES:
        return _pointer(value, at, size, wanted)
    served = False
    if kind is float:
        served = _is_of(wanted, ("float",)) and size in _FLOATS
    elif kind is bool:
        served = _is_of(wanted, _WHOLE) and size <= _POINTER
    elif isinstance(value, (np.generic, ctypes._SimpleCData, ctypes.Structure)):  # noqa: SLF001
        return ("n", at, size, kind) if _is_strong(value, wanted) else None
    return (kind.__name__[0], at, size) if served else None


def _is_of(wanted: Type | None, kinds: tuple[str, ...]) -> bool:
    return wanted is None or (isinstance(wanted, DType) and wanted.kind in kinds)


def _pointer(value: Any, at: int, size: int, wanted: Type | None) -> tuple[Any, ...] | None:
    if size != _POINTER or not (wanted is None or isinstance(wanted, Pointer)):
        return None
    if value is None:
        return "z", at, size
    return array_slot(at, wanted.dtype if wanted is not None else None)


def _integer(at: int, size: int, wanted: Type | None) -> tuple[Any, ...] | None:
    if size > _POINTER:
        return None
    if isinstance(wanted, DType):
        return ("i", at, size, wanted.min, min(wanted.max, _LARGEST)) if wanted.is_integer else None
    if isinstance(wanted, StructType):
        return None
    low = 0 if isinstance(wanted, Pointer) else -(1 << (8 * size - 1))
    return "i", at, size, low, min((1 << 8 * size) - 1, _LARGEST)


def _is_strong(value: Any, wanted: Type | None) -> bool:
    """Whether all values of a class are of the type that is wanted."""
    if wanted is None:
        return True
    plain = isinstance(value, np.generic) and not isinstance(value, np.void)
    return plain and isinstance(wanted, DType) and value.dtype == wanted.to_numpy()
