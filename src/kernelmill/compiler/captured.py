"""What is captured at a call: read from the user's scope, checked, packed as the kernel expects.

Which names of a program are captured is found in `frontend/scope.py`; nothing is translated here.
A plan reads it at each call, so the common case takes no loop and no second look at a type.
Addresses of arrays are packed as 0; `pointers` says where whoever launches puts them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from kernelmill.compiler.literals import integer_text, weak_type_of
from kernelmill.dtypes import (
    DType,
    Type,
    bool_,
    dtype_of,
    int64,
    storage,
    uint64,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError, ScalarOverflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.arrays import ArrayType
    from kernelmill.compiler.frontend import Baked, CapturedScalar

__all__ = ["ALIGNMENT", "Pointer", "Reader", "pack_format", "pointers", "reader"]

# What packs the scalars of a function, or says by None that their types have changed.
Reader: TypeAlias = "Callable[[object], bytes | None]"

# Blocks of several operators follow each other in a kernel's captures, each at a multiple of this.
ALIGNMENT: Final = 16

# struct-module codes of the types a capture can have; bfloat16 has none and is refused.
_PACK: Final = {
    "bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f16": "e", "f32": "f", "f64": "d", "c64": "ff", "c128": "dd",
}  # fmt: skip


def pack_format(types: Sequence[Type], *, alignment: int = 1) -> struct.Struct:
    """Return the C layout of captured scalars, filled up to a multiple of `alignment` bytes.

    Raises DTypeError for a type that cannot be captured.
    """
    codes = ["@"]
    for type_ in types:
        stored = cast("DType", storage(type_))
        if stored.short not in _PACK:
            raise DTypeError(f"a captured {stored} is not served", hint="capture a float32")
        codes.append(_PACK[stored.short])
    text = "".join(codes)
    return struct.Struct(f"{text}{-struct.calcsize(text) % alignment}x")


# ----------------------------------------------------------------------------- arrays


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where the address of a captured array lies among what is packed, in bytes.

    `take` reads the array; `written` says that the operator writes to it.
    """

    name: str
    offset: int
    take: Callable[[object], Any]
    type: ArrayType
    written: bool


def pointers(captures: Sequence[CapturedScalar]) -> tuple[Pointer, ...]:
    """Return the captured arrays, by the places of their addresses."""
    types = [c.stored for c in captures]
    found = [(at, c, c.array) for at, c in enumerate(captures) if c.array is not None]
    return tuple(
        Pointer(c.name, pack_format(types[: at + 1]).size - _ADDRESS, c.read_from, array, c.written)
        for at, c, array in found
    )


def _nowhere(_: object) -> int:
    return 0


# ----------------------------------------------------------------------------- one scalar

_USUAL: Final[dict[Type, type]] = {weak_int: int, weak_float: float, weak_complex: complex}
_CHANGED: Final = object()
# Bytes of the address of an array.
_ADDRESS: Final = 8
# Python integers that are a float64 for sure.
_FLOATS: Final = range(-(1 << 1023), 1 << 1023)


class _Slot(NamedTuple):
    """How one captured scalar is read and packed.

    A value of the class `usual` needs no further look, an integer where it lies in `fits`.
    """

    capture: CapturedScalar
    take: Callable[[object], Any]
    usual: type
    fits: range | None
    spread: bool

    def converted(self, value: object) -> Any:
        """Return a value as it is packed, or `_CHANGED` when its type is not the capture's."""
        if type(value) is not self.usual and _scalar_type(value) != self.capture.type:
            return _CHANGED
        if self.fits is None:
            return value
        if self.capture.stored is weak_float:
            return _as_float(self.capture, cast("int", value))
        return _in_range(self.capture, cast("int", value))


def _slot(capture: CapturedScalar) -> _Slot:
    stored = cast("DType", storage(capture.type))
    usual = _USUAL.get(capture.type) or (bool if stored is bool_ else stored.to_numpy().type)
    limits = (*capture.limits, int64)
    fits = range(max(t.min for t in limits), min(t.max for t in limits) + 1)
    if capture.stored is weak_float:
        fits = _FLOATS
    integer = capture.type is weak_int
    take = capture.read_from
    if capture.array is not None:
        take, usual = _nowhere, int
    return _Slot(capture, take, usual, fits if integer else None, stored.kind == "complex")


def _in_range(capture: CapturedScalar, value: int) -> int:
    for limit in capture.limits or (int64,):
        if not limit.min <= value <= limit.max:
            raise ScalarOverflowError(
                f"Python integer {integer_text(value)} out of bounds for {limit}",
                hint=f"`{capture.name}` is captured and meets values of type {limit}, "
                f"which holds {limit.min} to {limit.max}",
            )
    if value > int64.max:  # only uint64 meets it: the same bits
        return value - (1 << uint64.bits)
    return value


def _as_float(capture: CapturedScalar, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ScalarOverflowError(
            f"Python integer {integer_text(value)} out of bounds for float64",
            hint=f"`{capture.name}` is captured and meets floats",
        ) from None


def _scalar_type(value: object) -> Type | None:
    if isinstance(value, np.generic):
        try:
            return cast("DType", dtype_of(value.dtype))
        except DTypeError:
            return None
    try:
        return weak_type_of(value)
    except DTypeError:
        return None


# ----------------------------------------------------------------------------- all of an operator


def reader(captures: Sequence[CapturedScalar], baked: Sequence[Baked]) -> tuple[Reader, int]:
    """Return what packs the captured scalars of a function, and how many bytes that gives.

    The reader gives None when what was baked, or the type of what was captured, no longer holds; it
    raises OverflowError when an integer does not fit the types it meets, as NumPy does.
    """
    packer = pack_format([c.stored for c in captures], alignment=ALIGNMENT)
    slots = tuple(map(_slot, captures))
    read = _reader_of_all(slots, tuple((b.read_from, b.value) for b in baked), packer.pack)
    if len(slots) == 1 and not baked and not slots[0].spread:
        read = _reader_of_one(slots[0], packer.pack, read)
    return read, packer.size


def _reader_of_one(slot: _Slot, pack: Callable[..., bytes], general: Reader) -> Reader:
    _, take, usual, fits, _ = slot
    if fits is None:

        def read(root: object) -> bytes | None:
            value = take(root)
            return pack(value) if type(value) is usual else general(root)

        return read

    def read_integer(root: object) -> bytes | None:
        value = take(root)
        return pack(value) if type(value) is usual and value in fits else general(root)

    return read_integer


def _reader_of_all(
    slots: Sequence[_Slot],
    baked: Sequence[tuple[Callable[[object], object], object]],
    pack: Callable[..., bytes],
) -> Reader:
    def read(root: object) -> bytes | None:
        for look, value in baked:
            if look(root) is not value:
                return None
        values: list[Any] = []
        for slot in slots:
            found = slot.take(root)
            if type(found) is not slot.usual or slot.fits is not None:
                found = slot.converted(found)
                if found is _CHANGED:
                    return None
            if slot.spread:
                values += (found.real, found.imag)
            else:
                values.append(found)
        return pack(*values)

    return read
