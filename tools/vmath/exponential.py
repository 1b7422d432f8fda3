"""Writes vmath_exp.hpp: exp, exp2, expm1, sinh, cosh, tanh, and exp in twice the precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath as mp

from vmath.fit import fit, split
from vmath.kinds import KINDS, Kind, fill, polynomial

if TYPE_CHECKING:
    from vmath.fit import Real

CODE = """\
namespace vm {
@exp_tail
@exp2_tail
// x = n ln2 + r with |r| <= ln2/2: n in the low bits of `shifted`, r in two parts
struct Ln2_$F {
  $F shifted, hi, lo;
};
KM_INL Ln2_$F by_ln2($F x, $F low) {
  const $F shifted = fma(x, $inv_ln2, $shift), n = shifted - $shift;
  const $F rest = fma(n, -$ln2_lo, low);
  const Pair<$F> r = two_sum(fma(n, -$ln2_hi, x), rest);
  return {shifted, r.hi, r.lo};
}
// e^(x + low) = (hi + lo) * 2^n, hi in [0.7, 1.42]
struct Exp_$F {
  $F hi, lo;
  $I n;
};
KM_INL Exp_$F exp_pair($F x, $F low) {
  const Ln2_$F r = by_ln2(x, low);
  const $F tail = fma(r.hi * r.hi, exp_tail(r.hi), fma(r.lo, r.hi, r.lo));
  const Pair<$F> head = fast_sum(#1, r.hi);
  const Pair<$F> sum = fast_sum(head.hi, head.lo + tail);
  return {sum.hi, sum.lo, low_integer(r.shifted)};
}
}  // namespace vm

// e^x
KM_INL $F exp($F given) {
  const $F x = given < $exp_low ? $exp_low : given;  // NaN passes through both
  const $F shifted = fma(x, $inv_ln2, $shift), n = shifted - $shift;
  const $F r = fma(n, -$ln2_lo, fma(n, -$ln2_hi, x));
  const $F p = fma(r * r, vm::exp_tail(r), r);
  const $F y = vm::scale(#1 + p, vm::low_integer(shifted));
  return given > $exp_high ? vm::infinity(y) : y;  // of two limits in a row g++ makes jumps
}

namespace vm {
// The same bits without what the largest results need in `scale`: n is added to the exponent,
// @near_up too high, so that small results, subnormal ones too, are rounded once, by the last step.
// For callers that look at the bits of `near_shifted`: n is below their limit, NaN above.
KM_INL $F near_shifted($F x) { return fma(x < $exp_low ? $exp_low : x, $inv_ln2, $near_shift); }
KM_INL bool exp_far($U most) { return most > @near_most; }
KM_INL $F exp_near($F given) {
  const $F x = given < $exp_low ? $exp_low : given;
  const $F shifted = near_shifted(given), n = shifted - $near_shift;
  const $F r = fma(n, -$ln2_lo, fma(n, -$ln2_hi, x));
  const $F p = fma(r * r, exp_tail(r), r);
  return as_$F(bits(#1 + p) + (bits(shifted) << @mantissa)) * $near_down;
}
}  // namespace vm

// 2^x; exact for integers
KM_INL $F exp2($F given) {
  const $F x = given < $exp2_low ? $exp2_low : given;
  const $F shifted = x + $shift, r = x - (shifted - $shift);
  const $F y = vm::scale(fma(r, vm::exp2_tail(r), #1), vm::low_integer(shifted));
  return given > $exp2_high ? vm::infinity(y) : y;
}

// e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)); the large terms are added last
KM_INL $F expm1($F x) {
  $F a = x < $expm1_low ? $expm1_low : x;
  a = a > $exp_high ? $exp_high : a;
  const vm::Ln2_$F r = vm::by_ln2(a, #0);
  const $I n = vm::low_integer(r.shifted);
  const $F s = vm::power_of_two(n - 1), tail = fma(r.hi * r.hi, vm::exp_tail(r.hi), r.lo);
  const $F y = #2 * (fma(s, r.hi, s - #0.5) + s * tail);
  return fabs(x) < $negligible ? x : y;
}
"""

HYPERBOLIC = """\
namespace vm {
@sinh_tail
}  // namespace vm

// |x| < 1: a polynomial; else (e^a - e^-a) / 2 relative to 2^(n-1), so that nothing overflows early
KM_INL $F sinh($F x) {
  const $F a0 = fabs(x), a = a0 > $sinh_high ? $sinh_high : a0;
  const vm::Exp_$F e = vm::exp_pair(a, #0);
  const $F inverse = vm::power_of_two(e.n > @cap ? -2 * @cap : -2 * e.n) / e.hi;
  const vm::Pair<$F> d = vm::fast_sum(e.hi, -inverse);
  const $F big = vm::scale(d.hi + (d.lo + e.lo), e.n - 1);
  const $F z = x * x, small = fma(x * z, vm::sinh_tail(z), x);
  return a0 < #1 ? small : x != x ? x : copysign(big, x);
}

KM_INL $F cosh($F x) {
  const $F a0 = fabs(x), a = a0 > $sinh_high ? $sinh_high : a0;
  const vm::Exp_$F e = vm::exp_pair(a, #0);
  const $F inverse = vm::power_of_two(e.n > @cap ? -2 * @cap : -2 * e.n) / e.hi;
  return vm::scale(e.hi + (inverse + e.lo), e.n - 1);
}

// e / (e + 2) with e = e^(2|x|) - 1 in two parts.  The rounding of n is biased so that r lies in
// [-0.1, 0.6]: s r and s - 1 never cancel.
KM_INL $F tanh($F x) {
  const $F a0 = fabs(x) * #2, a = a0 > $tanh_high ? $tanh_high : a0;
  const $F shifted = fma(a, $inv_ln2, -$tilt) + $shift;
  const $F n = shifted - $shift;
  const vm::Pair<$F> r = vm::two_sum(fma(n, -$ln2_hi, a), n * -$ln2_lo);
  const $F s = vm::power_of_two(vm::low_integer(shifted));
  const $F tail = s * fma(r.hi * r.hi, vm::tanh_tail(r.hi), r.lo);
  const vm::Pair<$F> head = vm::two_sum(s - #1, s * r.hi);
  const vm::Pair<$F> e = vm::fast_sum(head.hi, head.lo + tail);
  const vm::Pair<$F> d = vm::two_sum(e.hi, $two);
  const vm::Pair<$F> q = vm::quotient(e.hi, e.lo, d.hi, d.lo + e.lo);
  return x != x ? x : copysign(q.hi + q.lo, x);
}
"""


def exp_minus_1(r: Real) -> Real:
    """(e^r - 1 - r) / r^2, whose value at 0 is 1/2."""
    return (mp.expm1(r) - r) / r**2


def constants(kind: Kind) -> dict[str, object]:
    """Numbers of the argument reductions and limits."""
    high, low = split(mp.log(2), [kind.digits])
    shift, up = mp.mpf(3) * 2 ** (kind.mantissa - 1), kind.pick(26, 64)
    return {
        "near_up": up,
        "near_shift": shift + up,
        "near_most": kind.pattern(shift + kind.bias),
        "near_down": mp.mpf(2) ** -up,
        "mantissa": kind.mantissa,
        "inv_ln2": 1 / mp.log(2),
        "ln2_hi": high,
        "ln2_lo": low,
        "shift": shift,
        "two": 2,
        "exp_low": kind.pick(-104, -746),
        "exp_high": kind.pick(89, 710),
        "exp2_low": kind.pick(-151, -1080),
        "exp2_high": kind.pick(129, 1025),
        "expm1_low": kind.pick(-18, -40),
        "negligible": mp.mpf(2) ** -(kind.digits + 1),
        "sinh_high": kind.pick(90, 711),
        "cap": kind.pick(30, 60),
        "tanh_high": kind.pick(20, 44),
        "tilt": TILT,
    }


TILT = mp.mpf("0.35")


def exponential(kind: Kind) -> str:
    """Return exp, exp2, expm1 of one kind."""
    eps, half = kind.epsilon, mp.log(2) / 2 + mp.mpf("1e-5")
    tail = fit(exp_minus_1, -half, half, eps / 4)
    two = fit(lambda r: mp.expm1(r * mp.log(2)) / r, mp.mpf("-0.5001"), mp.mpf("0.5001"), eps / 8)
    polynomials: dict[str, object] = {
        "exp_tail": polynomial("exp_tail", tail, kind, "(e^x - 1 - x) / x^2, |x| <= ln2/2"),
        "exp2_tail": polynomial("exp2_tail", two, kind, "(2^x - 1) / x, |x| <= 1/2"),
    }
    return fill(CODE, kind, constants(kind) | polynomials)


def hyperbolic(kind: Kind) -> str:
    """Return sinh, cosh, tanh of one kind."""
    eps, slack = kind.epsilon, mp.mpf("1e-5")
    low, high = (TILT - 0.5) * mp.log(2) - slack, (TILT + 0.5) * mp.log(2) + slack
    tilted = fit(exp_minus_1, low, high, eps / 4)
    sinh = fit(lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, mp.mpf(0), mp.mpf(1), eps / 4)
    text = polynomial("sinh_tail", sinh, kind, "(sinh(s) / s - 1) / x with s = sqrt(x) <= 1")
    text += polynomial("tanh_tail", tilted, kind, "(e^x - 1 - x) / x^2, -0.11 <= x <= 0.59")
    return fill(HYPERBOLIC, kind, constants(kind) | {"sinh_tail": text})


def emit() -> str:
    """Return the body of the file."""
    return "\n".join(exponential(kind) + "\n" + hyperbolic(kind) for kind in KINDS)
