"""The two promotion tables, and which types may be stored as which.

Promotion follows NEP 50 (https://numpy.org/neps/nep-0050-scalar-promotion.html) in the table
`"numpy"` and PyTorch's `torch.promote_types` in the table `"torch"`; Python scalars are weak in
both.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.dtypes.elements import (
    SCALARS,
    DType,
    Kind,
    Type,
    WeakType,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PromotionTable",
    "can_store",
    "current_promotion",
    "default_float",
    "promote",
    "promotion",
    "quotient_float",
]

PromotionTable: TypeAlias = Literal["numpy", "torch"]
_BY_SHORT: Final = {t.short: t for t in SCALARS}
_WEAK_RANK: Final = {weak_int: 0, weak_float: 1, weak_complex: 2}

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
