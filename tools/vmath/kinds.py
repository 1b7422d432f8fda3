"""The two floating-point kinds, and how their constants and polynomials are written in C++."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mpmath as mp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vmath.fit import Real


@dataclass(frozen=True, slots=True)
class Kind:
    """One floating-point type: its names in C++ and the numbers of its format."""

    real: str
    unsigned: str
    signed: str
    digits: int
    bias: int
    suffix: str

    @property
    def single(self) -> bool:
        """Whether this is float32."""
        return self.digits == 24

    @property
    def mantissa(self) -> int:
        """Stored mantissa bits."""
        return self.digits - 1

    @property
    def width(self) -> int:
        """Bits of the whole format."""
        return 32 if self.single else 64

    @property
    def epsilon(self) -> Real:
        """Half a unit in the last place of 1."""
        return mp.mpf(2) ** -self.digits

    def pick(self, single: object, double: object) -> object:
        """Return the first for float32, the second for float64."""
        return single if self.single else double

    def literal(self, value: object) -> str:
        """Write `value`, rounded to this format, as a hexadecimal (or short decimal) literal."""
        number = self.round(value)
        if number * 8 == int(number * 8) and abs(number) < 10_000:  # short in decimal
            return f"{number}{self.suffix}"
        head, tail = number.hex().split("p")
        return f"{head.rstrip('0').rstrip('.')}p{int(tail)}{self.suffix}"

    def round(self, value: object) -> float:
        """Round to the nearest number of this format."""
        number = mp.mpf(value)
        with mp.workprec(self.digits):
            return float(+number)

    def word(self, value: int) -> str:
        """Write an unsigned bit pattern of this format's width."""
        return f"0x{value:0{self.width // 4}x}{self.pick('u', 'ull')}"

    def pattern(self, value: object) -> str:
        """Write the bit pattern of `value` rounded to this format."""
        number = self.round(value)
        code = (
            struct.unpack("<I", struct.pack("<f", number))
            if self.single
            else struct.unpack("<Q", struct.pack("<d", number))
        )
        return self.word(code[0])


F32 = Kind("f32", "u32", "i32", 24, 127, "f")
F64 = Kind("f64", "u64", "i64", 53, 1023, "")
KINDS = (F32, F64)


def fill(text: str, kind: Kind, constants: Mapping[str, object] | None = None) -> str:
    """Replace `$F $U $I`, `$name`, number literals `#0.5` and `@name`.

    `$name` and `-$name` are values of `constants` written as literals of the kind; `@name` is put
    in as it stands.
    """
    values = dict(constants or {})
    types = {"F": kind.real, "U": kind.unsigned, "I": kind.signed}

    def value(match: re.Match[str]) -> str:
        sign, name = match.groups()
        if name in types:
            return sign + types[name]
        number = mp.mpf(values[name])
        return kind.literal(-number if sign else number)

    text = re.sub(r"@(\w+)", lambda m: str(values[m.group(1)]), text)
    text = re.sub(r"#(\d+(?:\.\d+)?)", lambda m: kind.literal(m.group(1)), text)
    text = re.sub(r"#(p-?\d+)", lambda m: f"0x1{m.group(1)}{kind.suffix}", text)
    return re.sub(r"(-?)\$([A-Za-z]\w*)", value, text)


def polynomial(name: str, coefficients: Sequence[Real], kind: Kind, about: str) -> str:
    """Write a function `name(x)`: even and odd powers in two Horner chains of x^2."""
    lines = [f"// {about}", f"KM_INL {kind.real} {name}({kind.real} x) {{"]
    if len(coefficients) <= 3:
        lines.append(f"  {kind.real} y = {kind.literal(coefficients[-1])};")
        lines += [f"  y = fma(y, x, {kind.literal(c)});" for c in coefficients[-2::-1]]
        return "\n".join([*lines, "  return y;", "}", ""])
    lines.append(f"  const {kind.real} x2 = x * x;")
    for chain, start in (("even", 0), ("odd", 1)):
        part = list(coefficients[start::2])[::-1]
        lines.append(f"  {kind.real} {chain} = {kind.literal(part[0])};")
        lines += [f"  {chain} = fma({chain}, x2, {kind.literal(c)});" for c in part[1:]]
    return "\n".join([*lines, "  return fma(odd, x, even);", "}", ""])
