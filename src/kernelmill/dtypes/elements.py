"""What an element is: scalar, weak and struct types, and how they lie in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from kernelmill.errors import DTypeError

__all__ = [
    "SCALARS",
    "DType",
    "Field",
    "Kind",
    "StructType",
    "TupleType",
    "Type",
    "WeakType",
    "bfloat16",
    "bool_",
    "c_layout",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "storage",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "weak_complex",
    "weak_float",
    "weak_int",
]

Kind: TypeAlias = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type: `name` as in NumPy, `short` as in generated C++, `itemsize` in bytes."""

    name: str
    short: str
    kind: Kind
    itemsize: int

    def __repr__(self) -> str:
        return f"kernelmill.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def alignment(self) -> int:
        """Bytes to which C aligns a value of this type."""
        return self.itemsize // 2 if self.kind == "complex" else self.itemsize

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 8 * self.itemsize

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or an unsigned integer; bool is not."""
        return self.kind in ("int", "uint")

    @property
    def min(self) -> int:
        """Smallest value of an integer or bool type."""
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max(self) -> int:
        """Largest value of an integer or bool type."""
        return {"bool": 1, "int": (1 << (self.bits - 1)) - 1}.get(self.kind, (1 << self.bits) - 1)

    @property
    def real(self) -> DType:
        """Type of the real part; the type itself when it is not complex."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_numpy(self) -> np.dtype[Any]:
        """Return the NumPy dtype; bfloat16 needs `ml_dtypes` to be imported already.

        Examples
        --------
        >>> import kernelmill as km
        >>> km.float32.to_numpy()
        dtype('float32')
        """
        if self is not bfloat16:
            return np.dtype(self.name)
        module = sys.modules.get("ml_dtypes")
        if module is None:
            raise DTypeError(
                "bfloat16 has no NumPy dtype in this process",
                hint="`pip install ml_dtypes` and `import ml_dtypes`, or pass torch tensors",
            )
        return cast("np.dtype[Any]", np.dtype(module.bfloat16))


bool_: Final = DType("bool", "bool", "bool", 1)
int8: Final = DType("int8", "i8", "int", 1)
int16: Final = DType("int16", "i16", "int", 2)
int32: Final = DType("int32", "i32", "int", 4)
int64: Final = DType("int64", "i64", "int", 8)
uint8: Final = DType("uint8", "u8", "uint", 1)
uint16: Final = DType("uint16", "u16", "uint", 2)
uint32: Final = DType("uint32", "u32", "uint", 4)
uint64: Final = DType("uint64", "u64", "uint", 8)
float16: Final = DType("float16", "f16", "float", 2)
bfloat16: Final = DType("bfloat16", "bf16", "float", 2)
float32: Final = DType("float32", "f32", "float", 4)
float64: Final = DType("float64", "f64", "float", 8)
complex64: Final = DType("complex64", "c64", "complex", 8)
complex128: Final = DType("complex128", "c128", "complex", 16)

# Order of the rows and columns of both promotion tables.
SCALARS: Final = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WeakType:
    """Type of a Python scalar: it takes the type of what it meets, and is stored as `storage`."""

    name: str
    kind: Kind
    storage: DType

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    @property
    def short(self) -> str:
        """Spelling of the storage type in generated C++."""
        return self.storage.short


weak_int: Final = WeakType("weak int", "int", int64)
weak_float: Final = WeakType("weak float", "float", float64)
weak_complex: Final = WeakType("weak complex", "complex", complex128)


# Characters of the fields' names in the spelling of a struct.
_SPELLED: Final = 32


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: `offset` in bytes from the start."""

    name: str
    type: DType | StructType
    offset: int


@dataclass(frozen=True, slots=True)
class StructType:
    """A record of fields at fixed offsets; C layout, or a packed NumPy dtype's own.

    `itemsize` and `alignment` are in bytes; two struct types are equal when their layouts are:
    an array of a NumPy dtype knows no name.
    """

    name: str = dataclasses.field(compare=False)
    fields: tuple[Field, ...]
    itemsize: int
    alignment: int

    def __str__(self) -> str:
        return self.name

    def field(self, name: str) -> Field | None:
        """Return the field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)

    @property
    def short(self) -> str:
        """Spelling in generated C++: equal types have equal spellings, whatever their names."""
        fields = [(f.name, f.type.short, f.offset) for f in self.fields]
        layout = hashlib.sha256(repr((fields, self.itemsize, self.alignment)).encode()).hexdigest()
        names = "_".join(f.name for f in self.fields if f.name.isascii())
        return f"Struct_{names[:_SPELLED]}_{layout[:8]}"

    @property
    def is_c_layout(self) -> bool:
        """Whether a C compiler lays these fields out at these offsets by itself."""
        return self == c_layout(self.name, [(f.name, f.type) for f in self.fields])

    def to_numpy(self) -> np.dtype[Any]:
        """Return the NumPy structured dtype with the same offsets and itemsize."""
        return np.dtype(
            {
                "names": [f.name for f in self.fields],
                "formats": [f.type.to_numpy() for f in self.fields],
                "offsets": [f.offset for f in self.fields],
                "itemsize": self.itemsize,
                "aligned": False,
            }
        )


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several values together: what an operator with several results returns."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Type: TypeAlias = DType | WeakType | StructType | TupleType


def storage(type_: Type) -> DType | StructType | TupleType:
    """Return the type in which a value is stored: weak int is int64, weak float float64."""
    if isinstance(type_, WeakType):
        return type_.storage
    if isinstance(type_, TupleType):
        return TupleType(tuple(storage(t) for t in type_.items))
    return type_


def c_layout(name: str, fields: list[tuple[str, DType | StructType]]) -> StructType:
    """Return a struct of these fields as a C compiler lays it out."""
    placed, offset, alignment = [], 0, 1
    for field_name, type_ in fields:
        step = type_.alignment
        offset = -(-offset // step) * step
        placed.append(Field(field_name, type_, offset))
        offset += type_.itemsize
        alignment = max(alignment, step)
    return StructType(name, tuple(placed), -(-offset // alignment) * alignment, alignment)
