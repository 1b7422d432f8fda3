"""Writes vmath_special.hpp: erf, erfc."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath as mp

from vmath.fit import fit
from vmath.kinds import F32, F64, KINDS, Kind, fill, polynomial

if TYPE_CHECKING:
    from vmath.fit import Real

BREAK = mp.mpf("0.92")

ERF_SINGLE = """\
namespace vm {
@erf_tail
@erf_exponent
}  // namespace vm
// |x| < 0.92: a polynomial; else 1 - e^q(|x|)
KM_INL f32 erf(f32 x) {
  const f32 a0 = fabs(x), a = a0 > 4.0f ? 4.0f : a0;
  const f32 small = fma(x, vm::erf_tail(x * x), x);
  const f32 big = 1.0f - exp(vm::erf_exponent(a));
  return ((a0 < $split) | (x != x)) ? small : copysign(big, x);
}
"""

ERF_DOUBLE = """\
namespace vm {
@erf_tail
@erf_scaled
}  // namespace vm
// |x| < 0.92: a polynomial; else 1 - e^(-a^2) w((a - 2) / (a + 2))
KM_INL f64 erf(f64 x) {
  const f64 a0 = fabs(x), a = a0 > 6.0 ? 6.0 : a0;
  const f64 small = fma(x, vm::erf_tail(x * x), x);
  const f64 w = vm::erf_scaled((a - 2.0) / (a + 2.0));
  const f64 big = fma(-w, exp(-a * a), 1.0);
  return ((a0 < $split) | (x != x)) ? small : copysign(big, x);
}
"""

ERFC = """\
namespace vm {
@erfc_scaled
}  // namespace vm
// 1 - erf(x) below 0.47; else e^(-a^2) v / (1 + 2a) with v, near 1, a polynomial in
// (a - @k) / (a + @k): a^2, the quotient and the product each in two parts
KM_INL $F erfc($F x) {
  const $F a0 = fabs(x), a = a0 > $most ? $most : a0;
  const vm::Pair<$F> sq = vm::two_product(a, a);
  const vm::Exp_$F e = vm::exp_pair(-sq.hi, -sq.lo);
  const $F t = (a - $center) / (a + $center);
  const vm::Pair<$F> v = vm::fast_sum($first, t * vm::erfc_scaled(t));
  const vm::Pair<$F> d = vm::two_sum(#1, #2 * a), q = vm::quotient(v.hi, v.lo, d.hi, d.lo);
  const vm::Pair<$F> p = vm::two_product(q.hi, e.hi);
  const $F low = p.lo + fma(q.hi, e.lo, q.lo * e.hi);
  const $F tail = vm::scale(p.hi + low, e.n);
  const $F small = #1 - fma(x, vm::erf_tail(x * x), x);
  return x != x ? x : x < -#0.5 ? #2 - tail : x < $near ? small : tail;
}
"""

CENTER = {F32: mp.mpf(2), F64: mp.mpf(4)}


def error_function(kind: Kind) -> str:
    """Return erf of one kind."""
    eps = kind.epsilon

    def near_zero(z: Real) -> Real:
        root = mp.sqrt(z)
        return mp.erf(root) / root - 1

    values: dict[str, object] = {
        "split": BREAK,
        "erf_tail": polynomial(
            "erf_tail",
            fit(near_zero, mp.mpf(0), BREAK**2, eps / 4),
            kind,
            "erf(s) / s - 1 with x = s^2",
        ),
    }
    if kind.single:
        exponent = fit(lambda a: mp.log(mp.erfc(a)), BREAK, mp.mpf(4), mp.mpf(2) ** -23)
        values["erf_exponent"] = polynomial("erf_exponent", exponent, kind, "log(erfc(x))")
    else:
        low, high = (BREAK - 2) / (BREAK + 2), mp.mpf(4) / 8

        def scaled(t: Real) -> Real:
            a = 2 * (1 + t) / (1 - t)
            return mp.erfc(a) * mp.exp(a * a)

        values["erf_scaled"] = polynomial(
            "erf_scaled",
            fit(scaled, low, high, eps / 4),
            kind,
            "erfc(a) e^(a^2) with x = (a - 2) / (a + 2)",
        )
    return fill(ERF_SINGLE if kind.single else ERF_DOUBLE, kind, values)


def complement(kind: Kind) -> str:
    """Return erfc of one kind."""
    center, most = CENTER[kind], mp.mpf(kind.pick("10.1", "27.3"))
    near = mp.mpf("0.47")

    def scaled(t: Real) -> Real:
        a = center * (1 + t) / (1 - t)
        return (1 + 2 * a) * mp.erfc(a) * mp.exp(a * a)

    first = mp.mpf(kind.round(scaled(mp.mpf(0))))
    low, high = (near - center) / (near + center), (most - center) / (most + center)
    series = fit(scaled, low, high, kind.epsilon / 8)
    values: dict[str, object] = {
        "k": mp.nstr(center, 2),
        "near": near,
        "most": most,
        "center": center,
        "first": first,
        "erfc_scaled": polynomial(
            "erfc_scaled", series[1:], kind, "((1 + 2a) erfc(a) e^(a^2) - v(0)) / x"
        ),
    }
    return fill(ERFC, kind, values)


def emit() -> str:
    """Return the body of the file."""
    return "\n".join(error_function(k) for k in KINDS) + "\n" + "\n".join(map(complement, KINDS))
