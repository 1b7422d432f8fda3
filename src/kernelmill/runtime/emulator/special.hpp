// special.hpp - functions that CUDA has and C has not: norms, inverses of error functions, Bessel functions. All in double.
#pragma once
#include "device.hpp"

namespace km_emu {

// The inverse of erfc on (0, 2), by Halley's steps on the side where erfc is small.
inline double inverse_erfc(double x) {
  if (!(x >= 0 && x <= 2)) return __builtin_nan("");
  if (x == 0) return __builtin_inf();
  if (x == 1) return 0;
  if (x == 2) return -__builtin_inf();
  if (x > 1) return -inverse_erfc(2 - x);
  const double t = __builtin_sqrt(-2 * __builtin_log(x / 2));
  double y = 0.70711 * (t - (2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)));
  for (int i = 0; i < 4; i++) {
    const double error = __builtin_erfc(y) - x;
    const double slope = 1.1283791670955126 * __builtin_exp(-y * y);
    if (slope == 0) break;
    y += error / (slope - y * error);
  }
  return y;
}
inline double inverse_erf(double x) {
  if (__builtin_fabs(x) > 0.5) return x > 0 ? inverse_erfc(1 - x) : -inverse_erfc(1 + x);
  double y = 0.886226925452758 * x;
  for (int i = 0; i < 6; i++) {
    const double error = __builtin_erf(y) - x, slope = 1.1283791670955126 * __builtin_exp(-y * y);
    y -= error / (slope + y * error);
  }
  return y;
}
inline double scaled_erfc(double x) {
  if (x < 25) return __builtin_exp(x * x) * __builtin_erfc(x);
  const double s = 1 / (x * x);
  return 0.5641895835477563 / x * (1 - s / 2 * (1 - 1.5 * s));
}
inline double modified_bessel(double x, int order) {
  const double square = x * x / 4;
  double term = order ? x / 2 : 1, sum = term;
  for (int k = 1; k < 2000 && term > 1e-17 * sum; k++) sum += term *= square / ((double)k * (k + order));
  return sum;
}
inline double norm_of(int n, const float* v) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)v[i] * v[i];
  return __builtin_sqrt(sum);
}
inline double norm_of(int n, const double* v) {
  double made = 0;
  for (int i = 0; i < n; i++) made = __builtin_hypot(made, v[i]);
  return made;
}

}  // namespace km_emu

#define KM_EMU_SPECIAL(name, expression)                                     \
  KM_EMU_INLINE double name(double x) { return expression; }                 \
  KM_EMU_INLINE float name##f(float single) {                                \
    const double x = single;                                                 \
    return (float)(expression);                                              \
  }                                                                          \
  KM_EMU_INLINE float name(float x) { return name##f(x); }
KM_EMU_SPECIAL(erfinv, km_emu::inverse_erf(x))
KM_EMU_SPECIAL(erfcinv, km_emu::inverse_erfc(x))
KM_EMU_SPECIAL(erfcx, km_emu::scaled_erfc(x))
KM_EMU_SPECIAL(normcdfinv, -1.4142135623730951 * km_emu::inverse_erfc(2 * x))
KM_EMU_SPECIAL(cyl_bessel_i0, km_emu::modified_bessel(__builtin_fabs(x), 0))
KM_EMU_SPECIAL(cyl_bessel_i1, x < 0 ? -km_emu::modified_bessel(-x, 1) : km_emu::modified_bessel(x, 1))
#undef KM_EMU_SPECIAL
KM_EMU_INLINE float norm4df(float a, float b, float c, float d) { return __builtin_sqrtf(a * a + b * b + c * c + d * d); }
KM_EMU_INLINE float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
KM_EMU_INLINE double norm3d(double a, double b, double c) { return __builtin_hypot(__builtin_hypot(a, b), c); }
KM_EMU_INLINE double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
KM_EMU_INLINE double norm4d(double a, double b, double c, double d) {
  return __builtin_hypot(__builtin_hypot(a, b), __builtin_hypot(c, d));
}
KM_EMU_INLINE double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
KM_EMU_INLINE float rhypotf(float a, float b) { return (float)(1.0 / __builtin_hypot((double)a, (double)b)); }
KM_EMU_INLINE double rhypot(double a, double b) { return 1.0 / __builtin_hypot(a, b); }
KM_EMU_INLINE float normf(int n, const float* v) { return (float)km_emu::norm_of(n, v); }
KM_EMU_INLINE float rnormf(int n, const float* v) { return (float)(1.0 / km_emu::norm_of(n, v)); }
KM_EMU_INLINE double norm(int n, const double* v) { return km_emu::norm_of(n, v); }
KM_EMU_INLINE double rnorm(int n, const double* v) { return 1.0 / km_emu::norm_of(n, v); }
KM_EMU_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
KM_EMU_INLINE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
