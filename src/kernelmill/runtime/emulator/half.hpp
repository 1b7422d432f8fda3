// half.hpp - __half, __nv_bfloat16, their pairs, and the intrinsics on them. Everything is computed wider and rounded once.
#pragma once
#include "atomics.hpp"
#include "half_bits.hpp"
#include "integers.hpp"
#include "math.hpp"

// The types: 16 bits, converted from every number and to float, as in CUDA.
#define KM_EMU_HALF(T, from_bits, to_bits)                                                       \
  struct T {                                                                                     \
    unsigned short __x;                                                                          \
    T() = default;                                                                               \
    KM_EMU_INLINE T(float v) : __x(km_emu::to_bits(v)) {}                                        \
    KM_EMU_INLINE T(double v) : __x(km_emu::to_bits(v)) {}                                       \
    KM_EMU_INLINE T(int v) : T((double)v) {}                                                     \
    KM_EMU_INLINE T(unsigned v) : T((double)v) {}                                                \
    KM_EMU_INLINE T(long v) : T((double)v) {}                                                    \
    KM_EMU_INLINE T(unsigned long v) : T((double)v) {}                                           \
    KM_EMU_INLINE T(long long v) : T((double)v) {}                                               \
    KM_EMU_INLINE T(unsigned long long v) : T((double)v) {}                                      \
    KM_EMU_INLINE operator float() const { return km_emu::from_bits(__x); }                      \
    KM_EMU_INLINE explicit operator double() const { return (double)km_emu::from_bits(__x); }    \
    KM_EMU_INLINE explicit operator int() const { return (int)km_emu::from_bits(__x); }          \
    KM_EMU_INLINE explicit operator unsigned() const { return (unsigned)km_emu::from_bits(__x); } \
    KM_EMU_INLINE explicit operator bool() const { return (__x & 0x7fff) != 0; }                 \
  };
namespace km_emu {
KM_EMU_INLINE u16 brain_bits(double value) { return brain_bits((float)value); }
}  // namespace km_emu
KM_EMU_HALF(__half, float_of_half_bits, half_bits)
KM_EMU_HALF(__nv_bfloat16, float_of_brain_bits, brain_bits)
#undef KM_EMU_HALF
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  KM_EMU_INLINE __half2(__half a, __half b) : x(a), y(b) {}
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  KM_EMU_INLINE __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

namespace km_emu {
template <> constexpr bool is_float<__half> = true;
template <> constexpr bool is_float<__nv_bfloat16> = true;
template <> constexpr bool is_float<__half2> = true;
template <> constexpr bool is_float<__nv_bfloat162> = true;
}  // namespace km_emu

// One operation of two, on single values and on pairs.
#define KM_EMU_BINARY(T, T2, op, name, name2)                                                       \
  KM_EMU_INLINE T operator op(T a, T b) { return T((float)a op(float) b); }                         \
  KM_EMU_INLINE T& operator op##=(T& a, T b) { return a = a op b; }                                 \
  KM_EMU_INLINE T name(T a, T b) { return a op b; }                                                 \
  KM_EMU_INLINE T name##_rn(T a, T b) { return a op b; }                                            \
  KM_EMU_INLINE T2 operator op(T2 a, T2 b) { return T2(a.x op b.x, a.y op b.y); }                   \
  KM_EMU_INLINE T2& operator op##=(T2& a, T2 b) { return a = a op b; }                              \
  KM_EMU_INLINE T2 name2(T2 a, T2 b) { return a op b; }
#define KM_EMU_COMPARE(T, T2, op, name, name2)                                                      \
  KM_EMU_INLINE bool operator op(T a, T b) { return (float)a op(float) b; }                         \
  KM_EMU_INLINE bool name(T a, T b) { return (float)a op(float) b; }                                \
  KM_EMU_INLINE T2 name2(T2 a, T2 b) { return T2(T(a.x op b.x ? 1.0f : 0.0f), T(a.y op b.y ? 1.0f : 0.0f)); }
#define KM_EMU_UNARY(T, T2, name, name2, expression)                                                \
  KM_EMU_INLINE T name(T v) {                                                                       \
    const float x = (float)v;                                                                       \
    return T(expression);                                                                           \
  }                                                                                                 \
  KM_EMU_INLINE T2 name2(T2 v) { return T2(name(v.x), name(v.y)); }
#define KM_EMU_ARITHMETIC(T, T2)                                                                    \
  KM_EMU_BINARY(T, T2, +, __hadd, __hadd2)                                                          \
  KM_EMU_BINARY(T, T2, -, __hsub, __hsub2)                                                          \
  KM_EMU_BINARY(T, T2, *, __hmul, __hmul2)                                                          \
  KM_EMU_BINARY(T, T2, /, __hdiv, __h2div)                                                          \
  KM_EMU_COMPARE(T, T2, ==, __heq, __heq2)                                                          \
  KM_EMU_COMPARE(T, T2, !=, __hne, __hne2)                                                          \
  KM_EMU_COMPARE(T, T2, <, __hlt, __hlt2)                                                           \
  KM_EMU_COMPARE(T, T2, <=, __hle, __hle2)                                                          \
  KM_EMU_COMPARE(T, T2, >, __hgt, __hgt2)                                                           \
  KM_EMU_COMPARE(T, T2, >=, __hge, __hge2)                                                          \
  KM_EMU_INLINE T operator-(T a) { return T(-(float)a); }                                           \
  KM_EMU_INLINE T2 operator-(T2 a) { return T2(-a.x, -a.y); }                                       \
  KM_EMU_UNARY(T, T2, __hneg, __hneg2, -x)                                                          \
  KM_EMU_UNARY(T, T2, __habs, __habs2, __builtin_fabsf(x))                                          \
  KM_EMU_UNARY(T, T2, hsqrt, h2sqrt, __builtin_sqrtf(x))                                            \
  KM_EMU_UNARY(T, T2, hrsqrt, h2rsqrt, 1.0 / __builtin_sqrt((double)x))                             \
  KM_EMU_UNARY(T, T2, hrcp, h2rcp, 1.0 / (double)x)                                                 \
  KM_EMU_UNARY(T, T2, hexp, h2exp, __builtin_expf(x))                                               \
  KM_EMU_UNARY(T, T2, hexp2, h2exp2, __builtin_exp2f(x))                                            \
  KM_EMU_UNARY(T, T2, hexp10, h2exp10, __builtin_powf(10.0f, x))                                    \
  KM_EMU_UNARY(T, T2, hlog, h2log, __builtin_logf(x))                                               \
  KM_EMU_UNARY(T, T2, hlog2, h2log2, __builtin_log2f(x))                                            \
  KM_EMU_UNARY(T, T2, hlog10, h2log10, __builtin_log10f(x))                                         \
  KM_EMU_UNARY(T, T2, hsin, h2sin, __builtin_sinf(x))                                               \
  KM_EMU_UNARY(T, T2, hcos, h2cos, __builtin_cosf(x))                                               \
  KM_EMU_UNARY(T, T2, htanh, h2tanh, __builtin_tanhf(x))                                            \
  KM_EMU_UNARY(T, T2, hfloor, h2floor, __builtin_floorf(x))                                         \
  KM_EMU_UNARY(T, T2, hceil, h2ceil, __builtin_ceilf(x))                                            \
  KM_EMU_UNARY(T, T2, htrunc, h2trunc, __builtin_truncf(x))                                         \
  KM_EMU_UNARY(T, T2, hrint, h2rint, __builtin_rintf(x))                                            \
  KM_EMU_INLINE bool __hisnan(T a) { return (float)a != (float)a; }                                 \
  KM_EMU_INLINE int __hisinf(T a) { return __builtin_isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; } \
  KM_EMU_INLINE T __hmax(T a, T b) { return T(__builtin_fmaxf((float)a, (float)b)); }               \
  KM_EMU_INLINE T __hmin(T a, T b) { return T(__builtin_fminf((float)a, (float)b)); }               \
  KM_EMU_INLINE T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }           \
  KM_EMU_INLINE T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }           \
  KM_EMU_INLINE T max(T a, T b) { return __hmax(a, b); }                                            \
  KM_EMU_INLINE T min(T a, T b) { return __hmin(a, b); }                                            \
  KM_EMU_INLINE T __hfma(T a, T b, T c) {                                                           \
    return T(__builtin_fma((double)(float)a, (double)(float)b, (double)(float)c));                  \
  }                                                                                                 \
  KM_EMU_INLINE T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
KM_EMU_ARITHMETIC(__half, __half2)
KM_EMU_ARITHMETIC(__nv_bfloat16, __nv_bfloat162)
#undef KM_EMU_ARITHMETIC
#undef KM_EMU_UNARY
#undef KM_EMU_COMPARE
#undef KM_EMU_BINARY

// ---- conversions, by the names that CUDA has for each type ----------------------------------------------------------

KM_EMU_INLINE __half __float2half(float v) { return __half(v); }
KM_EMU_INLINE __half __float2half_rn(float v) { return __half(v); }
KM_EMU_INLINE __half __double2half(double v) { return __half(v); }
KM_EMU_INLINE float __half2float(__half v) { return (float)v; }
KM_EMU_INLINE __half2 __float2half2_rn(float v) { return __half2(__half(v), __half(v)); }
KM_EMU_INLINE __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
KM_EMU_INLINE __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
KM_EMU_INLINE float2 __half22float2(__half2 v) { return float2{(float)v.x, (float)v.y}; }
KM_EMU_INLINE __half2 __half2half2(__half v) { return __half2(v, v); }
KM_EMU_INLINE __half2 make_half2(__half a, __half b) { return __half2(a, b); }
KM_EMU_INLINE __half __ushort_as_half(unsigned short v) { return __builtin_bit_cast(__half, v); }
KM_EMU_INLINE __half __short_as_half(short v) { return __builtin_bit_cast(__half, v); }
KM_EMU_INLINE unsigned short __half_as_ushort(__half v) { return v.__x; }
KM_EMU_INLINE short __half_as_short(__half v) { return (short)v.__x; }

KM_EMU_INLINE __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
KM_EMU_INLINE __nv_bfloat16 __float2bfloat16_rn(float v) { return __nv_bfloat16(v); }
KM_EMU_INLINE __nv_bfloat16 __double2bfloat16(double v) { return __nv_bfloat16(v); }
KM_EMU_INLINE float __bfloat162float(__nv_bfloat16 v) { return (float)v; }
KM_EMU_INLINE __nv_bfloat162 __float2bfloat162_rn(float v) { return __nv_bfloat162(v, v); }
KM_EMU_INLINE __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(a, b); }
KM_EMU_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(v.x, v.y); }
KM_EMU_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return float2{(float)v.x, (float)v.y}; }
KM_EMU_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return __nv_bfloat162(v, v); }
KM_EMU_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
KM_EMU_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __builtin_bit_cast(__nv_bfloat16, v); }
KM_EMU_INLINE __nv_bfloat16 __short_as_bfloat16(short v) { return __builtin_bit_cast(__nv_bfloat16, v); }
KM_EMU_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.__x; }
KM_EMU_INLINE short __bfloat16_as_short(__nv_bfloat16 v) { return (short)v.__x; }

#define KM_EMU_PAIRS(T, T2, low_half, high_half, halves)                                   \
  KM_EMU_INLINE T low_half(T2 v) { return v.x; }                                           \
  KM_EMU_INLINE T high_half(T2 v) { return v.y; }                                          \
  KM_EMU_INLINE T2 halves(T a, T b) { return T2(a, b); }                                   \
  KM_EMU_INLINE float __low2float(T2 v) { return (float)v.x; }                             \
  KM_EMU_INLINE float __high2float(T2 v) { return (float)v.y; }                            \
  KM_EMU_INLINE T2 __lowhigh2highlow(T2 v) { return T2(v.y, v.x); }
KM_EMU_PAIRS(__half, __half2, __low2half, __high2half, __halves2half2)
KM_EMU_PAIRS(__nv_bfloat16, __nv_bfloat162, __low2bfloat16, __high2bfloat16, __halves2bfloat162)
#undef KM_EMU_PAIRS
#define KM_EMU_MORE(T, T2)                                                                     \
  KM_EMU_INLINE T __hfma_relu(T a, T b, T c) { return __hmax(__hfma(a, b, c), T(0.0f)); }      \
  KM_EMU_INLINE T2 __hfma2_relu(T2 a, T2 b, T2 c) { return __hmax2(__hfma2(a, b, c), T2(T(0.0f), T(0.0f))); } \
  KM_EMU_INLINE T2 __hcmadd(T2 a, T2 b, T2 c) {                                                \
    return T2(__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))); \
  }                                                                                            \
  KM_EMU_INLINE T __hadd_sat(T a, T b) { return __hmin(__hmax(a + b, T(0.0f)), T(1.0f)); }     \
  KM_EMU_INLINE T __hsub_sat(T a, T b) { return __hmin(__hmax(a - b, T(0.0f)), T(1.0f)); }     \
  KM_EMU_INLINE T __hmul_sat(T a, T b) { return __hmin(__hmax(a * b, T(0.0f)), T(1.0f)); }     \
  KM_EMU_INLINE T __hfma_sat(T a, T b, T c) { return __hmin(__hmax(__hfma(a, b, c), T(0.0f)), T(1.0f)); } \
  KM_EMU_INLINE T2 __hadd2_rn(T2 a, T2 b) { return a + b; }                                    \
  KM_EMU_INLINE T2 __hsub2_rn(T2 a, T2 b) { return a - b; }                                    \
  KM_EMU_INLINE T2 __hmul2_rn(T2 a, T2 b) { return a * b; }                                    \
  KM_EMU_INLINE T2 __hisnan2(T2 a) { return T2(T(__hisnan(a.x) ? 1.0f : 0.0f), T(__hisnan(a.y) ? 1.0f : 0.0f)); }
#define KM_EMU_BOTH(T2, name, op)                                                              \
  KM_EMU_INLINE bool __hb##name##2(T2 a, T2 b) { return a.x op b.x && a.y op b.y; }            \
  KM_EMU_INLINE unsigned __h##name##2_mask(T2 a, T2 b) {                                       \
    return (a.x op b.x ? 0xffffu : 0u) | (a.y op b.y ? 0xffff0000u : 0u);                      \
  }
#define KM_EMU_BOTHS(T, T2)                                                                    \
  KM_EMU_MORE(T, T2)                                                                           \
  KM_EMU_BOTH(T2, eq, ==) KM_EMU_BOTH(T2, ne, !=) KM_EMU_BOTH(T2, lt, <)                       \
  KM_EMU_BOTH(T2, le, <=) KM_EMU_BOTH(T2, gt, >) KM_EMU_BOTH(T2, ge, >=)
KM_EMU_BOTHS(__half, __half2)
KM_EMU_BOTHS(__nv_bfloat16, __nv_bfloat162)
#undef KM_EMU_BOTHS
#undef KM_EMU_BOTH
#undef KM_EMU_MORE
// Integers and 16-bit floats, by the names of their types.
#define KM_EMU_INTEGER(name, I)                                                                              \
  KM_EMU_INLINE I __half2##name##_rn(__half v) { return km_emu::saturated<I>(__builtin_rint((float)v)); }    \
  KM_EMU_INLINE I __half2##name##_rz(__half v) { return km_emu::saturated<I>(__builtin_trunc((float)v)); }   \
  KM_EMU_INLINE I __half2##name##_ru(__half v) { return km_emu::saturated<I>(__builtin_ceil((float)v)); }    \
  KM_EMU_INLINE I __half2##name##_rd(__half v) { return km_emu::saturated<I>(__builtin_floor((float)v)); }   \
  KM_EMU_INLINE I __bfloat162##name##_rn(__nv_bfloat16 v) { return km_emu::saturated<I>(__builtin_rint((float)v)); }  \
  KM_EMU_INLINE I __bfloat162##name##_rz(__nv_bfloat16 v) { return km_emu::saturated<I>(__builtin_trunc((float)v)); } \
  KM_EMU_INLINE I __bfloat162##name##_ru(__nv_bfloat16 v) { return km_emu::saturated<I>(__builtin_ceil((float)v)); }  \
  KM_EMU_INLINE I __bfloat162##name##_rd(__nv_bfloat16 v) { return km_emu::saturated<I>(__builtin_floor((float)v)); } \
  KM_EMU_INLINE __half __##name##2half_rn(I v) { return __half((double)v); }                                 \
  KM_EMU_INLINE __nv_bfloat16 __##name##2bfloat16_rn(I v) { return __nv_bfloat16((double)v); }
KM_EMU_INTEGER(int, int)
KM_EMU_INTEGER(uint, unsigned)
KM_EMU_INTEGER(short, short)
KM_EMU_INTEGER(ushort, unsigned short)
KM_EMU_INTEGER(ll, long long)
KM_EMU_INTEGER(ull, unsigned long long)
#undef KM_EMU_INTEGER
KM_EMU_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return __nv_bfloat162(v.x, v.x); }
KM_EMU_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return __nv_bfloat162(v.y, v.y); }
KM_EMU_INLINE __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
KM_EMU_INLINE __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }
KM_EMU_INLINE __half2 __low2half2(__half2 v) { return __half2(v.x, v.x); }
KM_EMU_INLINE __half2 __high2half2(__half2 v) { return __half2(v.y, v.y); }
KM_EMU_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
KM_EMU_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
