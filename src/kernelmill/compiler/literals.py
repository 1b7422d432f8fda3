"""Literals of Python in IR: their types, and what is computed of them before a program runs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.intrinsics import OPERATIONS
from kernelmill.compiler.ir import Cast, Const
from kernelmill.dtypes import (
    DType,
    Type,
    WeakType,
    bool_,
    int64,
    storage,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError, ScalarOverflowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler.ir import Expr

__all__ = [
    "decide_comparison",
    "fold",
    "fold_conversion",
    "integer_text",
    "typed_literal",
    "weak_type_of",
]

_SHOWN_BITS: Final = 256


def weak_type_of(value: object) -> Type:
    """Return the type of a Python scalar: bool is strong, int, float and complex are weak."""
    if isinstance(value, bool):
        return bool_
    for python, weak in ((int, weak_int), (float, weak_float), (complex, weak_complex)):
        if isinstance(value, python):
            return weak
    raise DTypeError(f"{value!r} is not a scalar of the operator language")


def integer_text(value: int) -> str:
    """Return a Python integer for an error: its digits, or how many bits it has if they are many.

    Examples
    --------
    >>> integer_text(1 << 100), integer_text(10**5000)
    ('1267650600228229401496703205376', 'of 16610 bits')
    """
    bits = value.bit_length()
    return f"of {bits} bits" if bits > _SHOWN_BITS else str(value)


# ----------------------------------------------------------------------------- conversions


def fold_conversion(value: complex, wanted: DType | WeakType) -> Expr | None:
    """Convert a Python scalar to an integer, float64 or weak type; None leaves it to a Cast.

    Raises ScalarOverflowError for an integer that the type, or any float64, does not hold.
    """
    if isinstance(value, int) and isinstance(wanted, DType) and wanted.is_integer:
        if not wanted.min <= value <= wanted.max:
            raise ScalarOverflowError(
                f"Python integer {integer_text(value)} out of bounds for {wanted}",
                hint=f"{wanted} holds {wanted.min} to {wanted.max}; widen the other operand first",
            )
        return Const(value, wanted)
    if isinstance(value, int) and wanted.kind == "float":
        folded = _float_const(_as_float(value, wanted), wanted)
    elif isinstance(value, float) and wanted.kind == "float":
        folded = _float_const(value, wanted)
    else:
        folded = None
    if folded is None and isinstance(value, int) and not int64.min <= value <= int64.max:
        return Cast(Const(_as_float(value, wanted), weak_float), wanted)
    return folded


def _as_float(value: int, wanted: DType | WeakType) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ScalarOverflowError(
            f"Python integer {integer_text(value)} out of bounds for {wanted}",
            hint='no float64 is that large; `float("inf")` is infinity',
        ) from None


def _float_const(value: float, wanted: DType | WeakType) -> Const | None:
    """float64 and weak floats hold any Python float; narrower ones are rounded by the Cast."""
    return Const(value, wanted) if storage(wanted).itemsize == 8 else None  # type: ignore[union-attr]  # noqa: PLR2004 - scalars only; 8 bytes is float64


# ----------------------------------------------------------------------------- operations

# Python's own arithmetic on two weak constants: exact integers, IEEE doubles.
_FOLDS: Final[dict[str, Callable[..., object]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "neg": operator.neg,
    "pos": operator.pos, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "invert": operator.invert, "lshift": operator.lshift, "rshift": operator.rshift, "abs": abs,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
# No use has a larger one, and Python would take its time over a few digits such as `9 ** 9 ** 9`.
_MOST_FOLDED_BITS: Final = 1 << 16


def fold(op: str, args: tuple[Expr, ...]) -> Const | None:
    """Compute an operation on Python literals as Python does; None where Python raises.

    Raises ScalarOverflowError for an integer that has more bits than anybody needs.
    """
    python = _FOLDS.get(op)
    values = [a.value for a in args if isinstance(a, Const) and isinstance(a.type, WeakType)]
    if python is None or len(values) != len(args):
        return None
    if op in ("pow", "lshift"):
        _check_size(op, *values)
    try:
        result = python(*values)
    except (ArithmeticError, ValueError, TypeError):
        return None  # the operation's own definition stands in for the exception
    return Const(result, weak_type_of(result))  # type: ignore[arg-type]  # a bool, int, float or complex


def _check_size(op: str, base: object, exponent: object) -> None:
    """Refuse `base ** exponent` or `base << exponent` before Python computes a huge integer."""
    if not isinstance(base, int) or not isinstance(exponent, int) or exponent < 0:
        return
    bits = base.bit_length()
    size = bits * exponent if op == "pow" else bits + exponent
    if size > _MOST_FOLDED_BITS and abs(base) > (op == "pow"):
        raise ScalarOverflowError(
            f"`{OPERATIONS[op].symbol}` of these literals has more than {_MOST_FOLDED_BITS} bits",
            hint='no type holds it; `float("inf")` is infinity',
        )


# ----------------------------------------------------------------------------- comparisons

# Both sides of a comparison with an integer that int64 cannot hold: the answer is known.
_BELOW: Final = {"lt": True, "le": True, "gt": False, "ge": False, "eq": False, "ne": True}
_MIRROR: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def decide_comparison(op: str, args: tuple[Expr, ...]) -> Const | None:
    """Decide `x < 2**70`: a Python integer outside the operand's type is compared exactly."""
    if op not in _BELOW:
        return None
    left, right = args
    for side, literal, name in ((left, right, op), (right, left, _MIRROR[op])):
        if not (isinstance(literal, Const) and literal.type == weak_int):
            continue
        limits = side.type if isinstance(side.type, DType) else int64
        value = literal.value
        assert isinstance(value, int)
        if limits.is_integer and not limits.min <= value <= limits.max:
            below = value > limits.max
            return Const(_BELOW[name] if below else _BELOW[_MIRROR[name]], bool_)
    return None


def typed_literal(op: str, args: tuple[Expr, ...], wanted: tuple[Type, ...]) -> tuple[Type, ...]:
    """Give a literal that is compared with an integer that integer's type: it fits by now."""
    if op not in _BELOW:
        return wanted
    for side, literal in ((0, 1), (1, 0)):
        value, type_ = args[literal], wanted[side]
        if isinstance(value, Const) and value.type == weak_int and isinstance(type_, DType):
            types = list(wanted)
            types[literal] = type_
            return tuple(types)
    return wanted
