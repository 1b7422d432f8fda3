"""Arguments of emulated kernels as C values: checked against the types that the compiler knows."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.memory import as_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.runtime.memory import View

__all__ = ["Packed", "Parameter", "pack"]

# The values of `km_emu::Kind` in thread.hpp.
OPAQUE, BOOL, SIGNED, UNSIGNED, FLOATING, POINTER = range(6)
_NAMES: Final = {BOOL: "bool", SIGNED: "int", UNSIGNED: "uint", FLOATING: "float"}
_NUMPY_KINDS: Final = {"b": BOOL, "i": SIGNED, "u": UNSIGNED, "f": FLOATING}
_FLOATS: Final = {4: "<f", 8: "<d"}
_STRUCTS: Final = (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)  # noqa: SLF001 - the base class
_ADDRESSES: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel: kind and size, and the same of what a pointer points to."""

    kind: int
    size: int
    pointee: int = 0
    pointee_size: int = 0
    constant: bool = False

    def __str__(self) -> str:
        if self.kind == POINTER:
            const = "const " if self.constant else ""
            return f"{const}{_spelled(self.pointee, self.pointee_size)}*"
        return _spelled(self.kind, self.size)


def _spelled(kind: int, size: int) -> str:
    if kind == OPAQUE:
        return f"{size}-byte struct" if size else "void"
    if kind == POINTER:
        return "pointer"
    return "bool" if kind == BOOL else f"{_NAMES[kind]}{8 * size}"


class Packed:
    """The arguments of one launch in memory; holds the arrays as long as it lives.

    `views` are the arrays, by the number of their argument.
    """

    __slots__ = ("_bytes", "addresses", "values", "views")

    def __init__(self, values: Sequence[bytes], views: Mapping[int, View]) -> None:
        offsets, at = [], 0
        for value in values:
            offsets.append(at)
            at += -(-len(value) // 16) * 16
        # Aligned by hand: the kernel reads vector types from it.
        self._bytes = (ctypes.c_char * (at + 16))()
        base = -(-ctypes.addressof(self._bytes) // 16) * 16
        for offset, value in zip(offsets, values, strict=True):
            ctypes.memmove(base + offset, value, len(value))
        self.addresses = [base + offset for offset in offsets]
        self.values, self.views = list(values), views

    def update(self, index: int, value: bytes) -> None:
        """Replace the bytes of an argument; as many as it has."""
        self.values[index] = value
        ctypes.memmove(self.addresses[index], value, len(value))


def pack(kernel: str, args: Sequence[object], parameters: Sequence[Parameter]) -> Packed:
    """Convert the arguments of a launch.

    Parameters
    ----------
    kernel
        Its name, for error texts.
    args
        Arrays on the host (NumPy, torch, buffers, DLPack), addresses (an int for a pointer, None
        for null), Python, NumPy and ctypes scalars, structs (of `km.struct`, of a NumPy structured
        dtype, of ctypes, or bytes).
    parameters
        What the kernel declares.

    Raises
    ------
    ArgumentError
        There are too many or too few, one is read-only or of another size.
    DTypeError
        One is of another type than the kernel declares.
    OverflowError
        An integer does not fit.
    """
    if len(args) != len(parameters):
        types = ", ".join(map(str, parameters)) or "none"
        raise ArgumentError(
            f"kernel {kernel!r} takes {len(parameters)} arguments, not {len(args)}",
            hint=f"types: {types}",
        )
    views: dict[int, View] = {}
    values = []
    for index, (value, wanted) in enumerate(zip(args, parameters, strict=True)):
        where = f"argument {index} of kernel {kernel!r}"
        if wanted.kind == POINTER:
            values.append(_pointer(value, wanted, where, index, views))
        else:
            values.append(_value(value, wanted, where))
    return Packed(values, views)


def _value(value: Any, wanted: Parameter, where: str) -> bytes:
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return _strong(value, wanted, where)
    if isinstance(value, (bool, int, float, complex)):
        return _weak(value, wanted, where)
    made = _struct_bytes(value, wanted, where)
    if len(made) != wanted.size:
        raise ArgumentError(
            f"{where} is of type {wanted}; a {type(value).__name__} of {len(made)} bytes was given"
        )
    return made


def _struct_bytes(value: Any, wanted: Parameter, where: str) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, _STRUCTS):
        return bytes(value)
    type_ = getattr(type(value), "__kernelmill_struct__", None)
    if type_ is not None:
        made = np.zeros((), type_.to_numpy())
        for field in type_.fields:
            made[field.name] = getattr(value, field.name)
        return made.tobytes()
    raise DTypeError(
        f"{where} is of type {wanted}; a {type(value).__name__} was given",
        hint="pass a scalar, a struct, or the bytes of one",
    )


def _pointer(
    value: Any, wanted: Parameter, where: str, index: int, views: dict[int, View]
) -> bytes:
    if value is None:
        return bytes(8)
    if type(value) is int:
        if not 0 <= value < _ADDRESSES:
            raise DTypeError(f"{where} is a {wanted}; {value} is no address")
        return value.to_bytes(8, "little")
    if isinstance(value, (bool, int, float, complex, np.generic)):
        raise DTypeError(
            f"{where} is a {wanted}; a {type(value).__name__} was given",
            hint="pass an array, an address as an int, or None",
        )
    view = as_view(value, where)
    if view.readonly and not wanted.constant:
        raise ArgumentError(
            f"{where} is a {wanted}; the array that was given is read-only",
            hint="declare the parameter `const`, or pass a copy",
        )
    if wanted.pointee not in (OPAQUE, POINTER):  # structs and void take all
        _check_elements(np.dtype(view.dtype.to_numpy()), wanted, where)
    views[index] = view
    return view.ptr.to_bytes(8, "little")


def _check_elements(dtype: np.dtype[Any], wanted: Parameter, where: str) -> None:
    """Compare an array's elements with what the pointer is to."""
    found = _NUMPY_KINDS.get(dtype.kind)
    bytes_ = wanted.pointee_size == dtype.itemsize == 1  # char is what holds anything
    if bytes_ or (found == wanted.pointee and dtype.itemsize == wanted.pointee_size):
        return
    if dtype.itemsize == 1 and wanted.pointee_size == 1:
        return
    raise DTypeError(
        f"{where} is a {wanted}; an array of {dtype} was given",
        hint="convert the array, or compile the kernel for its type",
    )


def _strong(value: np.generic, wanted: Parameter, where: str) -> bytes:
    if wanted.kind == OPAQUE and value.itemsize == wanted.size:
        return value.tobytes()
    if _NUMPY_KINDS.get(value.dtype.kind) == wanted.kind and value.itemsize == wanted.size:
        return value.tobytes()
    raise DTypeError(
        f"{where} is of type {wanted}; a NumPy {value.dtype} was given",
        hint="a Python number takes the type of the argument",
    )


def _weak(value: Any, wanted: Parameter, where: str) -> bytes:
    if wanted.kind == OPAQUE:
        return _soft(value, wanted, where)
    if wanted.kind == FLOATING and not isinstance(value, complex):
        return struct.pack(_FLOATS[wanted.size], value)
    if isinstance(value, (float, complex)):
        raise DTypeError(
            f"{where} is of type {wanted}; a Python {type(value).__name__} was given",
            hint="convert it with int()",
        )
    if wanted.kind == BOOL:
        return bytes([bool(value)])
    bits = 8 * wanted.size
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if wanted.kind == SIGNED else (0, 1 << bits)
    if not low <= value < high:
        raise OverflowError(f"{where} is of type {wanted}, which cannot hold {value}")
    return int(value).to_bytes(wanted.size, "little", signed=wanted.kind == SIGNED)


# Types of the text that are structs to the compiler: half precision and complex numbers.
_HALF: Final = 2
_SOFT: Final = {_HALF: "<e", 8: "<2f", 16: "<2d"}


def _soft(value: Any, wanted: Parameter, where: str) -> bytes:
    code = _SOFT.get(wanted.size)
    is_complex = isinstance(value, complex)
    if code is None or is_complex != (wanted.size > _HALF):
        raise DTypeError(f"{where} is a {wanted}; a Python {type(value).__name__} was given")
    return struct.pack(code, value.real, value.imag) if is_complex else struct.pack(code, value)
