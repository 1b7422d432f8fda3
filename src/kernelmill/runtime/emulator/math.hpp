// math.hpp - the math functions of CUDA as global functions; they are those of the C library. The overloads are those of
// <cmath>, which takes time to read; a text that includes nothing heavy gets light ones (KM_EMU_LIGHT).
#pragma once
#include "thread.hpp"

#if !defined(KM_EMU_LIGHT)
#include <math.h>
#include <stdlib.h>
#else
#define KM_EMU_F1(name)                                                             \
  KM_EMU_INLINE float name##f(float x) { return __builtin_##name##f(x); }           \
  KM_EMU_INLINE float name(float x) { return __builtin_##name##f(x); }              \
  KM_EMU_INLINE double name(double x) { return __builtin_##name(x); }               \
  template <class I, km_emu::whole_only<I> = 0> KM_EMU_INLINE double name(I x) { return __builtin_##name((double)x); }
#define KM_EMU_F2(name)                                                                     \
  KM_EMU_INLINE float name##f(float x, float y) { return __builtin_##name##f(x, y); }       \
  KM_EMU_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }          \
  KM_EMU_INLINE double name(double x, double y) { return __builtin_##name(x, y); }          \
  template <class A, class B, km_emu::mixed_only<A, B> = 0>                                 \
  KM_EMU_INLINE double name(A x, B y) { return __builtin_##name((double)x, (double)y); }
namespace km_emu {
template <bool, class T> struct only {};
template <class T> struct only<true, T> { typedef T type; };
template <class T> constexpr bool is_whole = kind_of<T>::value >= boolean && kind_of<T>::value <= unsigned_integer;
template <class T> constexpr bool is_number = is_whole<T> || kind_of<T>::value == floating;
template <class T> using whole_only = typename only<is_whole<T>, int>::type;
template <class A, class B> struct alike { static constexpr bool value = false; };
template <class A> struct alike<A, A> { static constexpr bool value = true; };
template <class A, class B>
constexpr bool is_mixed = is_number<A> && is_number<B> && (!alike<A, B>::value || is_whole<A>);
template <class A, class B> using mixed_only = typename only<is_mixed<A, B>, int>::type;
}  // namespace km_emu
KM_EMU_F1(sqrt) KM_EMU_F1(cbrt) KM_EMU_F1(exp) KM_EMU_F1(exp2) KM_EMU_F1(expm1)
KM_EMU_F1(log) KM_EMU_F1(log2) KM_EMU_F1(log10) KM_EMU_F1(log1p) KM_EMU_F1(logb)
KM_EMU_F1(sin) KM_EMU_F1(cos) KM_EMU_F1(tan) KM_EMU_F1(asin) KM_EMU_F1(acos) KM_EMU_F1(atan)
KM_EMU_F1(sinh) KM_EMU_F1(cosh) KM_EMU_F1(tanh) KM_EMU_F1(asinh) KM_EMU_F1(acosh) KM_EMU_F1(atanh)
KM_EMU_F1(floor) KM_EMU_F1(ceil) KM_EMU_F1(trunc) KM_EMU_F1(round) KM_EMU_F1(rint) KM_EMU_F1(nearbyint)
KM_EMU_F1(fabs) KM_EMU_F1(erf) KM_EMU_F1(erfc) KM_EMU_F1(tgamma) KM_EMU_F1(lgamma)
KM_EMU_F2(pow) KM_EMU_F2(atan2) KM_EMU_F2(fmod) KM_EMU_F2(remainder) KM_EMU_F2(hypot) KM_EMU_F2(copysign)
KM_EMU_F2(fmin) KM_EMU_F2(fmax) KM_EMU_F2(fdim) KM_EMU_F2(nextafter)
#undef KM_EMU_F1
#undef KM_EMU_F2
KM_EMU_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KM_EMU_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KM_EMU_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
KM_EMU_INLINE float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
KM_EMU_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
KM_EMU_INLINE double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
KM_EMU_INLINE float frexpf(float x, int* e) { return __builtin_frexpf(x, e); }
KM_EMU_INLINE float frexp(float x, int* e) { return __builtin_frexpf(x, e); }
KM_EMU_INLINE double frexp(double x, int* e) { return __builtin_frexp(x, e); }
KM_EMU_INLINE float modff(float x, float* whole) { return __builtin_modff(x, whole); }
KM_EMU_INLINE float modf(float x, float* whole) { return __builtin_modff(x, whole); }
KM_EMU_INLINE double modf(double x, double* whole) { return __builtin_modf(x, whole); }
KM_EMU_INLINE int ilogbf(float x) { return __builtin_ilogbf(x); }
KM_EMU_INLINE int ilogb(double x) { return __builtin_ilogb(x); }
KM_EMU_INLINE long lrintf(float x) { return __builtin_lrintf(x); }
KM_EMU_INLINE long lrint(double x) { return __builtin_lrint(x); }
KM_EMU_INLINE long long llrintf(float x) { return __builtin_llrintf(x); }
KM_EMU_INLINE long long llrint(double x) { return __builtin_llrint(x); }
KM_EMU_INLINE long lroundf(float x) { return __builtin_lroundf(x); }
KM_EMU_INLINE long lround(double x) { return __builtin_lround(x); }
KM_EMU_INLINE int abs(int x) { return x < 0 ? (int)-(unsigned)x : x; }
KM_EMU_INLINE long abs(long x) { return x < 0 ? (long)-(unsigned long)x : x; }
KM_EMU_INLINE long long abs(long long x) { return x < 0 ? (long long)-(unsigned long long)x : x; }
KM_EMU_INLINE long labs(long x) { return abs(x); }
KM_EMU_INLINE long long llabs(long long x) { return abs(x); }
KM_EMU_INLINE float abs(float x) { return __builtin_fabsf(x); }
KM_EMU_INLINE double abs(double x) { return __builtin_fabs(x); }
template <class T> KM_EMU_INLINE bool isnan(T x) { return x != x; }
template <class T> KM_EMU_INLINE bool isinf(T x) { return __builtin_isinf(x) != 0; }
template <class T> KM_EMU_INLINE bool isfinite(T x) { return __builtin_isfinite(x) != 0; }
template <class T> KM_EMU_INLINE bool signbit(T x) { return __builtin_signbit(x) != 0; }
KM_EMU_INLINE float nanf(const char*) { return __builtin_nanf(""); }
KM_EMU_INLINE double nan(const char*) { return __builtin_nan(""); }
#endif

// ---- what CUDA adds to C --------------------------------------------------------------------------------------------

#define KM_EMU_PAIR(T)                                                     \
  KM_EMU_INLINE T min(T a, T b) { return b < a ? b : a; }                  \
  KM_EMU_INLINE T max(T a, T b) { return a < b ? b : a; }
KM_EMU_PAIR(int)
KM_EMU_PAIR(unsigned)
KM_EMU_PAIR(long)
KM_EMU_PAIR(unsigned long)
KM_EMU_PAIR(long long)
KM_EMU_PAIR(unsigned long long)
#undef KM_EMU_PAIR
KM_EMU_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
KM_EMU_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
KM_EMU_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
KM_EMU_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }
KM_EMU_INLINE double min(float a, double b) { return min((double)a, b); }
KM_EMU_INLINE double min(double a, float b) { return min(a, (double)b); }
KM_EMU_INLINE double max(float a, double b) { return max((double)a, b); }
KM_EMU_INLINE double max(double a, float b) { return max(a, (double)b); }
#define KM_EMU_MIXED(A, B, T)                                              \
  KM_EMU_INLINE T min(A a, B b) { return min((T)a, (T)b); }                \
  KM_EMU_INLINE T min(B a, A b) { return min((T)a, (T)b); }                \
  KM_EMU_INLINE T max(A a, B b) { return max((T)a, (T)b); }                \
  KM_EMU_INLINE T max(B a, A b) { return max((T)a, (T)b); }
KM_EMU_MIXED(int, unsigned, unsigned)
KM_EMU_MIXED(long, unsigned long, unsigned long)
KM_EMU_MIXED(long long, unsigned long long, unsigned long long)
KM_EMU_MIXED(int, long, long)
KM_EMU_MIXED(int, long long, long long)
#undef KM_EMU_MIXED
template <class T> KM_EMU_INLINE T umin(T a, T b) { return min(a, b); }
template <class T> KM_EMU_INLINE T umax(T a, T b) { return max(a, b); }
template <class T> KM_EMU_INLINE T llmin(T a, T b) { return min(a, b); }
template <class T> KM_EMU_INLINE T llmax(T a, T b) { return max(a, b); }

// Of half turns; exact where they are.
namespace km_emu {
KM_EMU_INLINE double half_turns(double x) { return x - 2 * __builtin_rint(x / 2); }
KM_EMU_INLINE double sine_of_turns(double x) {
  double r = half_turns(x);
  if (r > 0.5) r = 1 - r;
  if (r < -0.5) r = -1 - r;
  return __builtin_sin(3.14159265358979323846 * r);
}
KM_EMU_INLINE double cosine_of_turns(double x) { return sine_of_turns(0.5 - __builtin_fabs(half_turns(x))); }
}  // namespace km_emu
#define KM_EMU_EXTRA(name, single, precise)                                \
  KM_EMU_INLINE float name##f(float x) { return single; }                  \
  KM_EMU_INLINE float name(float x) { return single; }                     \
  KM_EMU_INLINE double name(double x) { return precise; }
KM_EMU_EXTRA(rsqrt, 1.0f / __builtin_sqrtf(x), 1.0 / __builtin_sqrt(x))
KM_EMU_EXTRA(rcbrt, 1.0f / __builtin_cbrtf(x), 1.0 / __builtin_cbrt(x))
KM_EMU_EXTRA(sinpi, (float)km_emu::sine_of_turns(x), km_emu::sine_of_turns(x))
KM_EMU_EXTRA(cospi, (float)km_emu::cosine_of_turns(x), km_emu::cosine_of_turns(x))
KM_EMU_EXTRA(normcdf, 0.5f * __builtin_erfcf(-0.70710678f * x), 0.5 * __builtin_erfc(-0.70710678118654752440 * x))
#undef KM_EMU_EXTRA
#if !defined(_GNU_SOURCE) || defined(KM_EMU_LIGHT)
KM_EMU_INLINE float exp10f(float x) { return __builtin_powf(10.0f, x); }
KM_EMU_INLINE double exp10(double x) { return __builtin_pow(10.0, x); }
KM_EMU_INLINE void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
KM_EMU_INLINE void sincos(double x, double* s, double* c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
#endif
KM_EMU_INLINE float fdividef(float a, float b) { return a / b; }
KM_EMU_INLINE float norm3df(float a, float b, float c) { return __builtin_sqrtf(a * a + b * b + c * c); }
KM_EMU_INLINE float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }

// The quick forms of the chip, with the accuracy of the slow ones.
KM_EMU_INLINE float __expf(float x) { return __builtin_expf(x); }
KM_EMU_INLINE float __exp10f(float x) { return __builtin_powf(10.0f, x); }
KM_EMU_INLINE float __logf(float x) { return __builtin_logf(x); }
KM_EMU_INLINE float __log2f(float x) { return __builtin_log2f(x); }
KM_EMU_INLINE float __log10f(float x) { return __builtin_log10f(x); }
KM_EMU_INLINE float __powf(float x, float y) { return __builtin_powf(x, y); }
KM_EMU_INLINE float __sinf(float x) { return __builtin_sinf(x); }
KM_EMU_INLINE float __cosf(float x) { return __builtin_cosf(x); }
KM_EMU_INLINE float __tanf(float x) { return __builtin_tanf(x); }
KM_EMU_INLINE float __tanhf(float x) { return __builtin_tanhf(x); }
KM_EMU_INLINE void __sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
KM_EMU_INLINE float __fdividef(float a, float b) { return a / b; }
KM_EMU_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// One rounding each, never contracted: the barrier hides the product from a compiler that may contract.
namespace km_emu {
template <class T> KM_EMU_INLINE T apart(T x) {
#if defined(__x86_64__)
  __asm__("" : "+x"(x));
#else
  __asm__("" : "+w"(x));
#endif
  return x;
}
}  // namespace km_emu
KM_EMU_INLINE float __fadd_rn(float a, float b) { return km_emu::apart(a) + km_emu::apart(b); }
KM_EMU_INLINE float __fsub_rn(float a, float b) { return km_emu::apart(a) - km_emu::apart(b); }
#if defined(__FP_FAST_FMAF) && !defined(KM_EMU_CONTRACT)
KM_EMU_INLINE float __fmul_rn(float a, float b) { return a * b; }
KM_EMU_INLINE double __dmul_rn(double a, double b) { return a * b; }
#else
KM_EMU_INLINE float __fmul_rn(float a, float b) { return km_emu::apart(a * b); }
KM_EMU_INLINE double __dmul_rn(double a, double b) { return km_emu::apart(a * b); }
#endif
KM_EMU_INLINE float __fdiv_rn(float a, float b) { return a / b; }
KM_EMU_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KM_EMU_INLINE float __frcp_rn(float x) { return 1.0f / x; }
KM_EMU_INLINE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
KM_EMU_INLINE float __frsqrt_rn(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
KM_EMU_INLINE double __dadd_rn(double a, double b) { return km_emu::apart(a) + km_emu::apart(b); }
KM_EMU_INLINE double __dsub_rn(double a, double b) { return km_emu::apart(a) - km_emu::apart(b); }
KM_EMU_INLINE double __ddiv_rn(double a, double b) { return a / b; }
KM_EMU_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
KM_EMU_INLINE double __drcp_rn(double x) { return 1.0 / x; }
KM_EMU_INLINE double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
