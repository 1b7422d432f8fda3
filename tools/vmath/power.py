"""Writes vmath_power.hpp: pow, cbrt, rsqrt, hypot, fmod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath as mp

from vmath.fit import fit, split
from vmath.kinds import F32, F64, Kind, fill, polynomial

if TYPE_CHECKING:
    from vmath.fit import Real

POW_SIGN = """\
namespace vm {
// |x|^y gets its sign; a negative base wants a whole exponent; 1 and the exponent 0 give 1 always
KM_INL $F pow_signed($F v, $F x, $F y) {
  const $F half = y * #0.5;
  const bool whole = rint(y) == y, odd = whole & (rint(half) != half);
  v = ((fabs(x) == #1) | (y == #0)) ? #1 : v;
  v = as_$F(bits(v) ^ (bits(x) & ~@magnitude & ($U)0 - ($U)odd));
  const bool bad = (x < #0) & (x > -infinity(x)) & !whole;
  return (bad & (y != #0)) ? not_a_number(x) : v;
}
}  // namespace vm
"""

POW_SINGLE = """\
namespace vm {
@log2_series
@exp2_series
}  // namespace vm
// |x|^y in float64, which makes it correctly rounded in almost all cases
KM_INL f32 pow(f32 x, f32 y) {
  const f64 a = (f64)fabs(x);
  const u64 u = vm::bits(a), e = vm::binade(u);
  const f64 t = vm::without(u, e) - 1.0, s = t / (t + 2.0);
  f64 log = fma(s, vm::log2_series(s * s), vm::from_small(e) - 0x1p10);
  log = a == 0.0 ? -vm::infinity(a) : log;
  log = a < vm::infinity(a) ? log : a;  // inf and NaN
  f64 w = (f64)y * log;
  w = w < -160.0 ? -160.0 : w;
  w = w > 140.0 ? 140.0 : w;
  const f64 shifted = w + 0x1.8p52, r = w - (shifted - 0x1.8p52);
  const f64 v = vm::exp2_series(r) * vm::power_of_two(vm::low_integer(shifted));
  return vm::pow_signed((f32)v, x, y);
}
"""

POW_DOUBLE = """\
namespace vm {
@log_series
// log(a) to about 2^-65, a > 0 and finite
KM_INL Pair<f64> log_double(f64 a) {
  const Log_f64 p = by_powers(a);
  const f64 t = p.m - 1.0, d = t + 2.0, dl = t - (d - 2.0);
  const Pair<f64> s = quotient(t, 0.0, d, dl);
  const f64 z = s.hi * s.hi, zl = fma(s.hi, s.hi, -z) + 2.0 * s.hi * s.lo;
  const Pair<f64> c = two_product(s.hi, z);
  const f64 cl = c.lo + fma(s.hi, zl, s.lo * z);
  const Pair<f64> q = two_product(c.hi, $third_hi);
  const f64 ql = q.lo + fma(c.hi, $third_lo, cl * $third_hi);
  const f64 tail = c.hi * z * log_series(z);
  const Pair<f64> h = fast_sum(2.0 * s.hi, q.hi);
  const f64 hl = h.lo + (2.0 * s.lo + ql + tail);
  const Pair<f64> g = fast_sum(p.k * $ln2_hi, h.hi);
  return fast_sum(g.hi, g.lo + fma(p.k, $ln2_lo, hl));
}
}  // namespace vm
KM_INL f64 pow(f64 x, f64 y) {
  const f64 a = fabs(x);
  const vm::Pair<f64> log = vm::log_double(a);
  f64 hi = a == 0.0 ? -vm::infinity(a) : log.hi;
  hi = a < vm::infinity(a) ? hi : a;  // inf and NaN
  const f64 h = vm::product(y, hi);
  const f64 l = fma(y, hi, -h) + y * log.lo;
  const bool over = h > 710.0, under = h < -746.0;
  const vm::Exp_f64 e = vm::exp_pair(over ? 710.0 : under ? -746.0 : h, (over | under) ? 0.0 : l);
  return vm::pow_signed(vm::scale(e.hi + e.lo, e.n), x, y);
}
"""

ROOTS = """\
namespace vm {
@cbrt_step
}  // namespace vm
KM_INL $F rsqrt($F x) { return #1 / sqrt(x); }
// y = a^(-1/3) from the bits of a, refined; then a y^2 and one Newton step with its error
KM_INL $F cbrt($F x) {
  const $F a0 = fabs(x);
  const bool small = a0 < $tiny;
  const $F a = small ? a0 * $lift : a0;
@guess
  $F h = fma(-(a * y), y * y, #1);
  y = fma(y * h, vm::cbrt_step(h), y);
@again  const $F t = a * (y * y);
  const vm::Pair<$F> t2 = vm::two_product(t, t);
  const $F rest = fma(-t2.hi, t, a) - t2.lo * t;
  const $F root = fma(rest, y * y * $third, t) * (small ? $unlift : #1);
  return ((x == #0) | !(a0 < vm::infinity(x))) ? x : copysign(root, x);
}
"""

HYPOT_SINGLE = """\
KM_INL f32 hypot(f32 x, f32 y) {
  const f64 a = (f64)x, b = (f64)y;
  const f32 r = (f32)sqrt(fma(a, a, b * b)), inf = vm::infinity(x);
  return ((fabs(x) == inf) | (fabs(y) == inf)) ? inf : r;
}
"""

HYPOT_DOUBLE = """\
KM_INL f64 hypot(f64 x, f64 y) {
  const f64 ax = fabs(x), ay = fabs(y), inf = vm::infinity(x);
  const f64 a = ax > ay ? ax : ay;
  const f64 down = a > 0x1p500 ? 0x1p-600 : a < 0x1p-500 ? 0x1p600 : 1.0;
  const f64 up = a > 0x1p500 ? 0x1p600 : a < 0x1p-500 ? 0x1p-600 : 1.0;
  const f64 u = ax * down, v = ay * down;
  const vm::Pair<f64> p = vm::two_product(u, u), q = vm::two_product(v, v);
  const vm::Pair<f64> sum = vm::two_sum(p.hi, q.hi);
  const f64 root = sqrt(sum.hi);
  const f64 rest = fma(-root, root, sum.hi) + (sum.lo + (p.lo + q.lo));
  const f64 r = fma(rest, 0.5 / (root == 0.0 ? 1.0 : root), root) * up;
  return ((ax == inf) | (ay == inf)) ? inf : ((x != x) | (y != y)) ? x + y : r;
}
"""

FMOD = """\
namespace vm {
// r mod y 2^k for r < y 2^(k+48): the quotient is at most one off, the remainder exact
KM_INL f64 fmod_step(f64 r, f64 y, f64 inverse) {
  const f64 q = trunc(r * inverse);
  const f64 d = fma(-q, y, r);
  return d + choose(d < 0.0, y, choose(d >= y, -y, 0.0));
}
}  // namespace vm
// exact; the sign of x.  Six steps of 48 bits cover every ratio of two float32.
KM_INL f32 fmod(f32 x, f32 y) {
  const f64 b = (f64)fabs(y), inverse = 1.0 / b;
  f64 r = (f64)fabs(x);
  r = vm::fmod_step(r, b * 0x1p240, inverse * 0x1p-240);
  r = vm::fmod_step(r, b * 0x1p192, inverse * 0x1p-192);
  r = vm::fmod_step(r, b * 0x1p144, inverse * 0x1p-144);
  r = vm::fmod_step(r, b * 0x1p96, inverse * 0x1p-96);
  r = vm::fmod_step(r, b * 0x1p48, inverse * 0x1p-48);
  r = vm::fmod_step(r, b, inverse);
  const f32 inf = vm::infinity(x), v = copysign((f32)r, x);
  const f32 w = vm::choose(!(fabs(x) < inf) | (y == 0.0f), vm::not_a_number(x), v);
  const bool same = (fabs(x) < inf) & (fabs(y) == inf);
  return vm::choose((x != x) | (y != y), x + y, vm::choose(same, x, w));
}
// exact; the sign of x.  A loop over 11 bits of the quotient a turn: does not vectorise.
KM_INL f64 fmod(f64 x, f64 y) {
  const f64 a = fabs(x), b = fabs(y), inf = vm::infinity(x);
  if (!(a < inf) | (b == 0.0) | (b != b)) return x != x ? x : y != y ? y : vm::not_a_number(x);
  if (a < b) return x;
  const i32 ea = frexp_exponent(a), eb = frexp_exponent(b);
  u64 r = (u64)(i64)(frexp_mantissa(a) * 0x1p53);
  const u64 m = (u64)(i64)(frexp_mantissa(b) * 0x1p53);
  r %= m;
  for (i32 left = ea - eb; left > 0; left -= 11) r = (r << (left < 11 ? left : 11)) % m;
  return copysign(ldexp((f64)(i64)r, eb - 53), x);
}
"""

CBRT_F32 = """\
  $F y = vm::as_$F(@magic - vm::bits(a) / 3u);"""
CBRT_F64 = """\
  const u64 third = (vm::bits(a) >> 32) * 0x55555556ull >> 32;  // of the upper half
  $F y = vm::as_$F((@magic - third) << 32);"""
CBRT_AGAIN = """\
  h = fma(-(a * y), y * y, #1);
  y = fma(y * h, fma(h, $two_ninths, $third), y);
"""


def sign(kind: Kind) -> str:
    """Return what pow does with signs."""
    return fill(POW_SIGN, kind, {"magnitude": kind.word((1 << (kind.width - 1)) - 1)})


def pow_single() -> str:
    """Return pow of float32."""
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
    log2 = fit(
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / mp.log(2),
        mp.mpf(0),
        top,
        mp.mpf(2) ** -40,
    )
    half = mp.mpf("0.5001")
    exp2 = fit(lambda r: mp.mpf(2) ** r, -half, half, mp.mpf(2) ** -37)
    values: dict[str, object] = {
        "log2_series": polynomial(
            "log2_series", log2, F64, "log2((1 + s) / (1 - s)) / s with x = s^2, about 2^-40"
        ),
        "exp2_series": polynomial("exp2_series", exp2, F64, "2^x, |x| <= 1/2, about 2^-37"),
    }
    return fill(POW_SINGLE, F32, values)


def pow_double() -> str:
    """Return pow of float64 and the logarithm in two parts under it."""
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
    two_thirds = mp.mpf(2) / 3

    def rest(z: Real) -> Real:
        root = mp.sqrt(z)
        return ((2 * mp.atanh(root) / root - 2) / z - two_thirds) / z

    third = split(two_thirds, [53])
    ln2 = split(mp.log(2), [41])
    values: dict[str, object] = {
        "log_series": polynomial(
            "log_series",
            fit(rest, mp.mpf(0), top, mp.mpf(2) ** -58),
            F64,
            "(log((1 + s) / (1 - s)) / s - 2 - 2x/3) / x^2 with x = s^2",
        ),
        "third_hi": third[0],
        "third_lo": third[1],
        "ln2_hi": ln2[0],
        "ln2_lo": ln2[1],
    }
    return fill(POW_DOUBLE, F64, values)


def roots(kind: Kind) -> str:
    """Return rsqrt and cbrt of one kind."""
    offset = mp.mpf(0x54A2FA8C) / 2**23 - mp.mpf(4) / 3 * 127
    wide = mp.mpf("0.112")
    tolerance = mp.mpf(2) ** (-20 if kind.single else -24)
    step = fit(lambda h: (mp.cbrt(1 / (1 - h)) - 1) / h, -wide, wide, tolerance)
    magic = (
        "0x54a2fa8cu"
        if kind.single
        else f"0x{int(mp.nint((mp.mpf(4) / 3 * 1023 + offset) * 2**20)):08x}ull"
    )
    lift = 24 if kind.single else 54
    values: dict[str, object] = {
        "cbrt_step": polynomial("cbrt_step", step, kind, "((1 - x)^(-1/3) - 1) / x, |x| <= 0.11"),
        "guess": (CBRT_F32 if kind.single else CBRT_F64).replace("@magic", magic),
        "again": "" if kind.single else CBRT_AGAIN,
        "third": mp.mpf(1) / 3,
        "two_ninths": mp.mpf(2) / 9,
        "tiny": mp.mpf(2) ** (1 - kind.bias),
        "lift": mp.mpf(2) ** lift,
        "unlift": mp.mpf(2) ** (-lift // 3),
    }
    return fill(ROOTS, kind, values)


def emit() -> str:
    """Return the body of the file."""
    return "\n".join(
        [
            sign(F32),
            sign(F64),
            pow_single(),
            pow_double(),
            roots(F32),
            roots(F64),
            HYPOT_SINGLE,
            HYPOT_DOUBLE,
            FMOD,
        ]
    )
