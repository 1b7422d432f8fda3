"""Writes vmath_gamma.hpp: tgamma and lgamma (these two may branch and loop)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath as mp

from vmath.fit import fit, split
from vmath.kinds import F64, fill, polynomial

if TYPE_CHECKING:
    from vmath.fit import Real

CODE = """\
namespace vm {
@stirling
@gamma_one
@lgamma_one
@lgamma_two
// log(gamma(z + n)) for z > 0 and the smallest n with z + n >= 12, and z (z + 1) ... (z + n - 1)
struct Gamma {
  Pair<f64> log, product;
};
KM_INL Gamma gamma_parts(f64 z) {
  Pair<f64> p = {1.0, 0.0}, s = {z, 0.0};
  for (f64 k = 0.0; s.hi < 12.0;) {
    const Pair<f64> m = two_product(p.hi, s.hi);
    p = fast_sum(m.hi, m.lo + fma(p.hi, s.lo, p.lo * s.hi));
    k += 1.0;
    s = two_sum(z, k);
  }
  // (s - 1/2) log s - s + log(2 pi) / 2 + stirling(1/s^2) / s
  const Pair<f64> l = log_double(s.hi);
  const f64 inverse = 1.0 / s.hi, log_low = fma(s.lo, inverse, l.lo);
  const Pair<f64> b = two_sum(s.hi, -0.5), m = two_product(b.hi, l.hi);
  const f64 m_low = m.lo + fma(b.hi, log_low, (b.lo + s.lo) * l.hi);
  const Pair<f64> d = two_sum(m.hi, -s.hi), e = two_sum(d.hi, $half_log_2pi_hi);
  const f64 rest = fma(inverse, stirling(inverse * inverse), $half_log_2pi_lo);
  return {fast_sum(e.hi, (e.lo + d.lo) + (m_low + (rest - s.lo))), p};
}
// |sin(pi y)| for y >= 0
KM_INL Pair<f64> sin_pi(f64 y) {
  const f64 part = y - floor(y), f = part > 0.5 ? 1.0 - part : part;
  const bool cosine = f > 0.25;
  const f64 g = cosine ? 0.5 - f : f;
  const Pair<f64> r = two_product(g, $pi_hi);
  const f64 low = fma(g, $pi_lo, r.lo), z = r.hi * r.hi;
  const Pair<f64> c = cos_parts(r.hi, low, z);
  return cosine ? fast_sum(c.hi, c.lo) : fast_sum(r.hi, sin_rest(r.hi, low, z));
}
// y |sin(pi y)| / pi, the reciprocal of |gamma(y) gamma(-y)|
KM_INL Pair<f64> reflection(f64 y) {
  const Pair<f64> s = sin_pi(y), m = two_product(s.hi, y);
  const f64 m_low = fma(s.lo, y, m.lo);
  const Pair<f64> p = two_product(m.hi, $inv_pi_hi);
  return fast_sum(p.hi, p.lo + fma(m.hi, $inv_pi_lo, m_low * $inv_pi_hi));
}
// gamma(z) for 2^-60 < z < 20: gamma(1 + t) times z - 1, z - 2, ... 1 + t, all of them exact
KM_INL Pair<f64> gamma_small(f64 z) {
  const f64 t = z - floor(z), u = t - 0.5;
  Pair<f64> p = fast_sum($gamma_first, fma(u, gamma_one(u), $gamma_first_lo));
  if (z < 1.0) return quotient(p.hi, p.lo, z, 0.0);
  for (f64 s = 1.0 + t; s < z; s += 1.0) {
    const Pair<f64> m = two_product(p.hi, s);
    p = fast_sum(m.hi, fma(p.lo, s, m.lo));
  }
  return p;
}
KM_INL bool pole(f64 x) { return (x <= 0.0) & (floor(x) == x); }
// log(gamma(x)) = (x - 1) (x - 2) r(x), with a = x - 1 exactly and b = x - 2
KM_INL Pair<f64> between(f64 a, Pair<f64> b, Pair<f64> r) {
  const Pair<f64> p = two_product(a, b.hi), q = two_product(p.hi, r.hi);
  return {q.hi, fma(fma(a, b.lo, p.lo), r.hi, fma(p.hi, r.lo, q.lo))};
}
KM_INL Pair<f64> near_one(f64 t) { return fast_sum($one_first, t * lgamma_one(t)); }
KM_INL Pair<f64> near_two(f64 t) { return fast_sum($two_first, t * lgamma_two(t)); }
// log(gamma(z)) for z > 0 in two parts
KM_INL Pair<f64> lgamma_pair(f64 z) {
  if (z < 0.5) {  // log(gamma(z + 1)) - log(z)
    const Pair<f64> p = between(z, two_sum(z, -1.0), near_one(z));
    const Pair<f64> l = log_double(z), s = two_sum(-l.hi, p.hi);
    return fast_sum(s.hi, s.lo + (p.lo - l.lo));
  }
  if (z < 1.5) return between(z - 1.0, two_sum(z, -2.0), near_one(z - 1.0));
  if (z < 3.0) return between(z - 1.0, {z - 2.0, 0.0}, near_two(z - 2.0));
  const Gamma g = gamma_parts(z);
  const Pair<f64> l = log_double(g.product.hi), s = two_sum(g.log.hi, -l.hi);
  return fast_sum(s.hi, s.lo + (g.log.lo - (l.lo + g.product.lo / g.product.hi)));
}
}  // namespace vm

KM_INL f64 tgamma(f64 x) {
  const f64 a = fabs(x);
  if (a < 0x1p-54) return 1.0 / x;
  if ((x != x) | (x == vm::infinity(x))) return x;
  if (vm::pole(x)) return vm::not_a_number(x);
  const f64 half = floor(a) * 0.5, sign = floor(half) == half ? -1.0 : 1.0;  // below 0
  if (a < 20.0) {
    const vm::Pair<f64> g = vm::gamma_small(a);
    if (x > 0.0) return g.hi + g.lo;
    const vm::Pair<f64> r = vm::reflection(a), m = vm::two_product(r.hi, g.hi);
    const vm::Pair<f64> q =
        vm::quotient(sign, 0.0, m.hi, m.lo + fma(r.hi, g.lo, r.lo * g.hi));
    return q.hi + q.lo;
  }
  const vm::Gamma g = vm::gamma_parts(a > 200.0 ? 200.0 : a);
  if (x > 0.0) {
    const vm::Exp_f64 e = vm::exp_pair(g.log.hi, g.log.lo);
    const vm::Pair<f64> q = vm::quotient(e.hi, e.lo, g.product.hi, g.product.lo);
    return vm::scale(q.hi + q.lo, e.n);
  }
  const vm::Exp_f64 e = vm::exp_pair(-g.log.hi, -g.log.lo);
  const vm::Pair<f64> m = vm::two_product(e.hi, g.product.hi);
  const f64 m_low = m.lo + fma(e.hi, g.product.lo, e.lo * g.product.hi);
  const vm::Pair<f64> r = vm::reflection(a), q = vm::quotient(m.hi, m_low, r.hi, r.lo);
  return sign * vm::scale(q.hi + q.lo, e.n);
}

// log |gamma(x)|
KM_INL f64 lgamma(f64 x) {
  const f64 a = fabs(x), inf = vm::infinity(x);
  if (!(a < inf)) return x != x ? x : inf;
  if (vm::pole(x)) return inf;
  if (a < 0x1p-54) return -log(a);
  if (a > 0x1p60) {  // a negative one was a pole
    const vm::Pair<f64> l = vm::log_double(a);
    return a * ((l.hi - 1.0) + l.lo);
  }
  const vm::Pair<f64> g = vm::lgamma_pair(a);
  if (x > 0.0) return g.hi + g.lo;
  const vm::Pair<f64> r = vm::reflection(a), l = vm::log_double(r.hi);
  const vm::Pair<f64> s = vm::two_sum(-l.hi, -g.hi);
  return s.hi + (s.lo - (g.lo + (l.lo + r.lo / r.hi)));
}

KM_INL f32 tgamma(f32 x) { return (f32)tgamma((f64)x); }
KM_INL f32 lgamma(f32 x) { return (f32)lgamma((f64)x); }
"""


def emit() -> str:
    """Return the body of the file."""
    tolerance, half = mp.mpf(2) ** -57, mp.log(2 * mp.pi) / 2

    def stirling(w: Real) -> Real:
        z = 1 / mp.sqrt(w)
        return (mp.loggamma(z) - ((z - 0.5) * mp.log(z) - z + half)) * z

    series = fit(stirling, mp.mpf(0), mp.mpf(1) / 144, tolerance)
    low, high = mp.mpf("-0.5001"), mp.mpf("0.5001")
    gamma = fit(lambda t: mp.gamma(1.5 + t), mp.mpf(-0.5), mp.mpf(0.5), tolerance)
    gamma_first = mp.mpf(F64.round(gamma[0]))
    one = fit(lambda t: mp.loggamma(1 + t) / (t * (t - 1)), low, high, tolerance)
    two = fit(lambda t: mp.loggamma(2 + t) / (t * (t + 1)), low, mp.mpf(1), tolerance)
    pi, inverse, log_2pi = split(mp.pi, [53]), split(1 / mp.pi, [53]), split(half, [53])
    values: dict[str, object] = {
        "stirling": polynomial(
            "stirling", series, F64, "the rest of Stirling's series times z, with x = 1/z^2"
        ),
        "one_first": one[0],
        "two_first": two[0],
        "gamma_first": gamma_first,
        "gamma_first_lo": gamma[0] - gamma_first,
        "gamma_one": polynomial(
            "gamma_one", gamma[1:], F64, "(gamma(3/2 + x) - gamma(3/2)) / x, |x| <= 1/2"
        ),
        "lgamma_one": polynomial(
            "lgamma_one", one[1:], F64, "r(x) / x without its first term, |x| <= 1/2"
        ),
        "lgamma_two": polynomial("lgamma_two", two[1:], F64, "the same around 2, -1/2 <= x <= 1"),
        "pi_hi": pi[0],
        "pi_lo": pi[1],
        "inv_pi_hi": inverse[0],
        "inv_pi_lo": inverse[1],
        "half_log_2pi_hi": log_2pi[0],
        "half_log_2pi_lo": log_2pi[1],
    }
    return fill(CODE, F64, values)
