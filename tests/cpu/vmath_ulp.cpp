// Errors in ulp of arrays of results against a wider type: float32 against libm's float64, float64 against quad precision.
#include <math.h>
#include <quadmath.h>
#include <stdint.h>

typedef __float128 f128;

template <class T>
struct Format;
template <>
struct Format<float> {
  static constexpr int digits = 24, low = -125, high = 128;  // frexp exponents of the smallest normal, the largest
};
template <>
struct Format<double> {
  static constexpr int digits = 53, low = -1021, high = 1024;
};

static double frexp_of(double x, int* e) { return frexp(x, e); }
static f128 frexp_of(f128 x, int* e) { return frexpq(x, e); }
static double scale(double x, int e) { return ldexp(x, e); }
static f128 scale(f128 x, int e) { return ldexpq(x, e); }

// |got - want| in units of the last place of `want`; an infinity counts as the number after the largest finite one.
template <class T, class R>
static double ulp(T got, R want) {
  if (want != want || got != got) return (want != want) == (got != got) ? 0.0 : 1e30;
  const R top = scale((R)1, Format<T>::high);
  R g = (R)got, w = want;
  if (g > top) g = top;
  if (g < -top) g = -top;
  if (w > top) w = top;
  if (w < -top) w = -top;
  int e = 0;
  (void)frexp_of(w, &e);
  if (w == 0 || e < Format<T>::low) e = Format<T>::low;
  if (e > Format<T>::high) e = Format<T>::high;
  R d = g - w;
  if (d < 0) d = -d;
  const double units = (double)scale(d, Format<T>::digits - e);
  return got == 0 && want == 0 ? 0.0 : units;
}

template <class T, class R, class F>
static double worst(int64_t n, const T* got, int64_t* at, F reference) {
  double most = -1.0;
  for (int64_t i = 0; i < n; ++i) {
    const double error = ulp<T, R>(got[i], reference(i));
    if (error > most) {
      most = error;
      *at = i;
    }
  }
  return most;
}

#define ONE(name, wide, quad)                                                                          \
  extern "C" double ulp_##name##_f32(int64_t n, int64_t* at, const float* got, const float* x) {       \
    return worst<float, double>(n, got, at, [=](int64_t i) { return wide((double)x[i]); });            \
  }                                                                                                    \
  extern "C" double ulp_##name##_f64(int64_t n, int64_t* at, const double* got, const double* x) {     \
    return worst<double, f128>(n, got, at, [=](int64_t i) { return quad((f128)x[i]); });               \
  }
#define TWO(name, wide, quad)                                                                          \
  extern "C" double ulp_##name##_f32(int64_t n, int64_t* at, const float* got, const float* x,         \
                                     const float* y) {                                                 \
    return worst<float, double>(n, got, at, [=](int64_t i) { return wide((double)x[i], (double)y[i]); }); \
  }                                                                                                    \
  extern "C" double ulp_##name##_f64(int64_t n, int64_t* at, const double* got, const double* x,       \
                                     const double* y) {                                                \
    return worst<double, f128>(n, got, at, [=](int64_t i) { return quad((f128)x[i], (f128)y[i]); });   \
  }

static double rsqrt_(double x) { return 1 / sqrt(x); }
static f128 rsqrtq(f128 x) { return 1 / sqrtq(x); }
static double log_gamma(double x) { return lgamma(x); }
static f128 log_gammaq(f128 x) { return lgammaq(x); }

ONE(exp, exp, expq)
ONE(exp2, exp2, exp2q)
ONE(expm1, expm1, expm1q)
ONE(log, log, logq)
ONE(log2, log2, log2q)
ONE(log10, log10, log10q)
ONE(log1p, log1p, log1pq)
ONE(sin, sin, sinq)
ONE(cos, cos, cosq)
ONE(tan, tan, tanq)
ONE(asin, asin, asinq)
ONE(acos, acos, acosq)
ONE(atan, atan, atanq)
ONE(sinh, sinh, sinhq)
ONE(cosh, cosh, coshq)
ONE(tanh, tanh, tanhq)
ONE(asinh, asinh, asinhq)
ONE(acosh, acosh, acoshq)
ONE(atanh, atanh, atanhq)
ONE(sqrt, sqrt, sqrtq)
ONE(rsqrt, rsqrt_, rsqrtq)
ONE(cbrt, cbrt, cbrtq)
ONE(erf, erf, erfq)
ONE(erfc, erfc, erfcq)
ONE(tgamma, tgamma, tgammaq)
ONE(lgamma, log_gamma, log_gammaq)
TWO(pow, pow, powq)
TWO(atan2, atan2, atan2q)
TWO(hypot, hypot, hypotq)
