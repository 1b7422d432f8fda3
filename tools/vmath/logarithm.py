"""Writes vmath_log.hpp: log, log2, log10, log1p, asinh, acosh, atanh."""

from __future__ import annotations

import mpmath as mp

from vmath.fit import fit, split
from vmath.kinds import KINDS, Kind, fill, polynomial

REDUCE = """\
namespace vm {
@log_tail
// x = m * 2^k, m in [sqrt(1/2), sqrt(2)); x > 0, subnormals too
struct Log_$F {
  $F m, k;
};
// e + @offset with u = m * 2^e
KM_INL $U binade($U u) { return (u + @up) >> @mantissa; }
KM_INL $F without($U u, $U e) { return as_$F(u - (e << @mantissa) + @offset_bits); }
KM_INL Log_$F by_powers($F x) {
  const bool small = x < $tiny;
  const $U u = bits(small ? x * $lift : x);
  const $U e = binade(u);
  return {without(u, e), from_small(e) - (small ? $lifted_offset : $offset_real)};
}
// the values log takes at 0, below, at infinity and NaN
KM_INL $F log_limits($F y, $F x) {
  y = x > #0 ? y : x == #0 ? -infinity(x) : not_a_number(x);
  return ((x == infinity(x)) | (x != x)) ? x : y;
}
"""

TAIL_SINGLE = """\
// log(1 + t) + k ln2 + low, t in [-0.3, 0.42]
KM_INL $F log_sum($F t, $F low, $F k) {
  const $F t2 = t * t;
  const $F y = fma(t * t2, log_tail(t), fma(k, $ln2_lo, fma(#0.5, -t2, low)));
  return fma(k, $ln2_hi, t + y);
}
// log(1 + t) in two parts
KM_INL Pair<$F> log_pair($F t) {
  const Pair<$F> sq = two_product(t, t);
  const Pair<$F> head = fast_sum(t, -#0.5 * sq.hi);
  return fast_sum(head.hi, fma(t * sq.hi, log_tail(t), fma(-#0.5, sq.lo, head.lo)));
}
"""

TAIL_DOUBLE = """\
// log(1 + t) + k ln2 + low, t in [-0.3, 0.42]
KM_INL $F log_sum($F t, $F low, $F k) {
  const $F half = #0.5 * t * t, s = t / (#2 + t), z = s * s;
  const $F p = fma(s, fma(z, log_tail(z), half), fma(k, $ln2_lo, low));
  return fma(k, $ln2_hi, t - (half - p));
}
// log(1 + t) in two parts
KM_INL Pair<$F> log_pair($F t) {
  const Pair<$F> sq = two_product(t, t);
  const $F half = #0.5 * sq.hi, s = t / (#2 + t), z = s * s;
  const Pair<$F> head = fast_sum(t, -half);
  return fast_sum(head.hi, fma(s, fma(z, log_tail(z), half), fma(-#0.5, sq.lo, head.lo)));
}
"""

CODE = """\
// log(1 + u + low): 1 + u = (1 + t) 2^k, and what rounding 1 + u lost is scaled along
KM_INL $F log1p_pair($F u, $F low, $F more) {
  const Pair<$F> v = two_sum(#1, u);
  const $U w = bits(v.hi), e = binade(w), c = e > @most ? @most : e;
  const $F m = without(w, e);
  const Pair<$F> t = two_sum(m - #1, (v.lo + low) * as_$F((@twice - c) << @mantissa));
  return log_sum(t.hi, fma(t.lo, -t.hi, t.lo), from_small(e) + (more - $offset_real));
}
}  // namespace vm

// natural logarithm
KM_INL $F log($F x) {
  const vm::Log_$F p = vm::by_powers(x);
  return vm::log_limits(vm::log_sum(p.m - #1, #0, p.k), x);
}

// base 2; exact for powers of two
KM_INL $F log2($F x) {
  const vm::Log_$F p = vm::by_powers(x);
  const vm::Pair<$F> y = vm::log_pair(p.m - #1);
  const $F h = vm::product(y.hi, $log2e_hi);
  const $F small = fma(y.lo, $log2e_hi, y.hi * $log2e_lo);
  const $F l = fma(y.hi, $log2e_hi, -h) + small;
  const vm::Pair<$F> sum = vm::fast_sum(p.k, h);
  return vm::log_limits(sum.hi + (sum.lo + l), x);
}

KM_INL $F log10($F x) {
  const vm::Log_$F p = vm::by_powers(x);
  const vm::Pair<$F> y = vm::log_pair(p.m - #1);
  const $F h = vm::product(y.hi, $log10e_hi);
  const $F small = fma(y.lo, $log10e_hi, y.hi * $log10e_lo);
  const $F l = fma(y.hi, $log10e_hi, -h) + small;
  const vm::Pair<$F> sum = vm::fast_sum(p.k * $log10_2_hi, h);  // p.k * hi is exact
  return vm::log_limits(sum.hi + (sum.lo + fma(p.k, $log10_2_lo, l)), x);
}

// log(1 + x)
KM_INL $F log1p($F x) {
  const $F y = copysign(vm::log1p_pair(x, #0, #0), x);
  const $F z = x > -#1 ? y : x == -#1 ? -vm::infinity(x) : vm::not_a_number(x);
  return ((x == vm::infinity(x)) | (x != x) | (fabs(x) < $tiny)) ? x : z;
}

// log(1 + u) with u = a + (sqrt(a^2 + 1) - 1), a = |x|, in two parts
KM_INL $F asinh($F x) {
  const $F a = fabs(x);
  const bool big = a > $huge;
  const $F b = big ? #1 : a;
  const vm::Pair<$F> sq = vm::two_product(b, b), w = vm::two_sum(#1, sq.hi);
  const $F root = sqrt(w.hi);
  const $F rest = (fma(-root, root, w.hi) + (w.lo + sq.lo)) * (#0.5 / root);
  const vm::Pair<$F> u = vm::two_sum(b, root - #1);
  const $F y = vm::log1p_pair(big ? a : u.hi, big ? #0 : u.lo + rest, big ? #1 : #0);
  return ((a < $negligible) | !(a < vm::infinity(x))) ? x : copysign(y, x);
}

// log(1 + u) with u = t + sqrt(t (t + 2)), t = x - 1, in two parts
KM_INL $F acosh($F x) {
  const bool big = x > $huge;
  const $F t = big ? #1 : x - #1;
  const vm::Pair<$F> sq = vm::two_product(t, t), w = vm::two_sum(#2 * t, sq.hi);
  const $F root = sqrt(w.hi);
  const $F slope = #0.5 / (root == #0 ? #1 : root);
  const $F rest = (fma(-root, root, w.hi) + (w.lo + sq.lo)) * slope;
  const vm::Pair<$F> u = vm::two_sum(t, root);
  const $F y = vm::log1p_pair(big ? x : u.hi, big ? #0 : u.lo + rest, big ? #1 : #0);
  const $F z = x >= #1 ? y : vm::not_a_number(x);
  return ((x == vm::infinity(x)) | (x != x)) ? x : z;
}

// log(1 + 2a / (1 - a)) / 2
KM_INL $F atanh($F x) {
  const $F a0 = fabs(x), a = a0 < #1 ? a0 : #0;
  const vm::Pair<$F> d = vm::fast_sum(#1, -a), u = vm::quotient(#2 * a, #0, d.hi, d.lo);
  const $F y = #0.5 * vm::log1p_pair(u.hi, u.lo, #0);
  const $F z = a0 == #1 ? vm::infinity(x) : y;
  return a0 < $negligible ? x : a0 <= #1 ? copysign(z, x) : x != x ? x : vm::not_a_number(x);
}
"""


def tail(kind: Kind) -> str:
    """Return the polynomial of log and the two sums built on it."""
    if kind.single:
        series = fit(
            lambda t: (mp.log1p(t) - t + t * t / 2) / t**3,
            mp.sqrt(mp.mpf(0.5)) - 1,
            mp.sqrt(2) - 1,
            kind.epsilon / 2,
        )
        return polynomial("log_tail", series, kind, "(log(1 + x) - x + x^2/2) / x^3")
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
    series = fit(
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z, mp.mpf(0), top, kind.epsilon
    )
    return polynomial(
        "log_tail", series, kind, "(log((1 + s) / (1 - s)) / s - 2) / x with x = s^2 <= 0.0295"
    )


def logarithm(kind: Kind) -> str:
    """Return all functions of one kind."""
    spare = 9 if kind.single else 12
    ln2 = split(mp.log(2), [kind.digits - spare])
    log2e = split(1 / mp.log(2), [kind.digits])
    log10e = split(1 / mp.log(10), [kind.digits])
    log10_2 = split(mp.log10(2), [kind.digits - spare])
    lift, offset = 25 if kind.single else 54, kind.bias + 1
    sqrt_half = kind.pattern(mp.sqrt(mp.mpf(0.5))).rstrip("ul")
    values: dict[str, object] = {
        "log_tail": tail(kind),
        "tiny": mp.mpf(2) ** (1 - kind.bias),
        "lift": mp.mpf(2) ** lift,
        "lift_by": lift,
        "offset": offset,
        "offset_real": offset,
        "lifted_offset": offset + lift,
        "offset_bits": kind.word(offset << kind.mantissa),
        "up": kind.word((offset << kind.mantissa) - int(sqrt_half, 16)),
        "most": f"{offset + 64}u",
        "twice": f"{offset + kind.bias}u",
        "mantissa": kind.mantissa,
        "ln2_hi": ln2[0],
        "ln2_lo": ln2[1],
        "log2e_hi": log2e[0],
        "log2e_lo": log2e[1],
        "log10e_hi": log10e[0],
        "log10e_lo": log10e[1],
        "log10_2_hi": log10_2[0],
        "log10_2_lo": log10_2[1],
        "huge": mp.mpf(2) ** (kind.digits + 3),
        "negligible": mp.mpf(2) ** -(kind.digits + 1),
    }
    text = REDUCE + (TAIL_SINGLE if kind.single else TAIL_DOUBLE) + CODE
    return fill(text, kind, values)


def emit() -> str:
    """Return the body of the file."""
    return "\n".join(logarithm(kind) for kind in KINDS)
