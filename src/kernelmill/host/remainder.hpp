// remainder.hpp - `%`, `//` and C's fmod of floats, all of them exact where the definition is; integers are in scalar.hpp.
#pragma once
#include "vmath_core.hpp"

namespace km {

// x mod y for 0 <= x < y * 2^53: a rounded quotient is at most one too large, and both remainders are exact.
KM_INL f64 near_remainder(f64 x, f64 y) {
  const f64 r = fma(-trunc(x / y), y, x), fixed = r < 0.0 ? r + y : r;
  return x < y ? x : fixed;
}
// The binary exponent of a positive finite x.
KM_INL i32 exponent_of(f64 x) {
  const bool tiny = x < 0x1p-1022;
  return i32(bit_cast<u64>(tiny ? x * 0x1p54 : x) >> 52) - 1023 - (tiny ? 54 : 0);
}
// x mod y for finite x and y > 0: 51 bits of the quotient a turn.
KM_COLD inline f64 far_remainder(f64 x, f64 y) {
  const i32 bottom = exponent_of(y);
  while (x >= y) {
    const i32 gap = exponent_of(x) - bottom, up = gap > 51 ? gap - 51 : 0, half = up / 2;
    const f64 scaled = y * bit_cast<f64>(u64(half + 1023) << 52) * bit_cast<f64>(u64(up - half + 1023) << 52);
    x = near_remainder(x, scaled);
  }
  return x;
}
// C's fmod: exact.  The branch is taken for quotients above 2^53, infinities, NaN and y == 0.
KM_INL f64 c_fmod(f64 a, f64 b) {
  const f64 x = fabs(a), y = fabs(b);
  f64 r = near_remainder(x, y);
  if (KM_UNLIKELY(!(x < y * 0x1p53))) r = ((x - x == 0.0) & (y > 0.0)) ? far_remainder(x, y) : __builtin_nan("");
  return copysign(r, a);
}
KM_INL f32 c_fmod(f32 a, f32 b) { return f32(c_fmod(f64(a), f64(b))); }

template <class F> KM_INL F float_mod(F a, F b) {
  const F r = c_fmod(a, b), fixed = (r < F(0)) != (b < F(0)) ? r + b : r;
  return r == F(0) ? copysign(F(0), b) : fixed;
}
KM_INL f32 mod(f32 a, f32 b) { return float_mod(a, b); }
KM_INL f64 mod(f64 a, f64 b) { return float_mod(a, b); }

template <class F> KM_INL F float_floordiv(F a, F b) {
  const F m = c_fmod(a, b), whole = (a - m) / b;
  const F q = ((m != F(0)) & ((m < F(0)) != (b < F(0)))) ? whole - F(1) : whole;
  const F f = floor(q), nearest = q - f > F(0.5) ? f + F(1) : f;
  return b == F(0) ? a / b : (q == F(0) ? copysign(F(0), a / b) : nearest);
}
KM_INL f32 floordiv(f32 a, f32 b) { return float_floordiv(a, b); }
KM_INL f64 floordiv(f64 a, f64 b) { return float_floordiv(a, b); }

}  // namespace km
