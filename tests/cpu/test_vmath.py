"""The vector math of the host headers: ulp bounds, special values, seams, equal bits, loops."""

from __future__ import annotations

import ctypes
import math
import random
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from intrinsic_library import (
    BINARY,
    FLOATS,
    INTEGERS,
    UNARY,
    apply,
    build,
)
from intrinsic_samples import SEED, patterns, special

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "math.md"
MEASURED_1 = [n for n in UNARY if n not in {"fabs", "floor", "ceil", "trunc", "rint", "degrees",
                                            "radians", "frexp_mantissa"}]  # fmt: skip
MEASURED_2 = ["pow", "atan2", "hypot"]


def documented() -> dict[tuple[str, str], float]:
    """The ulp bounds of math.md."""
    bounds = {}
    for line in DOCUMENT.read_text().splitlines():
        found = re.match(r"\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", line)
        if found:
            bounds[found[1], "f32"] = float(found[2])
            bounds[found[1], "f64"] = float(found[3])
    return bounds


BOUNDS = documented()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vmath")


@pytest.fixture(scope="module")
def library(folder: Path) -> ctypes.CDLL:
    return build(folder, arrays=True)


@pytest.fixture(scope="module")
def judge(folder: Path) -> ctypes.CDLL:
    """The errors of arrays against float64 and quad precision."""
    path = folder / "ulp.so"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("quad precision needs g++; the mpmath tests cover the same functions")
    text = Path(__file__).parent / "vmath_ulp.cpp"
    command = [compiler, "-O2", "-std=c++17", "-shared", "-fPIC", str(text), "-o", str(path)]
    subprocess.run([*command, "-lquadmath"], check=True, timeout=600)
    return ctypes.CDLL(str(path))


def worst(
    library: ctypes.CDLL, judge: ctypes.CDLL, name: str, *given: np.ndarray
) -> tuple[float, str]:
    """The largest error in ulp and a description of where."""
    arrays = [np.ascontiguousarray(x) for x in given]
    got = apply(library, name, *arrays)
    function = getattr(judge, f"ulp_{name}_{'f32' if got.dtype.itemsize == 4 else 'f64'}")
    function.restype = ctypes.c_double
    at = ctypes.c_int64(-1)
    error = function(ctypes.c_int64(got.size), ctypes.byref(at),
                     *(a.ctypes.data_as(ctypes.c_void_p) for a in (got, *arrays)))  # fmt: skip
    where = ", ".join(f"{a[at.value]!r} ({float(a[at.value]).hex()})" for a in arrays)
    return error, f"{name}({where}) = {got[at.value]!r}, {error:.3f} ulp; SEED = {SEED}"


SPAN = {"exp": (-760, 720), "exp2": (-1080, 1030), "expm1": (-50, 720), "sinh": (-720, 720),
        "cosh": (-720, 720), "tanh": (-25, 25), "erf": (-6.5, 6.5), "erfc": (-7, 28),
        "tgamma": (-185, 175), "lgamma": (-60, 200), "acosh": (1, 20)}  # fmt: skip
SINGLE_SPAN = {"exp": (-105, 90), "exp2": (-152, 130), "expm1": (-20, 90), "sinh": (-91, 91),
               "cosh": (-91, 91), "erfc": (-4, 10.2), "erf": (-4.2, 4.2), "tanh": (-12, 12),
               "tgamma": (-42, 36)}  # fmt: skip


def samples(name: str, kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Arguments where something happens, as well as everywhere."""
    low, high = (SINGLE_SPAN if kind == "f32" else SPAN).get(name, SPAN.get(name, (-100, 100)))
    near_one = 1 + rng.standard_normal(count) * np.exp(rng.uniform(-38, 0, count))
    parts = [rng.uniform(low, high, 2 * count), rng.uniform(-2, 2, 2 * count), near_one]
    if name in {"sin", "cos", "tan"}:
        parts.append(rng.integers(1, 1 << 40, count) * (np.pi / 2))
    return np.concatenate([np.concatenate(parts).astype(FLOATS[kind]), patterns(kind, count, rng)])


def check(name: str, kind: str, error: float, where: str) -> None:
    assert error <= BOUNDS[name, kind], where


# ------------------------------------------------------------------------------------ accuracy


@pytest.mark.parametrize("name", MEASURED_1)
def test_float32_stays_within_its_bound(
    library: ctypes.CDLL, judge: ctypes.CDLL, name: str
) -> None:
    rng = np.random.default_rng(SEED)
    stride = 1 << (12 if name in {"tgamma", "lgamma"} else 11)
    bits = np.arange(rng.integers(stride), 1 << 32, stride, dtype=np.uint64).astype(np.uint32)
    check(name, "f32", *worst(library, judge, name, bits.view(np.float32)))
    check(name, "f32", *worst(library, judge, name, samples(name, "f32", 30_000, rng)))


@pytest.mark.parametrize("name", MEASURED_1)
def test_float64_stays_within_its_bound(
    library: ctypes.CDLL, judge: ctypes.CDLL, name: str
) -> None:
    x = samples(name, "f64", 12_000, np.random.default_rng(SEED))
    if name == "lgamma":  # below zero the bound is on max(|result|, 1): see the next test
        x = x[~(x < 0)]
    check(name, "f64", *worst(library, judge, name, x))


def test_lgamma_of_negative_float64(library: ctypes.CDLL) -> None:
    x = -np.random.default_rng(SEED).uniform(0, 30, 1500)
    got = apply(library, "lgamma", x)
    for value, found in zip(x, got, strict=True):
        want = mp.re(mp.loggamma(mp.mpf(value)))
        unit = math.ulp(max(abs(float(want)), 1.0))
        assert abs(mp.mpf(found) - want) <= BOUNDS["lgamma", "f64"] * unit, (value, found, SEED)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", MEASURED_2)
def test_two_arguments_stay_within_their_bound(
    library: ctypes.CDLL, judge: ctypes.CDLL, name: str, kind: str
) -> None:
    rng, real = np.random.default_rng(SEED), FLOATS[kind]
    count = 200_000 if kind == "f32" else 25_000
    check(name, kind, *worst(library, judge, name, patterns(kind, count, rng),
                             patterns(kind, count, rng)))  # fmt: skip
    if name == "pow":
        x = np.exp(rng.uniform(-5, 5, count))
        y = rng.standard_normal(count) * np.exp(rng.uniform(-3, 4.5, count))
        check(name, kind, *worst(library, judge, name, x.astype(real), y.astype(real)))
        x, y = 1 + rng.standard_normal(count) * 1e-3, rng.standard_normal(count) * 1e4
        check(name, kind, *worst(library, judge, name, x.astype(real), y.astype(real)))
        x, y = -np.exp(rng.uniform(-3, 3, count)), rng.integers(-40, 40, count)
        check(name, kind, *worst(library, judge, name, x.astype(real), y.astype(real)))
    else:
        x = rng.standard_normal(count)
        y = x * np.exp(rng.uniform(-4, 4, count)) * rng.choice([-1, 1], count)
        check(name, kind, *worst(library, judge, name, x.astype(real), y.astype(real)))


MPMATH = {
    "exp2": lambda x: mp.mpf(2) ** x, "expm1": mp.expm1, "log2": lambda x: mp.log(x, 2),
    "log1p": mp.log1p, "rsqrt": lambda x: 1 / mp.sqrt(x), "tgamma": mp.gamma,
    "lgamma": lambda x: mp.re(mp.loggamma(x)), "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
}  # fmt: skip
DOMAIN = {"log": (0, 9), "log2": (0, 9), "log10": (0, 9), "log1p": (-1, 9), "sqrt": (0, 9),
          "rsqrt": (0, 9), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 9),
          "lgamma": (0, 30), "tgamma": (-20, 30), "erfc": (-5, 26)}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED_1)
def test_float64_against_mpmath(library: ctypes.CDLL, name: str) -> None:
    rng = np.random.default_rng(SEED)
    low, high = DOMAIN.get(name, (-9, 9))
    x = np.concatenate([rng.uniform(low, high, 150), rng.uniform(max(low, -1), min(high, 1.5), 50)])
    exact = MPMATH.get(name) or getattr(mp, name)
    with mp.workdps(40):
        for value, got in zip(x, apply(library, name, x), strict=True):
            want = exact(mp.mpf(float(value)))
            error = abs(mp.mpf(float(got)) - want) / math.ulp(float(want))
            assert error <= BOUNDS[name, "f64"], f"{name}({value!r}) = {got!r}, {error} ulp, {SEED}"


def near_multiples(kind: str) -> np.ndarray:
    """Of each binade, the finite number nearest to a multiple of pi/2 (continued fractions)."""
    digits, top = (24, 128) if kind == "f32" else (53, 1024)
    found = []
    with mp.workprec(2 * top + 300):
        for e in range(-digits + 2, top - digits + 1):
            step = mp.mpf(2) ** e / (mp.pi / 2)  # m * step close to an integer, m < 2^digits
            before, here, rest = 0, 1, step
            while here < 1 << digits:
                best = here
                fraction = rest - mp.floor(rest)
                rest = 1 / fraction
                before, here = here, int(mp.floor(rest)) * here + before
            if best >= 1 << (digits - 1):
                found.append(math.ldexp(best, e))
    return np.array(found, FLOATS[kind])


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_next_to_multiples_of_half_pi(library: ctypes.CDLL, name: str, kind: str) -> None:
    x = hardest(kind)
    assert x.size > (15 if kind == "f32" else 100)
    for sign in (1, -1):
        got = apply(library, name, sign * x)
        with mp.workprec(1400):
            for value, found in zip(sign * x, got, strict=True):
                want = getattr(mp, name)(mp.mpf(float(value)))
                unit = float(np.spacing(abs(FLOATS[kind](float(want)))))
                error = abs(mp.mpf(float(found)) - want) / unit
                assert error <= BOUNDS[name, kind], (value, found, float(error))


hardest = cache(near_multiples)


def test_the_hardest_float64_argument_of_all(library: ctypes.CDLL) -> None:
    x = np.array([math.ldexp(6381956970095103, 797)])
    assert x[0] in hardest("f64")
    assert apply(library, "cos", x)[0] == -4.68716592425462761112e-19


# ------------------------------------------------------------------------------ special values

NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2", "pow": "power"}  # fmt: skip


def assert_same_kind(got: np.ndarray, want: np.ndarray, given: tuple[np.ndarray, ...]) -> None:
    """NaN, infinities, zeros and their signs agree exactly, other values to 1e-5."""
    scale = 4e-7 if got.dtype == np.float32 else 1e-15
    with np.errstate(all="ignore"):
        tiny = np.finfo(got.dtype).tiny
        close = np.abs(got - want) <= scale * np.maximum(np.abs(want), tiny)
        same = (got == want) & (np.signbit(got) == np.signbit(want))
        plain = np.isfinite(got) & np.isfinite(want) & (got != 0) & (want != 0)
        good = same | (np.isnan(got) & np.isnan(want)) | (plain & close)
    bad = np.flatnonzero(~good)
    assert bad.size == 0, [(*(a[i] for a in given), got[i], want[i]) for i in bad[:5]]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", [n for n in UNARY if hasattr(np, NUMPY.get(n, n))])
def test_special_values_are_numpys(library: ctypes.CDLL, name: str, kind: str) -> None:
    x = special(kind)
    if name in {"exp2", "degrees"} and kind == "f32":
        x = x[~((np.abs(x) > 0) & (np.abs(x) < 1e-37))]  # NumPy's flush subnormals here
    with np.errstate(all="ignore"):
        want = getattr(np, NUMPY.get(name, name))(x.astype(np.float64)).astype(x.dtype)
    assert_same_kind(apply(library, name, x), want, (x,))


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs_are_numpys(library: ctypes.CDLL, name: str, kind: str) -> None:
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(special(kind), special(kind)))
    with np.errstate(all="ignore"):
        want = getattr(np, NUMPY.get(name, name))(x, y)
    got = apply(library, name, x, y)
    if name in {"minimum", "maximum", "fmin", "fmax"}:  # which zero is returned is NumPy's loop's
        zeros = (x == 0) & (y == 0)
        assert (got[zeros] == 0).all()
        x, y, got, want = x[~zeros], y[~zeros], got[~zeros], want[~zeros]
    assert_same_kind(got, want, (x, y))


INF, NAN = math.inf, math.nan
OWN = {
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (4.0, 0.5), (-1.0, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (9.0, 1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (-9.0, 2.0)],
    "tgamma": [(0.0, INF), (-0.0, -INF), (1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (-1.0, NAN),
               (-30.0, NAN), (INF, INF), (-INF, NAN), (200.0, INF), (-200.5, -0.0),
               (-201.5, 0.0), (NAN, NAN)],
    "lgamma": [(0.0, INF), (-0.0, INF), (1.0, 0.0), (2.0, 0.0), (-1.0, INF), (-7.0, INF),
               (INF, INF), (-INF, INF), (NAN, NAN), (-1e17, INF)],
}  # fmt: skip


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", OWN)
def test_special_values_numpy_has_no_word_on(library: ctypes.CDLL, name: str, kind: str) -> None:
    x, want = np.array(OWN[name], FLOATS[kind]).T
    assert_same_kind(apply(library, name, x), want, (x,))


@pytest.mark.parametrize("kind", FLOATS)
def test_overflow_begins_at_the_right_number(library: ctypes.CDLL, kind: str) -> None:
    real, info = FLOATS[kind], np.finfo(FLOATS[kind])
    edges = {"exp": mp.log, "sinh": mp.asinh, "cosh": mp.acosh, "exp2": lambda x: mp.log(x, 2),
             "expm1": mp.log1p}  # fmt: skip
    for name, inverse in edges.items():
        half_above = mp.mpf(float(info.max)) * (1 + mp.mpf(2) ** -(info.nmant + 2))
        edge = real(float(inverse(half_above)))
        below, above = edge, np.nextafter(edge, real(np.inf))
        if name != "exp2":
            for _ in range(2):
                below, above = np.nextafter(below, real(0)), np.nextafter(above, real(np.inf))
        else:
            below, above = np.nextafter(real(info.maxexp), real(0)), real(info.maxexp)
        got = apply(library, name, np.array([below, above], real))
        assert np.isfinite(got[0]), (name, below, got)
        assert got[1] == np.inf, (name, above, got)


# --------------------------------------------------------------------------------- exact things


@pytest.mark.parametrize("kind", FLOATS)
def test_powers_and_logarithms_of_exact_numbers(library: ctypes.CDLL, kind: str) -> None:
    real, info = FLOATS[kind], np.finfo(FLOATS[kind])
    n = np.arange(info.minexp - info.nmant, info.maxexp, dtype=real)
    powers = np.ldexp(real(1), n.astype(np.int32))
    assert (apply(library, "exp2", n) == powers).all()
    assert (apply(library, "log2", powers) == n).all()
    ten = np.array([10.0**k for k in range(11 if kind == "f32" else 23)], real)
    assert (apply(library, "log10", ten) == np.arange(ten.size)).all()
    k = np.arange(1, 200, dtype=real)
    assert (apply(library, "cbrt", k * k * k) == k).all()
    base, power = (a.ravel() for a in np.meshgrid(np.arange(-9, 10), np.arange(7)))
    got = apply(library, "pow", base.astype(real), power.astype(real))
    assert (got == (base.astype(np.int64) ** power).astype(real)).all()
    assert (apply(library, "hypot", k * 3, k * 4) == k * 5).all()


@pytest.mark.parametrize("kind", FLOATS)
def test_functions_without_rounding_equal_numpys(library: ctypes.CDLL, kind: str) -> None:
    rng = np.random.default_rng(SEED)
    x = np.concatenate([patterns(kind, 50_000, rng), special(kind),
                        rng.uniform(-9, 9, 9_000).astype(FLOATS[kind]),
                        (rng.integers(-9, 9, 999) + 0.5).astype(FLOATS[kind])])  # fmt: skip
    y = rng.permutation(x)
    with np.errstate(all="ignore"):
        for name in ("floor", "ceil", "trunc", "rint", "fabs", "sqrt"):
            assert np.array_equal(apply(library, name, x), getattr(np, name)(x), equal_nan=True)
        for name in ("degrees", "radians"):
            assert np.array_equal(apply(library, name, x), getattr(np, name)(x), equal_nan=True)
        for name in ("isnan", "isinf", "isfinite", "signbit"):
            assert np.array_equal(apply(library, name, x), getattr(np, name)(x))
        for name in ("copysign", "nextafter", "fmin", "fmax", "minimum", "maximum", "fmod"):
            want = getattr(np, name)(x, y)
            assert np.array_equal(apply(library, name, x, y), want, equal_nan=True), (name, SEED)
        mantissa, exponent = np.frexp(x)
        assert np.array_equal(apply(library, "frexp_mantissa", x), mantissa, equal_nan=True)
        finite = np.isfinite(x)
        assert np.array_equal(apply(library, "frexp_exponent", x)[finite], exponent[finite])
        assert not apply(library, "frexp_exponent", x[~finite]).any()
        n = rng.integers(-2300, 2300, x.size).astype(np.int32)
        n[:9] = [2**31 - 1, -(2**31), 0, 1, -1, 1024, -1074, 2098, -2099]
        assert np.array_equal(apply(library, "ldexp", x, n), np.ldexp(x, n), equal_nan=True), SEED
        n = -np.frexp(x)[1] + rng.integers(-1080, -1010, x.size).astype(np.int32)
        assert np.array_equal(apply(library, "ldexp", x, n), np.ldexp(x, n), equal_nan=True), SEED


def test_fma_rounds_once(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(SEED)
    for kind, bits in (("f32", 12), ("f64", 27)):
        a, b = (1 + rng.integers(0, 1 << bits, 999) / (1 << bits) for _ in "ab")
        rounded = (a.astype(FLOATS[kind]) * b.astype(FLOATS[kind])).astype(np.float64)
        with mp.workdps(40):
            lines = zip(map(mp.mpf, a), map(mp.mpf, b), map(mp.mpf, rounded), strict=True)
            rest = np.array([float(x * y - r) for x, y, r in lines])
        assert rest.any()
        given = [v.astype(FLOATS[kind]) for v in (a, b, -rounded)]
        assert np.array_equal(apply(library, "fma", *given), rest.astype(FLOATS[kind]))


@pytest.mark.parametrize("kind", INTEGERS)
def test_bit_counts(library: ctypes.CDLL, kind: str) -> None:
    info = np.iinfo(INTEGERS[kind])
    mask, width = (1 << info.bits) - 1, info.bits
    rng = random.Random(SEED)
    patterns = range(256) if width == 8 else [0, 1, mask, 1 << (width - 1), mask >> 1,
                                              *(rng.getrandbits(width) >> rng.randrange(width)
                                                for _ in range(3000))]  # fmt: skip
    x = np.array(list(patterns), f"uint{width}").view(INTEGERS[kind])
    words = [int(v) & mask for v in x]
    assert apply(library, "popcount", x).tolist() == [w.bit_count() for w in words]
    assert apply(library, "clz", x).tolist() == [width - w.bit_length() for w in words]
    trailing = [(w & -w).bit_length() - 1 if w else width for w in words]
    assert apply(library, "ctz", x).tolist() == trailing


# ------------------------------------------------------------------------------------- seams

SEAMS = {
    "exp": [0.34657, -0.34657, 1.0397], "expm1": [0.34657, -0.34657, 1.0397, -1.0397],
    "log": [0.70711, 1.41421, 2.82843], "log2": [0.70711, 1.41421], "log10": [0.70711, 1.41421],
    "log1p": [0.41421, -0.29289], "sin": [0.7853982], "tan": [0.7853982],
    "asin": [0.5, -0.5], "acos": [0.5, -0.5], "atan": [0.414214, 2.414214],
    "sinh": [1.0, 1.0397], "cosh": [0.34657, 1.0397], "tanh": [0.2945, 0.6412, 9.01, 19.06],
    "asinh": [0.4142], "acosh": [1.0606], "atanh": [0.1716], "erf": [0.92, 3.9, 5.9],
    "erfc": [0.47, -0.5], "lgamma": [3.0, 12.0], "tgamma": [12.0, 3.0], "cbrt": [1.0, 8.0],
}  # fmt: skip
FALLING = {"acos", "erfc"}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", SEAMS)
def test_no_step_back_where_formulas_meet(library: ctypes.CDLL, name: str, kind: str) -> None:
    """Along 4000 neighbours of a seam a monotonic function goes back by at most one ulp."""
    for seam in SEAMS[name]:
        real = FLOATS[kind]
        unsigned = f"uint{8 * real().nbytes}"
        middle = int(np.array(seam, real).view(unsigned))
        x = np.arange(middle - 2000, middle + 2000, dtype=np.uint64).astype(unsigned).view(real)
        y = apply(library, name, np.sort(x))
        steps = np.diff(-y if name in FALLING else y)
        assert (steps >= -np.spacing(np.abs(y[1:]))).all(), (name, seam, float(steps.min()))


def test_every_measured_function_has_a_bound_of_two_ulp_at_most() -> None:
    wanted = {(name, kind) for name in MEASURED_1 + MEASURED_2 for kind in FLOATS}
    assert set(BOUNDS) == wanted
    assert max(BOUNDS.values()) <= 2.0


# In parts, so that many processes share the work.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", MEASURED_1)
def test_every_float32(library: ctypes.CDLL, judge: ctypes.CDLL, name: str, part: int) -> None:
    for start in range(part << 30, (part + 1) << 30, 1 << 24):
        bits = np.arange(start, start + (1 << 24), dtype=np.uint64).astype(np.uint32)
        check(name, "f32", *worst(library, judge, name, bits.view(np.float32)))
