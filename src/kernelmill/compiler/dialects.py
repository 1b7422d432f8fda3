"""How operations, types and literals are spelled in C++: the tables of each dialect; no printing.

`cpp.py` prints from these tables alone: what differs between host C++ and a device language is a
row here. The values of the spelled functions are defined by the headers that the table names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.compiler.intrinsics import ATOMICS
from kernelmill.dtypes import DType, Type, storage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CUDA",
    "GUARDED",
    "HOST",
    "HOST_NEAR",
    "INFIX",
    "KERNEL",
    "Dialect",
    "Family",
    "family_of",
]

# How a scalar type computes: bool, integers below 32 bits, signed and unsigned ones, and so on.
Family: TypeAlias = Literal["bool", "small", "int", "uint", "float", "complex"]
_NATIVE_BYTES: Final = 4  # C promotes narrower integers to int


@dataclass(frozen=True, slots=True)
class Dialect:
    """One language the printer writes.

    `forms` maps an operation to a spelling for each family: an infix or prefix symbol, the name of
    a function, or "" where the value is unchanged; "any" stands for the families not named.
    `side_by_side` replaces forms in programs with structs or several results. `headers` maps
    functions to the file that defines them, by (family, name) or by name. `base` is a struct that
    functors derive from, "" for none.
    """

    name: str
    function: str
    packed: str
    int64_suffix: str
    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    prelude: str
    scalar_header: str
    forms: Mapping[str, Mapping[str, str]]
    side_by_side: Mapping[str, Mapping[str, str]]
    headers: Mapping[tuple[Family, str] | str, str]
    base: str = ""

    def form(self, op: str, family: Family) -> str:
        """Return the spelling of an operation for a family of types."""
        row = self.forms.get(op, {})
        return row.get(family, row.get("any", op))

    def for_neighbours(self) -> Dialect:
        """Return the dialect for programs whose values are stored side by side."""
        return replace(self, forms={**self.forms, **self.side_by_side})

    def header(self, family: Family, function: str) -> str:
        """Return the file that defines a function for a family of types."""
        found = self.headers.get((family, function)) or self.headers.get(function)
        return found or ("complex.hpp" if family == "complex" else self.scalar_header)


def family_of(type_: Type) -> Family:
    """Return how a scalar type computes; float16 and bfloat16 compute as floats."""
    stored = storage(type_)
    assert isinstance(stored, DType)
    if stored.is_integer and stored.itemsize < _NATIVE_BYTES:
        return "small"
    return stored.kind


# Symbols and how tightly they bind; only * / and + - are ever nested without parentheses.
INFIX: Final[dict[str, int]] = {
    "*": 6, "/": 6, "%": 6, "+": 5, "-": 5,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3,
    "&": 2, "|": 2, "^": 2,
}  # fmt: skip

_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

_FORMS: Final[dict[str, dict[str, str]]] = {
    "add": {"bool": "|", "uint": "+", "float": "+"},
    "sub": {"uint": "-", "float": "-"},
    "mul": {"bool": "&", "uint": "*", "float": "*"},
    "truediv": {"float": "/", "complex": "div"},
    "fmod": {"any": "c_fmod"},
    "pow": {"float": "pow", "any": "pow_int"},
    "neg": {"float": "-"},
    "pos": {"any": ""},
    "abs": {"bool": "", "uint": "", "float": "fabs"},
    "and": {"bool": "&", "int": "&", "uint": "&", "any": "bit_and"},
    "or": {"bool": "|", "int": "|", "uint": "|", "any": "bit_or"},
    "xor": {"bool": "^", "int": "^", "uint": "^", "any": "bit_xor"},
    "invert": {"bool": "!", "int": "~", "uint": "~"},
    "min": {"any": "py_min"},
    "max": {"any": "py_max"},
    "minimum": {"any": "np_minimum"},
    "maximum": {"any": "np_maximum"},
    "fmin": {"any": "np_fmin"},
    "fmax": {"any": "np_fmax"},
    "floor": {"float": "floor", "any": ""},
    "ceil": {"float": "ceil", "any": ""},
    "trunc": {"float": "trunc", "any": ""},
    "real": {"complex": "real", "any": ""},
    "conj": {"complex": "conj", "any": ""},
    **{op: {"any": symbol} for op, symbol in _COMPARISONS.items()},
}


_ATOMICS: Final = tuple({row.function: None for row in ATOMICS.values()})


def _headers() -> dict[tuple[Family, str] | str, str]:
    files = {
        "vmath_core.hpp": "fma sqrt floor ceil trunc rint fabs copysign isnan isinf isfinite "
        "signbit degrees radians ldexp frexp_mantissa frexp_exponent popcount clz ctz",
        "vmath_exp.hpp": "exp exp2 expm1 sinh cosh tanh",
        "vmath_log.hpp": "log log2 log10 log1p asinh acosh atanh",
        "vmath_trig.hpp": "sin cos tan asin acos atan atan2",
        "vmath_power.hpp": "pow rsqrt cbrt hypot",
        "vmath_special.hpp": "erf erfc",
        "vmath_gamma.hpp": "tgamma lgamma",
    }
    return {
        **{name: file for file, names in files.items() for name in names.split()},
        ("float", "mod"): "remainder.hpp",
        ("float", "floordiv"): "remainder.hpp",
        ("float", "c_fmod"): "remainder.hpp",
        ("complex", "abs"): "complex_abs.hpp",
        **dict.fromkeys(_ATOMICS, "atomics.hpp"),
    }


HOST: Final = Dialect(
    name="c++",
    function="KM_INL",
    packed="__attribute__((packed, aligned({})))",
    int64_suffix="L",
    infinity={"f32": "__builtin_inff()", "f64": "__builtin_inf()"},
    nan={"f32": '__builtin_nanf("")', "f64": '__builtin_nan("")'},
    prelude="base.hpp",
    scalar_header="scalar.hpp",
    forms=_FORMS,
    side_by_side={"sub": {**_FORMS["sub"], "float": "sub"}},  # scalar.hpp says why
    headers=_headers(),
)

# Functions that have a quick form for arguments that are not huge; the functor notes when one was.
GUARDED: Final = ("sin", "cos", "tan")
_NEAR: Final = (*GUARDED, "exp")  # this one too is shorter, but not by enough to have two forms
HOST_NEAR: Final = replace(
    HOST,
    name="c++ for near arguments",
    forms={**_FORMS, **{op: {"float": f"{op}_near"} for op in _NEAR}},
    headers={**HOST.headers, **{f"{op}_near": "near.hpp" for op in _NEAR}},
    base="near_functions",
)

# The same files, with device/base.cuh in the place of base.hpp; nothing is contracted there, so
# subtractions need no care, and the argument of a trigonometric function may always be huge.
CUDA: Final = replace(
    HOST,
    name="cuda",
    infinity={
        "f32": "__int_as_float(0x7f800000)",
        "f64": "__longlong_as_double(0x7ff0000000000000LL)",
    },
    nan={"f32": "__int_as_float(0x7fc00000)", "f64": "__longlong_as_double(0x7ff8000000000000LL)"},
    side_by_side={},
    headers={**HOST.headers, **dict.fromkeys(_ATOMICS, "atomics.cuh")},
)

# Kernels that need not agree to the bit with the CPU take CUDA's own functions.
_NATIVE: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "rsqrt", "cbrt", "hypot",
    "erf", "erfc", "tgamma", "lgamma",
)  # fmt: skip
KERNEL: Final = replace(
    CUDA,
    name="cuda for kernels",
    forms={
        **CUDA.forms,
        **{op: {"float": f"native_{op}"} for op in _NATIVE},
        "pow": {"float": "native_pow", "any": "pow_int"},
    },
    headers={**CUDA.headers, **{f"native_{op}": "native.cuh" for op in (*_NATIVE, "pow")}},
)
