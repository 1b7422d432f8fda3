"""Scalar, weak and struct types, their layout, spellings and the two promotion tables.

No arrays live here: this module knows what an element is, never where it is.

Promotion follows NEP 50 (https://numpy.org/neps/nep-0050-scalar-promotion.html) in the table
`"numpy"` and PyTorch's `torch.promote_types` in the table `"torch"`; Python scalars are weak in
both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import numpy as np

from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DType",
    "Field",
    "StructType",
    "TupleType",
    "Type",
    "WeakType",
    "bfloat16",
    "bool_",
    "can_store",
    "complex64",
    "complex128",
    "current_promotion",
    "default_float",
    "dtype_of",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "promote",
    "promotion",
    "quotient_float",
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
PromotionTable: TypeAlias = Literal["numpy", "torch"]


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
_BY_NAME: Final = {t.name: t for t in SCALARS}
_BY_SHORT: Final = {t.short: t for t in SCALARS}


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
_WEAK_RANK: Final = {weak_int: 0, weak_float: 1, weak_complex: 2}


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
        return self == _c_layout(self.name, [(f.name, f.type) for f in self.fields])

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


# ----------------------------------------------------------------------------- promotion

_NUMPY_TABLE: Final = """
bool  i8   i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64  c64  c128
i8    i8   i16  i32  i64  i16  i32  i64  f64  f16  bf16 f32  f64  c64  c128
i16   i16  i16  i32  i64  i16  i32  i64  f64  f32  -    f32  f64  c64  c128
i32   i32  i32  i32  i64  i32  i32  i64  f64  f64  -    f64  f64  c128 c128
i64   i64  i64  i64  i64  i64  i64  i64  f64  f64  -    f64  f64  c128 c128
u8    i16  i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64  c64  c128
u16   i32  i32  i32  i64  u16  u16  u32  u64  f32  -    f32  f64  c64  c128
u32   i64  i64  i64  i64  u32  u32  u32  u64  f64  -    f64  f64  c128 c128
u64   f64  f64  f64  f64  u64  u64  u64  u64  f64  -    f64  f64  c128 c128
f16   f16  f32  f64  f64  f16  f32  f64  f64  f16  -    f32  f64  c64  c128
bf16  bf16 -    -    -    bf16 -    -    -    -    bf16 f32  f64  c64  c128
f32   f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f32  f64  c64  c128
f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64   c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c64  c128 c64  c128
c128  c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

_TORCH_TABLE: Final = """
bool  i8   i16  i32  i64  u8   -    -    -    f16  bf16 f32  f64  c64  c128
i8    i8   i16  i32  i64  i16  -    -    -    f16  bf16 f32  f64  c64  c128
i16   i16  i16  i32  i64  i16  -    -    -    f16  bf16 f32  f64  c64  c128
i32   i32  i32  i32  i64  i32  -    -    -    f16  bf16 f32  f64  c64  c128
i64   i64  i64  i64  i64  i64  -    -    -    f16  bf16 f32  f64  c64  c128
u8    i16  i16  i32  i64  u8   -    -    -    f16  bf16 f32  f64  c64  c128
-     -    -    -    -    -    u16  -    -    f16  bf16 f32  f64  -    -
-     -    -    -    -    -    -    u32  -    f16  bf16 f32  f64  -    -
-     -    -    -    -    -    -    -    u64  f16  bf16 f32  f64  -    -
f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64  c128
bf16  bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64  c64  c128
f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64  c128
f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64   c64  c64  c64  c64  c64  -    -    -    c64  c64  c64  c128 c64  c128
c128  c128 c128 c128 c128 c128 -    -    -    c128 c128 c128 c128 c128 c128
"""


def _parse_table(text: str) -> dict[tuple[DType, DType], DType | None]:
    rows = [line.split() for line in text.split("\n") if line]
    return {
        (a, b): _BY_SHORT.get(rows[i][j])
        for i, a in enumerate(SCALARS)
        for j, b in enumerate(SCALARS)
    }


_TABLES: Final = {"numpy": _parse_table(_NUMPY_TABLE), "torch": _parse_table(_TORCH_TABLE)}
# A weak value that meets a strong type of a lower kind lifts it to its own kind's default type.
_KIND_RANK: Final[dict[Kind, int]] = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
_DEFAULT_FLOAT: Final[dict[PromotionTable, DType]] = {"numpy": float64, "torch": float32}


# Whose rules hold: those of the library that the arrays of a call come from.
_RULES: Final[ContextVar[PromotionTable]] = ContextVar("kernelmill_promotion", default="numpy")


@contextlib.contextmanager
def promotion(table: PromotionTable) -> Iterator[None]:
    """Make `table` the one that `promote` and the typing rules of operations follow."""
    token = _RULES.set(table)
    try:
        yield
    finally:
        _RULES.reset(token)


def current_promotion() -> PromotionTable:
    """Return the table that holds here."""
    return _RULES.get()


def default_float(integer: DType) -> DType:
    """Return the float in which a floating function of an integer is computed."""
    return float32 if _RULES.get() == "torch" else _FLOAT_OF_SIZE[integer.itemsize]


def quotient_float() -> DType:
    """Return the float in which two integers are divided."""
    return _DEFAULT_FLOAT[_RULES.get()]


# NumPy takes the smallest float that holds integers of that many bytes.
_FLOAT_OF_SIZE: Final = {1: float16, 2: float32, 4: float64, 8: float64}


def promote(a: Type, b: Type, *, table: PromotionTable | None = None) -> Type:
    """Return the type in which values of `a` and `b` are combined, by the current table or `table`.

    Raises DTypeError when the table refuses the pair, or when one of them is a struct or tuple and
    the other is not the same.

    Examples
    --------
    >>> import kernelmill as km
    >>> from kernelmill.dtypes import promote, weak_float
    >>> promote(km.int32, km.float32), promote(km.float32, weak_float)
    (kernelmill.float64, kernelmill.float32)
    """
    if a == b:
        return a
    table = table or _RULES.get()
    if isinstance(a, WeakType) and isinstance(b, WeakType):
        return max(a, b, key=_WEAK_RANK.__getitem__)
    if isinstance(a, WeakType) and isinstance(b, DType):
        return _meet_weak(b, a, table)
    if isinstance(b, WeakType) and isinstance(a, DType):
        return _meet_weak(a, b, table)
    if isinstance(a, DType) and isinstance(b, DType):
        joined = _TABLES[table][a, b]
        if joined is not None:
            return joined
    raise DTypeError(
        f"{a} and {b} have no common type", hint="convert one of them, for example np.float32(x)"
    )


def _meet_weak(strong: DType, weak: WeakType, table: PromotionTable) -> DType:
    if _KIND_RANK[strong.kind] >= _KIND_RANK[weak.kind]:
        return strong
    if weak is weak_int:
        return int64
    if weak is weak_float:
        return _DEFAULT_FLOAT[table]
    if strong.kind == "float":
        return complex128 if strong is float64 else complex64
    return complex128 if table == "numpy" else complex64


_STORE_RANK: Final[dict[Kind, int]] = {"bool": 0, "uint": 1, "int": 2, "float": 3, "complex": 4}


def can_store(result: Type, out: Type) -> bool:
    """Whether a result may be stored as `out`: NumPy's rule "same_kind", weak types by their kind.

    Examples
    --------
    >>> import kernelmill as km
    >>> from kernelmill.dtypes import can_store
    >>> can_store(km.float64, km.float32), can_store(km.float32, km.int32)
    (True, False)
    """
    if isinstance(result, WeakType) and isinstance(out, DType):
        return out.kind != "bool" and _KIND_RANK[result.kind] <= _KIND_RANK[out.kind]
    if isinstance(result, DType) and isinstance(out, DType):
        return _STORE_RANK[result.kind] <= _STORE_RANK[out.kind]
    return result == out


def storage(type_: Type) -> DType | StructType | TupleType:
    """Return the type in which a value is stored: weak int is int64, weak float float64."""
    if isinstance(type_, WeakType):
        return type_.storage
    if isinstance(type_, TupleType):
        return TupleType(tuple(storage(t) for t in type_.items))
    return type_


# ----------------------------------------------------------------------------- conversion


def dtype_of(spec: object) -> DType | StructType:
    """Return the type that `spec` names: ours, a NumPy dtype or scalar class, a torch dtype, a
    struct class, a dict of fields, or one of the strings NumPy knows.

    Raises DTypeError for what is not served (object, str, datetime, byte-swapped, long double).

    Examples
    --------
    >>> import kernelmill as km, numpy as np
    >>> km.dtype_of(np.float32), km.dtype_of("int8")
    (kernelmill.float32, kernelmill.int8)
    """  # noqa: D205 - the first line needs its continuation
    if isinstance(spec, (DType, StructType)):
        return spec
    owner = getattr(spec, "__kernelmill_struct__", None)
    if isinstance(owner, StructType):
        return owner
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, dict):
        return _struct_from_fields("Struct", spec)
    if type(spec).__module__ == "torch" and type(spec).__name__ == "dtype":
        return _scalar_by_name(str(spec).removeprefix("torch."), spec)
    try:
        described: np.dtype[Any] = np.dtype(cast("Any", spec))
    except TypeError:
        raise DTypeError(f"{spec!r} is not a dtype", hint=_SERVED) from None
    return _from_numpy(described)


_SERVED: Final = (
    "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs"
)


def _scalar_by_name(name: str, spec: object) -> DType:
    found = _BY_NAME.get(name)
    if found is None:
        raise DTypeError(f"dtype {spec} is not served", hint=_SERVED)
    return found


def _from_numpy(described: np.dtype[Any]) -> DType | StructType:
    if described.fields is not None:
        return _struct_from_numpy("Struct", described)
    if not described.isnative:
        raise DTypeError(
            f"dtype {described.str} has the other byte order",
            hint="convert with `x.astype(x.dtype.newbyteorder('='))`",
        )
    if described.subdtype is not None:
        raise DTypeError(
            f"subarray dtype {described} is not served", hint="use a field for each item"
        )
    return _scalar_by_name(described.name, described)


def _struct_from_numpy(name: str, described: np.dtype[Any]) -> StructType:
    assert described.fields is not None
    assert described.names is not None
    fields = []
    for field_name in described.names:
        inner, offset = described.fields[field_name][:2]
        fields.append(Field(field_name, _from_numpy(inner), offset))
    _check_fields(name, [f.name for f in fields])
    _check_overlap(name, fields, described.itemsize)
    native = _c_layout(name, [(f.name, f.type) for f in fields])
    same = native.fields == tuple(fields) and native.itemsize == described.itemsize
    return StructType(
        name, tuple(fields), described.itemsize, native.alignment if same else described.alignment
    )


def _check_overlap(name: str, fields: list[Field], itemsize: int) -> None:
    end = 0
    for field in sorted(fields, key=lambda f: f.offset):
        if field.offset < end:
            raise DTypeError(f"field `{field.name}` of struct {name} overlaps another field")
        end = field.offset + field.type.itemsize
    if end > itemsize:
        raise DTypeError(f"struct {name} has {itemsize} bytes, its fields need {end}")


def _check_fields(name: str, names: list[str]) -> None:
    if not names:
        raise DTypeError(
            f"struct {name} has no fields", hint="declare at least one, as `x: km.float32`"
        )
    for field in names:
        if not field.isidentifier() or field.startswith("__"):
            raise DTypeError(
                f"field {field!r} of struct {name} is not a Python identifier",
                hint="rename the field; operators read it as an attribute",
            )


def _struct_from_fields(name: str, fields: dict[str, Any]) -> StructType:
    _check_fields(name, list(fields))
    return _c_layout(name, [(key, dtype_of(value)) for key, value in fields.items()])


def _c_layout(name: str, fields: list[tuple[str, DType | StructType]]) -> StructType:
    placed, offset, alignment = [], 0, 1
    for field_name, type_ in fields:
        step = type_.alignment
        offset = -(-offset // step) * step
        placed.append(Field(field_name, type_, offset))
        offset += type_.itemsize
        alignment = max(alignment, step)
    return StructType(name, tuple(placed), -(-offset // alignment) * alignment, alignment)
