"""The table of operations: names, typing rules, Python spellings and ulp bounds; no printing.

An operation is an operator of Python (`add`), a comparison (`lt`), or a function (`exp`). Its rule
says, for the types of the operands as written, to which types they are converted and what results.
Values are defined in `docs/reference/operator-language.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from kernelmill.dtypes import (
    DType,
    Kind,
    Type,
    WeakType,
    bool_,
    complex64,
    complex128,
    default_float,
    float32,
    float64,
    int8,
    int32,
    promote,
    quotient_float,
    uint8,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ATOMICS",
    "EFFECTS",
    "OPERATIONS",
    "SPELLINGS",
    "AtomicRow",
    "EffectRow",
    "Operation",
    "OperationError",
    "Signature",
]

Signature: TypeAlias = "tuple[tuple[Type, ...], Type]"


class OperationError(TypeError):
    """An operation is not defined for these operand types."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table.

    `rule` maps operand types to (converted operand types, result type); `spellings` are what a
    user writes (`np.exp`); `ulp` are the error bounds for float32 and float64, 0.5 where rounding
    is exact, None where the result is not a rounded real number.
    """

    name: str
    arity: int
    rule: Callable[[Operation, tuple[Type, ...]], Signature]
    spellings: tuple[str, ...] = ()
    ulp: tuple[float, float] | None = None
    symbol: str = ""

    def signature(self, types: tuple[Type, ...]) -> Signature:
        """Return the operand types to convert to, and the result type, or raise OperationError."""
        if len(types) != self.arity:
            raise OperationError(f"takes {self.arity} operands, got {len(types)}")
        for type_ in types:
            if not isinstance(type_, (DType, WeakType)):
                raise OperationError(f"is not defined for {type_}")
        try:
            return self.rule(self, types)
        except DTypeError as error:
            raise OperationError(error.message) from error


def _kind(type_: Type) -> Kind:
    assert isinstance(type_, (DType, WeakType))
    return type_.kind


def _join(types: tuple[Type, ...]) -> Type:
    joined = types[0]
    for type_ in types[1:]:
        joined = promote(joined, type_)
    return joined


def _refuse(joined: Type, kinds: tuple[Kind, ...]) -> None:
    if _kind(joined) in kinds:
        raise OperationError(f"is not defined for {joined}")


# ----------------------------------------------------------------------------- typing rules


def _same(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Operands are promoted; the result has their type."""
    joined = _join(types)
    return (joined,) * op.arity, joined


def _no_bool(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; bool is refused, as NumPy refuses `-` and unary `-` on bool."""
    _refuse(_join(types), ("bool",))
    return _same(op, types)


def _real_bool_as_int8(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; bool counts as int8; complex is refused."""
    joined = int8 if (joined := _join(types)) == bool_ else joined
    _refuse(joined, ("complex",))
    return (joined,) * op.arity, joined


def _bool_as_int8(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; bool counts as int8."""
    joined = int8 if (joined := _join(types)) == bool_ else joined
    return (joined,) * op.arity, joined


def _real(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; complex is refused."""
    _refuse(_join(types), ("complex",))
    return _same(op, types)


def _real_no_bool(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; bool and complex are refused."""
    _refuse(_join(types), ("bool", "complex"))
    return _same(op, types)


def _integer(op: Operation, types: tuple[Type, ...]) -> Signature:
    """As `_same`; integers and bool only."""
    _refuse(_join(types), ("float", "complex"))
    return _same(op, types)


def _shift(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Integers only; bool counts as int8."""
    _refuse(_join(types), ("float", "complex"))
    return _bool_as_int8(op, types)


def _division(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Divide truly: integers and bool become float64 (torch: float32), weak ones weak float."""
    joined = _join(types)
    if _kind(joined) in ("bool", "int", "uint"):
        joined = weak_float if joined == weak_int else quotient_float()
    return (joined,) * op.arity, joined


def _as_float(type_: Type) -> Type:
    if type_ == weak_int:
        return weak_float
    if isinstance(type_, DType) and type_.kind in ("bool", "int", "uint"):
        return default_float(type_)
    return type_


def _floating(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Floating functions: integers become the float NumPy chooses; complex is refused."""
    if any(isinstance(type_, WeakType) for type_ in types):
        joined = _as_float(_join(types))
    else:  # one by one, as in NumPy: int8 with uint8 is float16
        joined = _join(tuple(map(_as_float, types)))
    _refuse(joined, ("complex",))
    return (joined,) * op.arity, joined


def _comparison(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Two integers are compared as the mathematical values they are; others are promoted."""
    integers = ("int", "uint")
    if all(_kind(t) in integers for t in types):
        return types, bool_
    return (_join(types),) * op.arity, bool_


def _truth(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Any scalar is tested as it is."""
    del op
    return types, bool_


def _predicate(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Floating predicates: integers become float; complex is refused."""
    return _floating(op, types)[0], bool_


_REAL_OF: Final[dict[Type, Type]] = {
    complex64: float32,
    complex128: float64,
    weak_complex: weak_float,
}


def _real_part(op: Operation, types: tuple[Type, ...]) -> Signature:
    """One operand as it is; the result is real."""
    del op
    return types, _REAL_OF.get(types[0], types[0])


def _to_int(op: Operation, types: tuple[Type, ...]) -> Signature:
    """One real operand as it is; the result is a weak int, as Python's `int()` gives."""
    del op
    _refuse(types[0], ("complex",))
    return types, weak_int


def _scale(op: Operation, types: tuple[Type, ...]) -> Signature:
    """ldexp: a floating value and an integer that is stored as int32 (saturated)."""
    del op
    value = _as_float(types[0])
    _refuse(value, ("complex",))
    _refuse(types[1], ("float", "complex"))
    return (value, types[1]), value


def _exponent(op: Operation, types: tuple[Type, ...]) -> Signature:
    """Give int32, the second result of frexp."""
    return _floating(op, types)[0], int32


def _bit_count(op: Operation, types: tuple[Type, ...]) -> Signature:
    """One integer as it is; the result is uint8, large enough for any width."""
    del op
    _refuse(types[0], ("float", "complex"))
    return types, uint8


# ----------------------------------------------------------------------------- the table

_EXACT: Final = (0.5, 0.5)


def _rows() -> tuple[Operation, ...]:
    op = Operation
    return (
        # arithmetic
        op("add", 2, _same, ("np.add",), _EXACT, "+"),
        op("sub", 2, _no_bool, ("np.subtract",), _EXACT, "-"),
        op("mul", 2, _same, ("np.multiply",), _EXACT, "*"),
        op("truediv", 2, _division, ("np.divide", "np.true_divide"), _EXACT, "/"),
        op("floordiv", 2, _real_bool_as_int8, ("np.floor_divide",), None, "//"),
        op("mod", 2, _real_bool_as_int8, ("np.remainder", "np.mod"), None, "%"),
        op("fmod", 2, _real_bool_as_int8, ("np.fmod", "math.fmod"), _EXACT),
        op("pow", 2, _real_bool_as_int8, ("np.power", "np.pow", "pow", "math.pow"), (2, 2), "**"),
        op("neg", 1, _no_bool, ("np.negative",), _EXACT, "-"),
        op("pos", 1, _no_bool, ("np.positive",), _EXACT, "+"),
        op("abs", 1, _real_part, ("abs", "np.abs", "np.absolute"), (2, 2)),
        op("square", 1, _bool_as_int8, ("np.square",), _EXACT),
        op("sign", 1, _real_no_bool, ("np.sign",)),
        op("fma", 3, _floating, ("km.fma", "math.fma"), _EXACT),
        # bits
        op("and", 2, _integer, ("np.bitwise_and",), None, "&"),
        op("or", 2, _integer, ("np.bitwise_or",), None, "|"),
        op("xor", 2, _integer, ("np.bitwise_xor",), None, "^"),
        op("invert", 1, _integer, ("np.invert", "np.bitwise_not"), None, "~"),
        op("lshift", 2, _shift, ("np.left_shift",), None, "<<"),
        op("rshift", 2, _shift, ("np.right_shift",), None, ">>"),
        op("popcount", 1, _bit_count, ("km.popcount",)),
        op("clz", 1, _bit_count, ("km.clz",)),
        op("ctz", 1, _bit_count, ("km.ctz",)),
        # comparisons and truth
        op("lt", 2, _comparison, ("np.less",), None, "<"),
        op("le", 2, _comparison, ("np.less_equal",), None, "<="),
        op("gt", 2, _comparison, ("np.greater",), None, ">"),
        op("ge", 2, _comparison, ("np.greater_equal",), None, ">="),
        op("eq", 2, _comparison, ("np.equal",), None, "=="),
        op("ne", 2, _comparison, ("np.not_equal",), None, "!="),
        op("truth", 1, _truth, ("bool",)),
        op("not", 1, _truth, ("np.logical_not",), None, "not"),
        op("isnan", 1, _predicate, ("np.isnan", "math.isnan")),
        op("isinf", 1, _predicate, ("np.isinf", "math.isinf")),
        op("isfinite", 1, _predicate, ("np.isfinite", "math.isfinite")),
        op("signbit", 1, _predicate, ("np.signbit",)),
        # choice
        op("min", 2, _same, ("min",)),
        op("max", 2, _same, ("max",)),
        op("minimum", 2, _same, ("np.minimum",)),
        op("maximum", 2, _same, ("np.maximum",)),
        op("fmin", 2, _real, ("np.fmin",)),
        op("fmax", 2, _real, ("np.fmax",)),
        # rounding
        op("floor", 1, _real, ("np.floor", "math.floor"), _EXACT),
        op("ceil", 1, _real, ("np.ceil", "math.ceil"), _EXACT),
        op("trunc", 1, _real, ("np.trunc", "math.trunc"), _EXACT),
        op("rint", 1, _floating, ("np.rint",), _EXACT),
        op("int", 1, _to_int, ("int",)),
        op("round", 1, _to_int, ("round",)),
        # exponentials and logarithms
        op("exp", 1, _floating, ("np.exp", "math.exp"), (2, 2)),
        op("exp2", 1, _floating, ("np.exp2", "math.exp2"), (2, 2)),
        op("expm1", 1, _floating, ("np.expm1", "math.expm1"), (2, 2)),
        op("log", 1, _floating, ("np.log", "math.log"), (2, 2)),
        op("log2", 1, _floating, ("np.log2", "math.log2"), (2, 2)),
        op("log10", 1, _floating, ("np.log10", "math.log10"), (2, 2)),
        op("log1p", 1, _floating, ("np.log1p", "math.log1p"), (2, 2)),
        # trigonometry
        op("sin", 1, _floating, ("np.sin", "math.sin"), (2, 2)),
        op("cos", 1, _floating, ("np.cos", "math.cos"), (2, 2)),
        op("tan", 1, _floating, ("np.tan", "math.tan"), (2, 2)),
        op("asin", 1, _floating, ("np.arcsin", "np.asin", "math.asin"), (2, 2)),
        op("acos", 1, _floating, ("np.arccos", "np.acos", "math.acos"), (2, 2)),
        op("atan", 1, _floating, ("np.arctan", "np.atan", "math.atan"), (2, 2)),
        op("atan2", 2, _floating, ("np.arctan2", "np.atan2", "math.atan2"), (2, 2)),
        op("sinh", 1, _floating, ("np.sinh", "math.sinh"), (2, 2)),
        op("cosh", 1, _floating, ("np.cosh", "math.cosh"), (2, 2)),
        op("tanh", 1, _floating, ("np.tanh", "math.tanh"), (2, 2)),
        op("asinh", 1, _floating, ("np.arcsinh", "np.asinh", "math.asinh"), (2, 2)),
        op("acosh", 1, _floating, ("np.arccosh", "np.acosh", "math.acosh"), (2, 2)),
        op("atanh", 1, _floating, ("np.arctanh", "np.atanh", "math.atanh"), (2, 2)),
        op("degrees", 1, _floating, ("np.degrees", "np.rad2deg", "math.degrees"), (2, 2)),
        op("radians", 1, _floating, ("np.radians", "np.deg2rad", "math.radians"), (2, 2)),
        # roots and special functions
        op("sqrt", 1, _floating, ("np.sqrt", "math.sqrt"), _EXACT),
        op("rsqrt", 1, _floating, ("km.rsqrt",), (2, 2)),
        op("cbrt", 1, _floating, ("np.cbrt", "math.cbrt"), (2, 2)),
        op("hypot", 2, _floating, ("np.hypot", "math.hypot"), (2, 2)),
        op("erf", 1, _floating, ("km.erf", "math.erf"), (2, 2)),
        op("erfc", 1, _floating, ("km.erfc", "math.erfc"), (2, 2)),
        op("tgamma", 1, _floating, ("km.tgamma", "math.gamma"), (2, 2)),
        op("lgamma", 1, _floating, ("km.lgamma", "math.lgamma"), (2, 2)),
        # parts of a number
        op("fabs", 1, _floating, ("np.fabs", "math.fabs"), _EXACT),
        op("copysign", 2, _floating, ("np.copysign", "math.copysign"), _EXACT),
        op("ldexp", 2, _scale, ("np.ldexp", "math.ldexp"), _EXACT),
        op("frexp_mantissa", 1, _floating, (), _EXACT),
        op("frexp_exponent", 1, _exponent),
        op("real", 1, _real_part, ("np.real",)),
        op("imag", 1, _real_part, ("np.imag",)),
        op("conj", 1, _same, ("np.conj", "np.conjugate")),
    )


OPERATIONS: Final[dict[str, Operation]] = {row.name: row for row in _rows()}
# What a user writes → the operation: "np.exp" → "exp".
SPELLINGS: Final[dict[str, str]] = {
    spelling: row.name for row in OPERATIONS.values() for spelling in row.spellings
}


# ----------------------------------------------------------------------------- effects of kernels

Result: TypeAlias = Literal["none", "same", "bool", "mask", "count"]


@dataclass(frozen=True, slots=True)
class EffectRow:
    """A function of several threads: how it is written, what it takes, what it gives.

    `values` are arguments of the type of the first, `tests` are bools, `counts` int32s. `combines`
    says that it takes an operator, and `compares` that this one says what comes before what;
    `waits` who has to call it together, `header` where its function is.
    """

    name: str
    spelling: str
    function: str
    result: Result = "none"
    values: int = 0
    tests: int = 0
    counts: int = 0
    combines: bool = False
    waits: Literal["", "warp", "block"] = ""
    compares: bool = False
    header: str = ""


class _Sorts(TypedDict):
    combines: bool
    compares: bool
    header: str


_SORTS: Final[_Sorts] = {"combines": True, "compares": True, "header": "kernel_sort.cuh"}


def _effect_rows() -> tuple[EffectRow, ...]:
    row = EffectRow
    return (
        row("barrier", "km.barrier", "block_barrier", waits="block"),
        row("fence", "km.fence", "fence"),
        row("warp_barrier", "km.warp.barrier", "warp_barrier", waits="warp"),
        row("shuffle", "km.warp.shuffle", "shuffle", "same", 1, counts=1, waits="warp"),
        row("shuffle_up", "km.warp.shuffle_up", "shuffle_up", "same", 1, counts=1, waits="warp"),
        row(
            "shuffle_down", "km.warp.shuffle_down", "shuffle_down", "same", 1, counts=1,
            waits="warp",
        ),
        row("shuffle_xor", "km.warp.shuffle_xor", "shuffle_xor", "same", 1, counts=1, waits="warp"),
        row("warp_any", "km.warp.any", "vote_any", "bool", tests=1, waits="warp"),
        row("warp_all", "km.warp.all", "vote_all", "bool", tests=1, waits="warp"),
        row("ballot", "km.warp.ballot", "ballot", "mask", tests=1, waits="warp"),
        row("match", "km.warp.match", "match_value", "mask", 1, waits="warp"),
        row(
            "warp_reduce", "km.warp.reduce", "all_of_warp", "same", 1, combines=True, waits="warp"
        ),
        row(
            "warp_scan", "km.warp.scan", "warp_inclusive_scan", "same", 1, combines=True,
            waits="warp",
        ),
        row(
            "block_reduce", "km.block.reduce", "all_of_block", "same", 1, combines=True,
            waits="block",
        ),
        row("block_scan", "km.block.scan", "scan_block", "same", 1, combines=True, waits="block"),
        row(
            "block_exclusive_scan", "km.block.exclusive_scan", "scan_block_before", "same", 2,
            combines=True, waits="block",
        ),
        row("warp_sort", "km.warp.sort", "sort_warp", "same", 1, waits="warp", **_SORTS),
        row("block_sort", "km.block.sort", "sort_block", "same", 1, waits="block", **_SORTS),
        row(
            "block_merge", "km.block.merge", "merge_block", "same", 1, counts=1, waits="block",
            **_SORTS,
        ),
        row("block_any", "km.block.any", "block_any", "bool", tests=1, waits="block"),
        row("block_all", "km.block.all", "block_all", "bool", tests=1, waits="block"),
        row("block_count", "km.block.count", "block_count", "count", tests=1, waits="block"),
        row("print", "print", "printf"),
        row("assert", "assert", "assertion", tests=1),
        row("check", "a bounds check", "check_index"),
    )  # fmt: skip


EFFECTS: Final[dict[str, EffectRow]] = {row.name: row for row in _effect_rows()}


@dataclass(frozen=True, slots=True)
class AtomicRow:
    """An atomic operation: its function on a device, how many values it takes, of which kinds."""

    name: str
    function: str
    values: int
    kinds: tuple[Kind, ...]


_ALL_KINDS: Final[tuple[Kind, ...]] = ("bool", "int", "uint", "float", "complex")
_REAL_KINDS: Final[tuple[Kind, ...]] = ("int", "uint", "float")
_BIT_KINDS: Final[tuple[Kind, ...]] = ("bool", "int", "uint")
ATOMICS: Final[dict[str, AtomicRow]] = {
    row.name: row
    for row in (
        AtomicRow("add", "fetch_add", 1, _REAL_KINDS),
        AtomicRow("sub", "fetch_add", 1, _REAL_KINDS),
        AtomicRow("min", "fetch_min", 1, _REAL_KINDS),
        AtomicRow("max", "fetch_max", 1, _REAL_KINDS),
        AtomicRow("and_", "fetch_and", 1, _BIT_KINDS),
        AtomicRow("or_", "fetch_or", 1, _BIT_KINDS),
        AtomicRow("xor", "fetch_xor", 1, _BIT_KINDS),
        AtomicRow("exch", "exchange_value", 1, _ALL_KINDS),
        AtomicRow("cas", "compare_exchange", 2, _ALL_KINDS),
        AtomicRow("load", "atomic_load", 0, _ALL_KINDS),
        AtomicRow("store", "atomic_store", 1, _ALL_KINDS),
    )
}
