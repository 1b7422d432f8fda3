"""Scalar functions that the operator language has beyond Python's `math` and NumPy.

In plain Python they work on numbers and NumPy scalars; in an operator they are compiled. What they
give is in `docs/reference/operator-language.md`. Functions that Python or NumPy has are not here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["clz", "ctz", "erf", "erfc", "fma", "lgamma", "popcount", "rsqrt", "tgamma"]

# NumPy's choice for a floating function of an integer: the smallest float that holds its size.
_FLOAT_OF_SIZE: Final = {1: np.float16, 2: np.float32, 4: np.float64, 8: np.float64}


def _result(x: object) -> Callable[[float], Any]:
    """Return the class of a floating result: that of `x`; a Python number gives a Python float."""
    if not isinstance(x, np.generic):
        return float
    kind = np.dtype(type(x)).kind
    if kind == "c":
        raise TypeError(f"not defined for {type(x).__name__}")
    return _FLOAT_OF_SIZE[x.dtype.itemsize] if kind in "biu" else type(x)


def fma(a: Any, b: Any, c: Any, /) -> Any:
    """Return `a * b + c` with one rounding.

    Parameters
    ----------
    a, b, c
        Real scalars; they are promoted as NumPy does, integers to a float.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.fma(2.0, 3.0, 1.0)
    7.0
    """
    strong = [type(x) for x in (a, b, c) if isinstance(x, np.generic)]
    weak = [x for x in (a, b, c) if not isinstance(x, np.generic)]
    made = _result(np.result_type(*strong, *weak).type(0)) if strong else float
    x, y, z = float(a), float(b), float(c)
    if not all(map(math.isfinite, (x, y, z))):
        return made(_unbounded(x, y, z))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return made(x * y + z)  # the sign of zero
    if made in (float, np.float64):
        return made(_nearest(exact))
    return made(_to_odd(exact))


def _unbounded(x: float, y: float, z: float) -> float:
    if math.isinf(z) and math.isfinite(x) and math.isfinite(y):
        return z
    return x * y + z


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _to_odd(exact: Fraction) -> float:
    """Round to a double whose last bit is 1 when inexact, so that rounding again is right."""
    value = _nearest(exact)
    if math.isinf(value) or Fraction(value) == exact:
        return value
    if math.frexp(value)[0] * 2**53 % 2 == 1:
        return value
    return math.nextafter(value, math.inf if Fraction(value) < exact else -math.inf)


def rsqrt(x: Any, /) -> Any:
    """Return `1 / sqrt(x)`; infinity for 0, NaN for negative numbers.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.rsqrt(4.0)
    0.5
    """
    value = float(x)
    if value == 0:
        return _result(x)(math.copysign(math.inf, value))
    return _result(x)(1.0 / math.sqrt(value) if value > 0 else math.nan)


def erf(x: Any, /) -> Any:
    """Return the error function of `x`.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.erf(0.0)
    0.0
    """
    return _result(x)(math.erf(x))


def erfc(x: Any, /) -> Any:
    """Return the complementary error function of `x`, `1 - erf(x)` without cancellation.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.erfc(0.0)
    1.0
    """
    return _result(x)(math.erfc(x))


def tgamma(x: Any, /) -> Any:
    """Return the gamma function of `x`; NaN for negative integers and -inf.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.tgamma(5.0)
    24.0
    """
    value = float(x)
    if value == 0:
        return _result(x)(math.copysign(math.inf, value))
    try:
        return _result(x)(math.gamma(value))
    except ValueError:
        return _result(x)(math.nan)
    except OverflowError:
        return _result(x)(math.inf)


def lgamma(x: Any, /) -> Any:
    """Return the logarithm of the absolute value of the gamma function of `x`.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.lgamma(1.0)
    0.0
    """
    try:
        return _result(x)(math.lgamma(x))
    except (ValueError, OverflowError):
        return _result(x)(math.inf)


def _pattern(x: Any, name: str) -> tuple[int, int]:
    """Return the bits of an integer as an unsigned number, and their count; Python's have 64."""
    if isinstance(x, bool | np.bool_):
        return int(x), 8
    if isinstance(x, np.integer):
        width = 8 * x.dtype.itemsize
        return int(x) & ((1 << width) - 1), width
    if isinstance(x, int):
        return x & ((1 << 64) - 1), 64
    raise TypeError(f"{name} expects an integer, got {type(x).__name__}")


def popcount(x: Any, /) -> np.uint8:
    """Return the number of ones in the two's complement of an integer.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.popcount(7)
    np.uint8(3)
    """
    return np.uint8(_pattern(x, "popcount")[0].bit_count())


def clz(x: Any, /) -> np.uint8:
    """Return the number of zeros above the highest one of an integer; its width for 0.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.clz(np.uint8(1))
    np.uint8(7)
    """
    bits, width = _pattern(x, "clz")
    return np.uint8(width - bits.bit_length())


def ctz(x: Any, /) -> np.uint8:
    """Return the number of zeros below the lowest one of an integer; its width for 0.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.ctz(np.uint8(8))
    np.uint8(3)
    """
    bits, width = _pattern(x, "ctz")
    return np.uint8((bits & -bits).bit_length() - 1 if bits else width)
