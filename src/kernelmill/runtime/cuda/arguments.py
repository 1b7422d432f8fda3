"""Kernel arguments as bytes: checked against the signature, or against the sizes of the driver.

Arrays become their pointers, scalars the type that the kernel takes; where to launch is in
`launches.py`.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill.dtypes import DType, StructType
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime.cuda.arrays import view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.backend import Launcher
    from kernelmill.runtime.cuda.arrays import DeviceView

__all__ = ["ArgumentRecord", "Pointer", "Type", "pack"]

_POINTER: Final = 8
_FLOATS: Final = {2: "e", 4: "f", 8: "d"}
# Most arguments: a Python number for four or eight bytes.
_QUICK: Final = {
    (int, 4): struct.Struct("<i").pack_into,
    (int, 8): struct.Struct("<q").pack_into,
    (float, 4): struct.Struct("<f").pack_into,
    (float, 8): struct.Struct("<d").pack_into,
}
_SCALARS: Final = (bool, int, float, complex, np.generic, ctypes._SimpleCData, ctypes.Structure)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Pointer:
    """The type of an argument that is an array; `dtype` is that of its elements, None for any.

    Examples
    --------
    >>> import kernelmill as km
    >>> signature = (km.Pointer(km.float32), km.int32)  # of code.get_kernel(name, signature=…)
    >>> str(signature[0]), str(km.Pointer())
    ('float32*', 'void*')
    """

    dtype: DType | StructType | None = None

    def __str__(self) -> str:
        return f"{self.dtype or 'void'}*"


Type: TypeAlias = DType | StructType | Pointer


class ArgumentRecord:
    """The arguments of one launch in the form that the driver takes; filled by `pack`.

    The driver copies them while it launches, so a record can be used again at once.

    Parameters
    ----------
    parameters
        Offset and size of each argument in bytes, as compiled.
    """

    __slots__ = ("_bytes", "_pointers", "data", "handle", "launchers", "parameters")

    def __init__(self, parameters: Sequence[tuple[int, int]]) -> None:
        self.parameters = parameters
        self.launchers: dict[object, Launcher] = {}  # what launches with this record, by its reader
        self.data = bytearray(sum(parameters[-1]) if parameters else 1)
        self._bytes = (ctypes.c_char * len(self.data)).from_buffer(self.data)
        base = ctypes.addressof(self._bytes)
        self._pointers = (ctypes.c_void_p * len(parameters))(*[base + o for o, _ in parameters])
        self.handle = ctypes.addressof(self._pointers) if parameters else 0


def pack(
    kernel: str,
    args: Sequence[object],
    record: ArgumentRecord,
    signature: Sequence[Type] | None,
) -> list[DeviceView]:
    """Fill a record with the arguments of a launch; return the arrays among them.

    Parameters
    ----------
    kernel
        Its name, for error texts.
    args
        Arrays, addresses (an int for a pointer, None for null), Python, NumPy and ctypes scalars,
        structs (of `km.struct`, of a NumPy structured dtype, of ctypes, or bytes).
    record
        For the parameters of the kernel.
    signature
        Types of the arguments, or None.

    Raises
    ------
    ArgumentError
        There are too many or too few, one has the wrong size or does not fit.
    DTypeError
        One is of the wrong type.
    DeviceError
        One is in the memory of the host, or two are on different devices.
    """
    parameters, data = record.parameters, record.data
    if len(args) != len(parameters):
        raise ArgumentError(
            f"kernel {kernel!r} takes {len(parameters)} arguments, not {len(args)}",
            hint=f"sizes in bytes: {', '.join(str(size) for _, size in parameters) or 'none'}",
        )
    views: list[DeviceView] = []
    for index, (value, (offset, size)) in enumerate(zip(args, parameters, strict=True)):
        quick = _QUICK.get((type(value), size)) if signature is None else None
        if quick is not None:
            try:
                quick(data, offset, value)
            except struct.error:  # unsigned, or too large: the long way tells them apart
                pass
            else:
                continue
        where = f"argument {index} of kernel {kernel!r}"
        wanted = signature[index] if signature is not None else None
        data[offset : offset + size] = _bytes(value, size, wanted, where, views)
    if len(views) > 1:
        _check_device(kernel, views)
    return views


def _check_device(kernel: str, views: Sequence[DeviceView]) -> None:
    numbers = sorted({view.device for view in views})
    if len(numbers) > 1:
        places = " and ".join(f"cuda:{n}" for n in numbers)
        raise DeviceError(
            f"the arrays given to kernel {kernel!r} are on {places}; a launch runs on one device",
            hint="copy them to one device first",
        )


def _bytes(
    value: object,
    size: int,
    wanted: Type | None,
    where: str,
    views: list[DeviceView],
) -> bytes:
    if isinstance(value, _SCALARS) or value is None:
        made = _scalar(value, size, wanted, where)
    elif isinstance(value, (bytes, bytearray)):
        made = bytes(value)
    elif hasattr(type(value), "__kernelmill_struct__"):
        made = _record(value, wanted, where)
    else:
        made = _address(value, wanted, where, views)
    if len(made) != size:
        kind = type(value).__name__
        raise ArgumentError(
            f"{where} takes {size} bytes; a {kind} of {len(made)} bytes was given",
            hint="pass a scalar of the type that the kernel declares, for example np.float32(x)",
        )
    return made


def _address(
    value: object,
    wanted: Type | None,
    where: str,
    views: list[DeviceView],
) -> bytes:
    view = view_of(value, where)
    if wanted is not None and not isinstance(wanted, Pointer):
        raise DTypeError(f"{where} is of type {wanted}; an array was given")
    if wanted is not None and wanted.dtype not in (None, view.dtype):
        raise DTypeError(
            f"{where} is of type {wanted}; an array of {view.dtype} was given",
            hint="convert the array, or compile the kernel for its type",
        )
    views.append(view)
    return view.ptr.to_bytes(_POINTER, "little")


def _record(value: Any, wanted: Type | None, where: str) -> bytes:
    type_: StructType = value.__kernelmill_struct__
    if wanted is not None and wanted != type_:
        raise DTypeError(f"{where} is of type {wanted}; a struct {type_} was given")
    made = np.zeros((), type_.to_numpy())
    for field in type_.fields:
        made[field.name] = getattr(value, field.name)
    return made.tobytes()


def _scalar(value: Any, size: int, wanted: Type | None, where: str) -> bytes:
    if isinstance(wanted, Pointer) or value is None:
        return _pointer(value, wanted, where)
    if isinstance(value, np.generic):
        _check_strong(value, wanted, where)
        return value.tobytes()
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure)):  # noqa: SLF001 - the base class
        return bytes(value)
    if isinstance(wanted, StructType):
        raise DTypeError(f"{where} is a struct {wanted}; a {type(value).__name__} was given")
    if wanted is not None:
        return _weak(value, wanted, where)
    return _by_size(value, size, where)


def _pointer(value: Any, wanted: Type | None, where: str) -> bytes:
    if value is None:
        value = 0
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise DTypeError(
            f"{where} is a pointer{f' ({wanted})' if wanted else ''}; "
            f"a {type(value).__name__} was given",
            hint="pass an array, an address as an int, or None",
        )
    return value.to_bytes(_POINTER, "little")


def _check_strong(value: np.generic, wanted: Type | None, where: str) -> None:
    if isinstance(wanted, (DType, StructType)) and value.dtype != wanted.to_numpy():
        raise DTypeError(
            f"{where} is of type {wanted}; a NumPy {value.dtype} was given",
            hint="a Python number takes the type of the argument",
        )


def _weak(value: complex, wanted: DType, where: str) -> bytes:
    """Pack a Python number as a strong type, as NumPy does: what does not fit is refused."""
    try:
        with np.errstate(over="ignore"):
            if wanted.name == "bfloat16":
                bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
                return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).to_bytes(2, "little")
            if isinstance(value, float) and wanted.is_integer:
                raise TypeError  # noqa: TRY301 - the same refusal as NumPy's own
            scalar: np.generic = wanted.to_numpy().type(value)
            return scalar.tobytes()
    except OverflowError:
        raise OverflowError(f"{where} is of type {wanted}, which cannot hold {value}") from None
    except (TypeError, ValueError):
        raise DTypeError(
            f"{where} is of type {wanted}; a Python {type(value).__name__} was given"
        ) from None


def _by_size(value: complex, size: int, where: str) -> bytes:
    """Pack a Python number into so many bytes: an int as an integer, a float as a float."""
    if isinstance(value, complex):
        half = _FLOATS.get(size // 2)
        return b"" if half is None else struct.pack(f"<2{half}", value.real, value.imag)
    if isinstance(value, float):
        code = _FLOATS.get(size)
        return struct.pack("<d" if code is None else f"<{code}", value)
    bits = 8 * size
    if size > _POINTER:
        return value.to_bytes(_POINTER, "little", signed=value < 0)
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise OverflowError(f"{where} takes {size} bytes, which cannot hold {value}")
    return value.to_bytes(size, "little", signed=value < 0)
