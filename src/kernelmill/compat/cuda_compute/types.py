"""Type descriptors: element types as `cuda.compute` names them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import dtypes as km_types
from kernelmill.structs import struct as km_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.dtypes import DType, StructType

__all__ = [
    "PointerTypeDescriptor",
    "StructTypeDescriptor",
    "TypeDescriptor",
    "bfloat16",
    "boolean",
    "float16",
    "float32",
    "float64",
    "from_numpy_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "pointer",
    "struct",
    "to_ctypes_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


@dataclass(frozen=True, repr=False)
class TypeDescriptor:
    """An element type; `dtype` is NumPy's, None where NumPy has none."""

    kind: DType | StructType

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's type."""
        if self.kind == km_types.bfloat16 and not _has_ml_dtypes():
            return None
        return self.kind.to_numpy()

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.kind.itemsize

    @property
    def alignment(self) -> int:
        """Bytes that addresses are a multiple of."""
        return self.kind.to_numpy().alignment if self.dtype is not None else self.kind.itemsize

    def pointer(self) -> PointerTypeDescriptor:
        """Return the type of a pointer to this one."""
        return PointerTypeDescriptor(km_types.uint64, self)

    def __repr__(self) -> str:
        return f"TypeDescriptor({self.dtype})"


@dataclass(frozen=True, repr=False)
class StructTypeDescriptor(TypeDescriptor):
    """A struct: its name, and its fields in order."""

    name: str = field(default="AnonStruct", compare=False)
    members: tuple[tuple[str, TypeDescriptor], ...] = ()

    @property
    def fields(self) -> dict[str, TypeDescriptor]:
        """The fields by name."""
        return dict(self.members)

    @property
    def alignment(self) -> int:
        """Bytes that addresses are a multiple of: what its fields ask for."""
        return max((t.alignment for _, t in self.members), default=1)

    def layout_key(self) -> tuple[tuple[str, TypeDescriptor], ...]:
        """Return what tells layouts apart."""
        return self.members

    def __repr__(self) -> str:
        return f"StructTypeDescriptor({self.name}, dtype={self.dtype})"


@dataclass(frozen=True, repr=False)
class PointerTypeDescriptor(TypeDescriptor):
    """A pointer, which is stored as a uint64."""

    pointee: TypeDescriptor = TypeDescriptor(km_types.uint8)

    def __repr__(self) -> str:
        return f"PointerTypeDescriptor({self.pointee})"


def _has_ml_dtypes() -> bool:
    try:
        import ml_dtypes  # noqa: F401, PLC0415 - an optional package
    except ImportError:
        return False
    return True


int8: Final = TypeDescriptor(km_types.int8)
int16: Final = TypeDescriptor(km_types.int16)
int32: Final = TypeDescriptor(km_types.int32)
int64: Final = TypeDescriptor(km_types.int64)
uint8: Final = TypeDescriptor(km_types.uint8)
uint16: Final = TypeDescriptor(km_types.uint16)
uint32: Final = TypeDescriptor(km_types.uint32)
uint64: Final = TypeDescriptor(km_types.uint64)
float16: Final = TypeDescriptor(km_types.float16)
bfloat16: Final = TypeDescriptor(km_types.bfloat16)
float32: Final = TypeDescriptor(km_types.float32)
float64: Final = TypeDescriptor(km_types.float64)
boolean: Final = TypeDescriptor(km_types.bool_)


def struct(fields: Mapping[str, TypeDescriptor], name: str = "AnonStruct") -> StructTypeDescriptor:
    """Return the type of a struct with these fields, laid out as C does.

    Raises
    ------
    TypeError
        A field has a type that NumPy does not have.
    """
    for label, type_ in fields.items():
        if type_.dtype is None:
            raise TypeError(f"field {label!r} is {type_}, which NumPy lacks: install ml_dtypes")
    layout = np.dtype([(label, t.dtype) for label, t in fields.items()], align=True)
    made = km_struct(layout, name=name)
    return StructTypeDescriptor(made.__kernelmill_struct__, name, tuple(fields.items()))


def pointer(pointee: TypeDescriptor) -> PointerTypeDescriptor:
    """Return the type of a pointer to `pointee`."""
    return pointee.pointer()


def from_numpy_dtype(dtype: Any) -> TypeDescriptor:  # Any: whatever np.dtype takes
    """Return the descriptor of a NumPy type; structured types become structs, nested ones too.

    Examples
    --------
    >>> from kernelmill.compat.cuda_compute import types
    >>> types.from_numpy_dtype("int32") == types.int32
    True
    """
    found = np.dtype(dtype)
    if found.names is None:
        return TypeDescriptor(km_types.dtype_of(found))
    assert found.fields is not None
    return struct({name: from_numpy_dtype(found.fields[name][0]) for name in found.names})


def to_ctypes_type(descriptor: TypeDescriptor) -> Any:  # Any: a class of ctypes
    """Return the class of ctypes with the same layout."""
    if descriptor.dtype is None:
        return ctypes.c_uint16
    return np.ctypeslib.as_ctypes_type(descriptor.dtype)
