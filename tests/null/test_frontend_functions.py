"""The scalar functions beyond math and NumPy: plain Python and the compiled meaning agree."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kernelmill as km
import oracle
from kernelmill.compiler import functions
from kernelmill.compiler.frontend import translate

FLOATS = (0.0, -0.0, 0.25, 1.0, -1.5, 2.0, 5.0, 30.0, math.inf, -math.inf, math.nan)
INTEGERS = (0, 1, 2, 7, -1, -128, 100)


def compiled(function, *values):
    types = [km.dtype_of(type(v)) for v in values]
    return oracle.run(translate(function, types).program, values)


def close(found, wanted, ulps):
    if math.isnan(wanted) or math.isinf(wanted) or wanted == 0:
        return oracle.same_bits(found, wanted)
    return abs(float(found) - float(wanted)) <= ulps * float(np.spacing(abs(wanted)))


@pytest.mark.parametrize(
    ("name", "ulps"),
    [("rsqrt", 2), ("erf", 2), ("erfc", 2), ("tgamma", 16), ("lgamma", 16)],
)
@pytest.mark.parametrize("cls", [np.float32, np.float64, np.int16, np.int64])
def test_floating_functions(name, ulps, cls):
    function = getattr(functions, name)
    with np.errstate(all="ignore"):
        for x in FLOATS if np.dtype(cls).kind == "f" else (0, 1, 2, 5, -3):
            plain = function(cls(x))
            found = compiled(function, cls(x))
            assert type(plain) is type(found)
            assert close(found, plain, ulps), (x, found, plain)


def test_result_types_in_plain_python():
    assert type(functions.erf(1)) is float
    assert type(functions.rsqrt(np.float16(4))) is np.float16
    assert type(functions.erf(np.int8(1))) is np.float16
    assert type(functions.erf(np.uint16(1))) is np.float32
    assert type(functions.rsqrt(ml_dtypes.bfloat16(4))) is ml_dtypes.bfloat16
    with pytest.raises(TypeError, match="not defined for complex64"):
        functions.erf(np.complex64(1))


@pytest.mark.parametrize("cls", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("name", ["popcount", "clz", "ctz"])
def test_bit_functions(name, cls):
    function = getattr(functions, name)
    for value in INTEGERS:
        x = np.array(value).astype(cls)[()]
        assert oracle.same_bits(compiled(function, x), function(x))
    assert type(function(3)) is np.uint8


@pytest.mark.parametrize("name", ["popcount", "clz", "ctz"])
def test_bit_functions_of_python_integers_and_bools(name):
    function = getattr(functions, name)
    for value in (0, 1, -1, 2**40, -(2**63)):
        assert function(value) == function(np.int64(value))
    assert function(np.bool_(1)) == compiled(function, np.bool_(1))
    with pytest.raises(TypeError, match=f"{name} expects an integer, got float"):
        function(1.5)


DOUBLES = st.floats(allow_nan=False, width=64)
SINGLES = st.floats(allow_nan=False, width=32)


def exact(a, b, c, cls):
    """Round the exact value by comparing it with the neighbours."""
    value = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    found = functions.fma(cls(a), cls(b), cls(c))
    if not np.isfinite(found):
        return abs(value) >= Fraction(float(np.finfo(cls).max))
    error = abs(Fraction(float(found)) - value)
    sides = [np.nextafter(found, cls(s)) for s in (math.inf, -math.inf)]
    return all(error <= abs(Fraction(float(s)) - value) for s in sides if np.isfinite(s))


@given(SINGLES, SINGLES, SINGLES)
@example(1 + 2**-12, 1 + 2**-12, 2.0**-60)
@example(3.0, 2.0**-149, 0.0)
def test_fma_rounds_once_in_single_precision(a, b, c):
    if all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            assert exact(a, b, c, np.float32)


@given(DOUBLES, DOUBLES, DOUBLES)
@example(0.1, 10.0, -1.0)
def test_fma_rounds_once_in_double_precision(a, b, c):
    if all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            assert exact(a, b, c, np.float64)


def test_fma_of_special_values():
    inf, nan = math.inf, math.nan
    assert functions.fma(2.0, 3.0, inf) == inf
    assert functions.fma(1e300, 1e300, -inf) == -inf
    assert math.isnan(functions.fma(inf, 0.0, 1.0))
    assert math.isnan(functions.fma(inf, 1.0, -inf))
    assert math.isnan(functions.fma(1.0, nan, 1.0))
    assert functions.fma(1e300, 1e300, 0.0) == inf
    assert math.copysign(1, functions.fma(-0.0, 1.0, -0.0)) == -1
    assert math.copysign(1, functions.fma(1.0, -1.0, 1.0)) == 1


def test_fma_promotes_as_numpy_does():
    assert type(functions.fma(2, 3, 4)) is float
    assert type(functions.fma(np.float32(2), 3, 4.5)) is np.float32
    assert type(functions.fma(np.int8(2), 3, np.int16(4))) is np.float32
    for values in [
        (np.float32(1.5), np.float32(2), np.float32(3)),
        (np.float64(0.1), np.float64(10), np.float64(-1)),
        (np.int16(3), np.float32(2), np.float32(1)),
        (np.int8(3), np.int8(2), np.int8(1)),
    ]:
        assert oracle.same_bits(compiled(functions.fma, *values), functions.fma(*values))
