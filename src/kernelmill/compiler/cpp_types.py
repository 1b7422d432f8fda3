"""C++ names, literals and type definitions; statements and expressions are printed in `cpp.py`.

Structs are named by the digest of their layout and defined inside an include guard, so that
several operators in one translation unit share them.
"""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int64,
    storage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelmill.compiler.dialects import Dialect

__all__ = [
    "Names",
    "choose_definitions",
    "field_names",
    "initialisers",
    "literal",
    "type_definitions",
    "type_spelling",
]

_KEYWORD_TEXT: Final = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export
extern false final float for friend goto if import inline int linux long module mutable
namespace new noexcept not not_eq nullptr operator or or_eq override private protected public
register reinterpret_cast requires return short signed sizeof static static_assert static_cast
struct switch template this thread_local throw true try typedef typeid typename typeof union
unix unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_KEYWORDS: Final = frozenset(_KEYWORD_TEXT.split())
_LARGEST_TUPLE: Final = 8  # base.hpp defines tuple2 to tuple8


# ----------------------------------------------------------------------------- names


def _ascii(name: str) -> str:
    """Return a C++ identifier as close to `name` as one without reserved underscores can be."""
    plain = re.sub(r"[^A-Za-z0-9_]", lambda m: f"u{ord(m[0]):04x}", name)
    plain = re.sub(r"_+", "_", plain).strip("_")
    return plain if plain[:1].isalpha() else f"v{plain}"


class Names:
    """Gives C++ names to the user's: `x` becomes `x_`, so that nothing of ours is ever hidden."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def take(self, name: str) -> str:
        """Return a free name for `name`; the second `x` is `x_2`."""
        base, count = _ascii(name), 1
        free = f"{base}_"
        while free in self._taken:
            count += 1
            free = f"{base}_{count}"
        self._taken.add(free)
        return free


def field_names(type_: StructType) -> dict[str, str]:
    """Return the C++ member of each field: its own name, unless C++ reserves it."""
    members: dict[str, str] = {}
    taken = {f.name for f in type_.fields}
    for field in type_.fields:
        member = field.name
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", member) or "__" in member:
            member = _ascii(member)
        if member in _KEYWORDS or member.startswith(("KM_", "pad_")):
            member = f"{member}_"
        while member != field.name and member in taken:
            member = f"{member}_"
        taken.add(member)
        members[field.name] = member
    return members


# ----------------------------------------------------------------------------- types


def _layout_text(type_: Type) -> str:
    if isinstance(type_, TupleType):
        return f"({','.join(map(_layout_text, type_.items))})"
    return type_.short


def _digest(type_: Type) -> str:
    return hashlib.sha256(_layout_text(type_).encode()).hexdigest()[:8]


def type_spelling(type_: Type, *, qualified: bool = False) -> str:
    """Return the C++ name of the type in which values of `type_` are stored.

    Examples
    --------
    >>> from kernelmill.dtypes import TupleType, float32, weak_int
    >>> type_spelling(TupleType((float32, weak_int)), qualified=True)
    'km::tuple2<km::f32, km::i64>'
    """
    stored = storage(type_)
    scope = "km::" if qualified else ""
    if isinstance(stored, TupleType):
        if not 1 < len(stored.items) <= _LARGEST_TUPLE:
            return f"{scope}tuple_{_digest(stored)}"
        items = ", ".join(type_spelling(t, qualified=qualified) for t in stored.items)
        return f"{scope}tuple{len(stored.items)}<{items}>"
    return "bool" if stored == bool_ else f"{scope}{stored.short}"


def _aggregates(type_: Type) -> Iterator[StructType | TupleType]:
    """Yield the structs and tuples a type is made of, inner ones first, itself last."""
    stored = storage(type_)
    parts: Iterable[Type] = ()
    if isinstance(stored, StructType):
        parts = (f.type for f in stored.fields)
    elif isinstance(stored, TupleType):
        parts = stored.items
    for part in parts:
        yield from _aggregates(part)
    if isinstance(stored, (StructType, TupleType)):
        yield stored


def type_definitions(types: Iterable[Type], dialect: Dialect) -> str:
    """Return the definitions of all structs and long tuples in `types`, each in a guard."""
    found = dict.fromkeys(part for type_ in types for part in _aggregates(type_))
    return "".join(_definition(type_, dialect) for type_ in found)


def _definition(type_: StructType | TupleType, dialect: Dialect) -> str:
    name, tail = type_spelling(type_), []
    if isinstance(type_, StructType):
        alignment = type_.alignment if type_.is_c_layout else 1
        packed = dialect.packed.format(alignment)
        head = "struct" if _is_natural(type_) else f"struct {packed}"
        members = list(_members(type_))
        tail = [f'static_assert(sizeof({name}) == {type_.itemsize}, "layout of {name}");']
    elif 1 < len(type_.items) <= _LARGEST_TUPLE:
        return ""
    else:
        head = "struct"
        members = [f"{type_spelling(t)} f{i};" for i, t in enumerate(type_.items)]
        members += _late_members(len(type_.items), dialect)
    lines = [f"{head} {name} {{", *(f"  {m}" for m in members), "};", *tail]
    return _guarded(f"KM_TYPE_{name}", lines)


def _late_members(count: int, dialect: Dialect) -> Iterator[str]:
    """Yield the member function by which `result` of base.hpp and base.cuh has fields from 8 on."""
    if count <= _LARGEST_TUPLE:
        return
    *before, last = range(_LARGEST_TUPLE, count)
    yield f"template <int K> {dialect.function} auto at() const {{"
    yield from (f"  if constexpr (K == {field}) return f{field}; else" for field in before)
    yield f"  return f{last};"
    yield "}"


def choose_definitions(types: Iterable[Type], dialect: Dialect) -> str:
    """Return `choose(c, a, b)`, field by field, of all structs in `types`, each in a guard."""
    texts = []
    for part in dict.fromkeys(part for type_ in types for part in _aggregates(type_)):
        if isinstance(part, StructType):
            name = type_spelling(part)
            fields = [f"choose(c, a.{m}, b.{m})" for m in field_names(part).values()]
            lines = [
                f"{dialect.function} {name} choose(bool c, const {name}& a, const {name}& b) {{",
                f"  return {name}{{{', '.join(initialisers(part, fields))}}};",
                "}",
            ]
            texts.append(_guarded(f"KM_CHOOSE_{name}", lines))
    return "".join(texts)


def _guarded(macro: str, lines: list[str]) -> str:
    return "\n".join([f"#ifndef {macro}", f"#define {macro}", *lines, "#endif", "", ""])


def _is_natural(type_: DType | StructType) -> bool:
    """Whether C lays a type out as it is, and packs it too where a packed struct holds it.

    float16 and bfloat16 are classes with constructors: g++ packs no struct that has them inside,
    unless it is packed itself.
    """
    if isinstance(type_, DType):
        return type_ not in (float16, bfloat16)
    return type_.is_c_layout and all(_is_natural(f.type) for f in type_.fields)


def _placed(type_: StructType) -> Iterator[tuple[int | None, int, int]]:
    """Yield (index of a field, its offset, explicit padding bytes before it); None is the tail.

    A natural struct has no explicit padding: the compiler puts the same there.
    """
    end, natural = 0, _is_natural(type_)
    for index, field in sorted(enumerate(type_.fields), key=lambda pair: pair[1].offset):
        yield index, field.offset, 0 if natural else field.offset - end
        end = field.offset + field.type.itemsize
    yield None, type_.itemsize, 0 if natural else type_.itemsize - end


def _members(type_: StructType) -> Iterator[str]:
    names = list(field_names(type_).values())
    for index, offset, gap in _placed(type_):
        if gap:
            yield f"u8 pad_{offset}[{gap}];"
        if index is not None:
            field = type_.fields[index].type  # a stored bool may hold any byte
            yield f"{'u8' if field == bool_ else type_spelling(field)} {names[index]};"


def initialisers(type_: StructType, values: Sequence[str]) -> Iterator[str]:
    """Yield what stands in the braces that make a struct from the values of its fields."""
    for index, _, gap in _placed(type_):
        if gap:
            yield "{}"
        if index is not None:
            yield values[index]


# ----------------------------------------------------------------------------- literals


def _nearest(value: Fraction, digits: int, lowest: int, highest: float) -> float:
    """Round to `digits` binary digits, ties to even, no finer than 2**lowest; inf above highest."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - digits + 1, lowest)
    rounded = round(size / step) * step  # Python rounds a Fraction half to even
    result = math.inf if rounded > Fraction(highest) else float(rounded)
    return -result if value < 0 else result


# Digits of the significand, exponent of the smallest subnormal, largest finite value.
_FORMATS: Final = {
    float64: (53, -1074, float(np.finfo(np.float64).max)),
    float32: (24, -149, float(np.finfo(np.float32).max)),
    float16: (11, -24, 65504.0),
    bfloat16: (8, -133, float.fromhex("0x1.fep127")),
}


def rounded(value: float, type_: DType) -> float:
    """Return a Python number as a float type holds it: rounded as a conversion rounds it."""
    if type(value) is float and (value == 0 or not math.isfinite(value)):
        return value
    by_float32 = type_ == bfloat16 or (type_ == float16 and isinstance(value, int))
    if by_float32:
        value = _nearest(Fraction(value), *_FORMATS[float32])
        if not math.isfinite(value):
            return value
    result = _nearest(Fraction(value), *_FORMATS[type_])
    return math.copysign(result, value)


def _digits(value: float) -> str:
    """Write a finite float exactly: in decimal when that is short, else in hexadecimal."""
    decimal = format(Decimal(value), "f")
    if len(decimal) <= 10:  # noqa: PLR2004 - as long as a reader likes
        return decimal if "." in decimal else f"{decimal}.0"
    head, _, tail = value.hex().partition("p")
    return f"{head.rstrip('0').rstrip('.')}p{int(tail)}"


def _float_literal(value: float, stored: DType, dialect: Dialect) -> str:
    if stored in (float16, bfloat16):
        return f"{stored.short}({_float_literal(value, float32, dialect)})"
    if math.isnan(value):
        return dialect.nan[stored.short]
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return sign + dialect.infinity[stored.short]
    return _digits(value) + ("f" if stored == float32 else "")


def _int_literal(value: int, stored: DType, dialect: Dialect) -> str:
    low = value & ((1 << stored.bits) - 1)
    held = low - (1 << stored.bits) if stored.kind == "int" and low > stored.max else low
    unsigned = "u" if stored.kind == "uint" else ""
    suffix = unsigned + (dialect.int64_suffix if stored.bits == int64.bits else "")
    if held == stored.min and held < 0 and stored.bits >= 32:  # noqa: PLR2004 - int and wider
        return f"{stored.short}({held + 1}{suffix} - 1)"
    return f"{held}{suffix}" if stored.bits >= 32 else f"{stored.short}({held})"  # noqa: PLR2004


def literal(value: complex, type_: Type, dialect: Dialect) -> str:
    """Return a Python number as a literal of `type_`, converted as a Cast converts it."""
    stored = storage(type_)
    assert isinstance(stored, DType)
    if stored.kind == "complex":
        parts = (value.real, value.imag)
        texts = [literal(p, stored.real, dialect) for p in parts]
        return f"{stored.short}{{{', '.join(texts)}}}"
    assert not isinstance(value, complex)
    if stored == bool_:
        return "true" if value != 0 else "false"
    if stored.kind == "float":
        number = int(value) if isinstance(value, bool) else value
        return _float_literal(rounded(number, stored), stored, dialect)
    return _int_literal(int(value), stored, dialect)
