"""Writes vmath_trig.hpp: sin, cos, tan for every finite argument, and their inverses."""

from __future__ import annotations

import mpmath as mp

from vmath.fit import fit, split, two_over_pi_digits
from vmath.kinds import F32, F64, KINDS, Kind, fill, polynomial

WIDE_LIMIT = {F32: 17, F64: 30}
"""Arguments below 2^this are reduced with three parts of pi/2, larger ones with integers."""
TABLE_WORDS = {F32: 4, F64: 20}
PAD = {F32: 8, F64: 63}
"""Zero digits in front of 2/pi, so that the window of the smallest wide argument exists."""

WIDE_SINGLE = """\
namespace vm {
// The binary digits of 2/pi after @pad zeros.  x = m 2^e needs the digits from weight 2^(1-e) on:
// all above only add multiples of four quadrants.
KM_TABLE u64 two_over_pi_f32[@words] = {
@table};
// |x| mod pi/2 in [-pi/4, pi/4] and the quadrant, for 2^@limit <= |x| < inf
struct Quadrant_f32 {
  f32 hi, lo;
  u32 q;
};
KM_INL Quadrant_f32 reduce_wide(f32 a) {
  const u32 u = bits(a), at = (u >> 23) - @base;
  const u64 m = (u & 0x7fffffu) | 0x800000u, s = at & 63u;
  const bool upper = (at & 64u) != 0;
  const u64 t0 = upper ? two_over_pi_f32[1] : two_over_pi_f32[0];
  const u64 t1 = upper ? two_over_pi_f32[2] : two_over_pi_f32[1];
  const u64 t2 = upper ? two_over_pi_f32[3] : two_over_pi_f32[2];
  const u64 w0 = t0 << s | t1 >> 1 >> (63 - s), w1 = t1 << s | t2 >> 1 >> (63 - s);
  // quadrants mod 4 in units of 2^-62, plus a half to round
  const u64 g = m * w0 + (m * (w1 >> 32) >> 32) + 0x2000000000000000ull;
  const u64 f = g & 0x3fffffffffffffffull;
  const f64 high = as_f64(0x4330000000000000ull | f >> 31) - (0x1p52 + 0x1p30);
  const f64 low = as_f64(0x4330000000000000ull | (f & 0x7fffffffu)) - 0x1p52;
  const f64 r = fma(high, 0x1p31, low) * @half_pi_scaled;
  const f32 hi = (f32)r;
  return {hi, (f32)(r - (f64)hi), (u32)(g >> 62)};
}
"""

WIDE_DOUBLE = """\
namespace vm {
KM_TABLE u64 two_over_pi_f64[@words] = {
@table};
struct Quadrant_f64 {
  f64 hi, lo;
  u64 q;
};
KM_INL u64 low_half(u64 x) { return x & 0xffffffffu; }
KM_INL Quadrant_f64 reduce_wide(f64 a) {
  const u64 u = bits(a), biased = u >> 52;
  const u64 at = biased < @base ? 0 : biased - @base, s = at & 63u;
  const u64 i = at >> 6;
  const u64 t0 = two_over_pi_f64[i], t1 = two_over_pi_f64[i + 1];
  const u64 t2 = two_over_pi_f64[i + 2], t3 = two_over_pi_f64[i + 3];
  const u64 m = (u & 0xfffffffffffffull) | 0x10000000000000ull;
  const u64 w0 = t0 << s | t1 >> 1 >> (63 - s), w1 = t1 << s | t2 >> 1 >> (63 - s);
  const u64 w2 = t2 << s | t3 >> 1 >> (63 - s);
  // (m * (w0:w1:w2)) >> 64 mod 2^128, from 32-bit halves; units of 2^-126 quadrants
  const u64 m0 = low_half(m), m1 = m >> 32;
  const u64 a00 = m0 * low_half(w1), a01 = m0 * (w1 >> 32), a10 = m1 * low_half(w1);
  const u64 b01 = m0 * (w2 >> 32), b10 = m1 * low_half(w2), b11 = m1 * (w2 >> 32);
  const u64 b = b11 + (b01 >> 32) + (b10 >> 32) + ((low_half(b01) + low_half(b10)) >> 32);
  const u64 c0 = low_half(a00) + low_half(b);
  const u64 c1 = (a00 >> 32) + (b >> 32) + low_half(a01) + low_half(a10) + (c0 >> 32);
  const u64 top = m * w0 + m1 * (w1 >> 32) + (a01 >> 32) + (a10 >> 32) + (c1 >> 32);
  const u64 g = top + 0x2000000000000000ull, f = g & 0x3fffffffffffffffull;
  const f64 d0 = as_f64(0x4330000000000000ull | f >> 31) - (0x1p52 + 0x1p30);
  const f64 d1 = from_small(f & 0x7fffffffu), d2 = from_small(low_half(c1));
  const Pair<f64> x = fast_sum(d0 * 0x1p31, d1);
  const Pair<f64> y = fast_sum(x.hi, x.lo + fma(from_small(low_half(c0)), 0x1p-64, d2 * 0x1p-32));
  const Pair<f64> r = two_product(y.hi, @half_pi_scaled);
  return {r.hi, r.lo + fma(y.hi, @half_pi_scaled_lo, y.lo * @half_pi_scaled), g >> 62};
}
"""

CODE = """\
// the same for |x| < 2^@limit: n pi/2 is taken away in three parts, each exactly or with its error
KM_INL Quadrant_$F reduce_near($F a) {
  const $F t = fma(a, $two_over_pi, $shift), n = t - $shift;
  const $F x = fma(n, -$half_pi_0, a), w = product(n, $half_pi_1);
  const $F r = x - w;
  const $F low = ((x - r) - w) - fma(n, $half_pi_1, -w);
  return {r, fma(n, -$half_pi_2, low), bits(t)};
}
KM_INL Quadrant_$F reduce($F a) {
  const Quadrant_$F near = reduce_near(a), wide = reduce_wide(a);
  const bool far = a >= $limit_value;
  const $F bad = a - a;  // NaN for infinities
  return {far ? wide.hi : near.hi, (far ? wide.lo : near.lo) + bad, far ? wide.q : near.q};
}
@sin_tail
@cos_tail
// sin(hi + lo) - hi
KM_INL $F sin_rest($F r, $F low, $F z) {
  return fma(r * z, sin_tail(z), fma(low, -#0.5 * z, low));
}
// cos(hi + lo): head and rest
KM_INL Pair<$F> cos_parts($F r, $F low, $F z) {
  const $F half = #0.5 * z, w = #1 - half;
  return {w, ((#1 - w) - half) + fma(z * z, cos_tail(z), -(r * low))};
}
// with the sign of `sign` on top of its own
KM_INL $F sin_or_cos(const Quadrant_$F& a, $U q, $U sign) {
  const $F z = a.hi * a.hi;
  const Pair<$F> c = cos_parts(a.hi, a.lo, z);
  const bool odd = (q & 1u) != 0;
  const $F y = (odd ? c.hi : a.hi) + (odd ? c.lo : sin_rest(a.hi, a.lo, z));
  return as_$F(bits(y) ^ ((q << (@top - 1) ^ sign) & ~@magnitude));
}
KM_INL $F signed_by($F y, $F x) { return as_$F(bits(y) ^ (bits(x) & ~@magnitude)); }
KM_INL $F sin_of(const Quadrant_$F& a, $F x) { return sin_or_cos(a, a.q, bits(x)); }
KM_INL $F cos_of(const Quadrant_$F& a) { return sin_or_cos(a, a.q + 1u, 0); }
// sin / cos or -cos / sin, each in two parts
KM_INL $F tan_of(const Quadrant_$F& a, $F x) {
  const $F z = a.hi * a.hi;
  const Pair<$F> cp = cos_parts(a.hi, a.lo, z), c = fast_sum(cp.hi, cp.lo);
  const Pair<$F> s = fast_sum(a.hi, sin_rest(a.hi, a.lo, z));
  const bool odd = (a.q & 1u) != 0;
  const Pair<$F> y = quotient(odd ? -c.hi : s.hi, odd ? -c.lo : s.lo, odd ? s.hi : c.hi,
                              odd ? s.lo : c.lo);
  return x == #0 ? x : signed_by(y.hi + y.lo, x);
}
// The same bits at a third of the price where no |x| reaches 2^@limit, for callers that looked.
KM_INL bool trig_far($F x) { return !(fabs(x) < $limit_value); }
KM_INL $F sin_near($F x) { return sin_of(reduce_near(fabs(x)), x); }
KM_INL $F cos_near($F x) { return cos_of(reduce_near(fabs(x))); }
KM_INL $F tan_near($F x) { return tan_of(reduce_near(fabs(x)), x); }
}  // namespace vm

KM_INL $F sin($F x) { return vm::sin_of(vm::reduce(fabs(x)), x); }
KM_INL $F cos($F x) { return vm::cos_of(vm::reduce(fabs(x))); }
KM_INL $F tan($F x) { return vm::tan_of(vm::reduce(fabs(x)), x); }
"""

INVERSE = """\
namespace vm {
@asin_tail
@atan_tail
// asin(s) for s = |x| <= 1/2, else s = sqrt((1 - |x|) / 2): s + rest
struct Arc_$F {
  $F s, rest;
};
KM_INL Arc_$F arc($F x) {
  const $F a = fabs(x);
  const bool big = a > #0.5;
  const $F z = big ? fma(a, -#0.5, #0.5) : x * x;
  const $F root = sqrt(z);
  const $F low = fma(-root, root, z) * (#0.5 / (root == #0 ? #1 : root));
  const $F s = big ? root : a;
  return {s, fma(s * z, asin_tail(z), big ? low : #0)};
}
// atan(t + low), |t| <= tan(pi/8), without t itself
KM_INL $F atan_rest($F t, $F low) {
  const $F z = t * t;
  return fma(t * z, atan_tail(z), low);
}
}  // namespace vm

KM_INL $F asin($F x) {
  const vm::Arc_$F a = vm::arc(x);
  const bool upper = fabs(x) > #0.5;
  const vm::Pair<$F> d = vm::fast_sum($half_pi_0, -#2 * a.s);
  const $F big = d.hi + (d.lo + fma(-#2, a.rest, $half_pi_1));
  return x == #0 ? x : copysign(upper ? big : a.s + a.rest, x);
}
KM_INL $F acos($F x) {
  const vm::Arc_$F a = vm::arc(x);
  const bool negative = x < #0, upper = fabs(x) > #0.5;
  const $F times = upper ? (negative ? -#2 : #2) : (negative ? #1 : -#1);
  const $F base = upper ? (negative ? $pi_hi : #0) : $half_pi_0;
  const $F base_low = upper ? (negative ? $pi_lo : #0) : $half_pi_1;
  const vm::Pair<$F> d = vm::fast_sum(base, times * a.s);
  return d.hi + (d.lo + fma(times, a.rest, base_low));
}
// |x| > tan(3pi/8): pi/2 + atan(-1/a); |x| > tan(pi/8): pi/4 + atan((a - 1) / (a + 1))
KM_INL $F atan($F x) {
  const $F a0 = fabs(x), a = a0 > $huge ? $huge : a0;
  const bool far = a > $tan_67, mid = a > $tan_22;
  const vm::Pair<$F> sum = vm::two_sum(a, #1);
  const $F den = vm::choose(far, a, vm::choose(mid, sum.hi, #1));
  const $F den_low = vm::choose(far, #0, vm::choose(mid, sum.lo, #0));
  const vm::Pair<$F> t =
      vm::quotient(vm::choose(far, -#1, vm::choose(mid, a - #1, a)), #0, den, den_low);
  const $F base = vm::choose(far, $half_pi_0, vm::choose(mid, $quarter_pi_0, #0));
  const $F mid_low = vm::choose(mid, $quarter_pi_1, #0);
  const $F base_low = vm::choose(far, $half_pi_1, mid_low);
  const vm::Pair<$F> d = vm::fast_sum(base, t.hi);
  const $F y = d.hi + (d.lo + (base_low + vm::atan_rest(t.hi, t.lo)));
  return ((a0 < $negligible) | (x != x)) ? x : copysign(y, x);
}
// c pi/4 +- atan(t), |t| <= tan(pi/8), from the smaller over the larger of |x| and |y|
KM_INL $F atan2($F y, $F x) {
  const $F ax = fabs(x), ay = fabs(y), inf = vm::infinity(x);
  const bool steep = ay > ax, behind = signbit(x);
  const $F high = vm::choose(steep, ay, ax), low = vm::choose(steep, ax, ay);
  const bool endless = high == inf, both = low == inf;
  const $F n = vm::choose(endless, vm::choose(both, #1, #0), low);
  const $F d = vm::choose(endless | (high == #0), #1, high);
  const $F by = vm::choose(d > $large, $down, vm::choose(d < $little, $up, #1));
  const $F num = n * by, den = d * by;
  const bool mid = num > $tan_22 * den;
  const vm::Pair<$F> sum = vm::fast_sum(den, num), dif = vm::two_sum(num, -den);
  const vm::Pair<$F> t =
      vm::quotient(vm::choose(mid, dif.hi, num), vm::choose(mid, dif.lo, #0),
                   vm::choose(mid, sum.hi, den), vm::choose(mid, sum.lo, #0));
  const $F eighths = vm::choose(mid, #1, #0);
  const $F half = vm::choose(steep, #2 - eighths, eighths);
  const $F c = vm::choose(behind, #4 - half, half);
  const $F turn = vm::choose(steep != behind, -#1, #1);
  const $F base = c * $octant_hi;  // exact
  const vm::Pair<$F> a = vm::fast_sum(base, turn * t.hi);
  const $F rest = a.lo + fma(c, $octant_lo, turn * vm::atan_rest(t.hi, t.lo));
  return ((x != x) | (y != y)) ? x + y : copysign(a.hi + rest, y);
}
"""


def table(kind: Kind) -> str:
    """Return the words of 2/pi as lines of C++."""
    count = TABLE_WORDS[kind]
    digits = two_over_pi_digits(64 * count - PAD[kind])
    words = [digits >> (64 * (count - 1 - i)) & (2**64 - 1) for i in range(count)]
    lines = [", ".join(f"0x{w:016x}ull" for w in words[i : i + 4]) for i in range(0, count, 4)]
    return "".join(f"    {line},\n" for line in lines)


def circular(kind: Kind) -> str:
    """Return sin, cos, tan of one kind."""
    eps = kind.epsilon
    top = (mp.pi / 4 + mp.mpf(kind.pick("0.005", "1e-6"))) ** 2
    sine = fit(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, mp.mpf(0), top, eps / 4)
    cosine = fit(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mp.mpf(0), top, eps / 4)
    half_pi = split(mp.pi / 2, [kind.digits, kind.digits])
    scaled = split(mp.pi / 2 / mp.mpf(2) ** 62, [53])
    limit = WIDE_LIMIT[kind]
    # The window starts at weight 2^(1 - e), digit e - 2 of 2/pi from 0; e is the biased exponent
    # less bias and mantissa.
    base = kind.bias + kind.mantissa + 2 - PAD[kind]
    values: dict[str, object] = {
        "pad": PAD[kind],
        "words": TABLE_WORDS[kind],
        "table": table(kind),
        "base": f"{base}u",
        "limit": limit,
        "limit_value": mp.mpf(2) ** limit,
        "half_pi_scaled_lo": F64.literal(scaled[1]),
        "half_pi_scaled": F64.literal(scaled[0]),
        "shift": mp.mpf(3) * 2 ** (kind.mantissa - 1),
        "two_over_pi": 2 / mp.pi,
        "half_pi_0": half_pi[0],
        "half_pi_1": half_pi[1],
        "half_pi_2": half_pi[2],
        "sin_tail": polynomial("sin_tail", sine, kind, "(sin(r) / r - 1) / x with x = r^2"),
        "cos_tail": polynomial("cos_tail", cosine, kind, "(cos(r) - 1 + x/2) / x^2 with x = r^2"),
        "top": kind.width - 1,
        "magnitude": kind.word((1 << (kind.width - 1)) - 1),
    }
    return fill((WIDE_SINGLE if kind.single else WIDE_DOUBLE) + CODE, kind, values)


def inverse(kind: Kind) -> str:
    """Return asin, acos, atan, atan2 of one kind."""
    eps = kind.epsilon
    arcsine = fit(
        lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, mp.mpf(0), mp.mpf(0.2501), eps / 2
    )
    top = mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.0001")
    arctan = fit(lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, mp.mpf(0), top, eps / 2)
    half_pi = split(mp.pi / 2, [kind.digits])
    octant = split(mp.pi / 4, [kind.digits - 3])
    values: dict[str, object] = {
        "asin_tail": polynomial("asin_tail", arcsine, kind, "(asin(s) / s - 1) / x with x = s^2"),
        "atan_tail": polynomial("atan_tail", arctan, kind, "(atan(t) / t - 1) / x with x = t^2"),
        "half_pi_0": half_pi[0],
        "half_pi_1": half_pi[1],
        "quarter_pi_0": half_pi[0] / 2,
        "quarter_pi_1": half_pi[1] / 2,
        "pi_hi": half_pi[0] * 2,
        "pi_lo": half_pi[1] * 2,
        "octant_hi": octant[0],
        "octant_lo": octant[1],
        "tan_22": mp.tan(mp.pi / 8),
        "tan_67": mp.tan(3 * mp.pi / 8),
        "huge": mp.mpf(2) ** (kind.digits + 10),
        "negligible": mp.mpf(2) ** -(kind.digits + 1),
        "large": mp.mpf(2) ** (kind.bias - 3),
        "down": mp.mpf(2) ** -5,
        "little": mp.mpf(2) ** (kind.digits * 2 - kind.bias),
        "up": mp.mpf(2) ** (kind.digits * 2),
    }
    return fill(INVERSE, kind, values)


def emit() -> str:
    """Return the body of the file."""
    return "\n".join(circular(kind) + "\n" + inverse(kind) for kind in KINDS)
