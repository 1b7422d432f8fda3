"""Pointers out of NumPy arrays, buffers and DLPack in pure Python: a half of `_native_py`.

Nothing is launched or allocated here, and nothing of kernelmill is imported.
"""

from __future__ import annotations

import ctypes
import math
import sys
from ctypes import c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["DLTensor", "address"]

Address: TypeAlias = tuple[int, int, "np.dtype[Any] | str", tuple[int, ...], tuple[int, ...], bool]

NATIVE_ORDER: Final = "<" if sys.byteorder == "little" else ">"


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(c_ssize_t)),
        ("strides", ctypes.POINTER(c_ssize_t)),
        ("suboffsets", ctypes.POINTER(c_ssize_t)),
        ("internal", c_void_p),
    )


class DLTensor(ctypes.Structure):
    """An array as DLPack describes it."""

    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _DLVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    )


PYBUF_FULL_RO: Final = 0x11C
DL_CPU: Final = (1, 3)  # kDLCPU, kDLCUDAHost
DL_READ_ONLY: Final = 1
DL_COPIED: Final = 2
DL_KINDS: Final = {0: "i", 1: "u", 2: "f", 4: "V", 5: "c", 6: "b"}
DL_BFLOAT: Final = 4
FORMAT_KINDS: Final = {
    **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNP", "u"), **dict.fromkeys("efdg", "f"),
    **dict.fromkeys(("Zf", "Zd", "Zg"), "c"), "?": "b", "c": "S", "s": "S",
}  # fmt: skip
_capsule_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_valid: Final = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_get_buffer: Final = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int)
_release_buffer: Final = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_has_buffer: Final = ctypes.pythonapi.PyObject_CheckBuffer
_has_buffer.argtypes = (ctypes.py_object,)


def address(obj: object, writable: bool = False, /) -> Address:  # noqa: FBT001, FBT002
    """Return (pointer, nbytes, dtype or typestr, shape, strides in bytes, readonly)."""
    if isinstance(obj, np.ndarray) and not hasattr(obj, "address"):  # not a HostBuffer
        at, readonly = obj.__array_interface__["data"]
        _refuse_readonly(readonly, writable)
        return at, obj.nbytes, obj.dtype, obj.shape, obj.strides, readonly
    if _has_buffer(obj):
        return _of_buffer(obj, writable)
    if type(obj).__name__ == "PyCapsule":
        return _of_capsule(obj, writable)
    export = getattr(obj, "__dlpack__", None)
    if export is None:
        raise TypeError(f"{type(obj)!r} is no array: it has no buffer and no __dlpack__")
    try:
        capsule = export(max_version=(1, 0))
    except TypeError:  # it is older than version 1
        capsule = export()
    return _of_capsule(capsule, writable)


def _refuse_readonly(readonly: bool, writable: bool) -> None:  # noqa: FBT001
    if readonly and writable:
        raise BufferError("the array is read-only, and is to be written")


def _typestr(order: str, kind: str, itemsize: int) -> str:
    return f"{'|' if itemsize == 1 or kind in 'VS' else order}{kind}{itemsize}"


def _c_order(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _of_buffer(obj: object, writable: bool) -> Address:  # noqa: FBT001
    view = _PyBuffer()
    _get_buffer(obj, view, PYBUF_FULL_RO)
    try:
        if view.suboffsets:
            raise BufferError("the buffer is an array of pointers (suboffsets)")
        _refuse_readonly(bool(view.readonly), writable)
        text = (view.format or b"B").decode()
        order = {"<": "<", ">": ">", "!": ">"}.get(text[:1], NATIVE_ORDER)
        kind = FORMAT_KINDS.get(text[1:] if text[:1] in "@=<>!^" else text, "V")
        shape = tuple(view.shape[: view.ndim])
        strides = (
            tuple(view.strides[: view.ndim]) if view.strides else _c_order(shape, view.itemsize)
        )
        return (
            view.buf or 0,
            math.prod(shape) * view.itemsize,
            _typestr(order, kind, view.itemsize),
            shape,
            strides,
            bool(view.readonly),
        )
    finally:
        _release_buffer(view)


def _of_capsule(capsule: object, writable: bool) -> Address:  # noqa: FBT001
    readonly = odd = False
    if _capsule_valid(capsule, b"dltensor_versioned"):
        pointer = _capsule_pointer(capsule, b"dltensor_versioned")
        versioned = _DLVersioned.from_address(pointer)
        readonly = bool(versioned.flags & DL_READ_ONLY)
        odd = versioned.major != 1 or bool(versioned.flags & DL_COPIED)
        tensor = versioned.tensor
        note = ", a copy or of another version"
    else:
        tensor = DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
        note = ""
    if tensor.device_type not in DL_CPU:
        device = (tensor.device_type, tensor.device_id)
        raise BufferError(f"DLPack device {device} is not the CPU")
    if odd or tensor.lanes != 1 or tensor.bits % 8 or tensor.code not in DL_KINDS:
        raise BufferError(
            f"DLPack export of code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes{note}"
        )
    _refuse_readonly(readonly, writable)
    itemsize = tensor.bits // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    return (
        (tensor.data or 0) + tensor.byte_offset,
        math.prod(shape) * itemsize,
        "bfloat16"
        if tensor.code == DL_BFLOAT
        else _typestr(NATIVE_ORDER, DL_KINDS[tensor.code], itemsize),
        shape,
        tuple(s * itemsize for s in tensor.strides[: tensor.ndim])
        if tensor.strides
        else _c_order(shape, itemsize),
        readonly,
    )
