// lanes.hpp - intrinsics on the halves and bytes of a word, and arithmetic that is rounded in a direction. Others are in
// integers.hpp and math.hpp.
#pragma once
#include <fenv.h>

#include "device.hpp"

namespace km_emu {

// The lanes of two words, of `Bits` each; a result keeps its low bits.
template <int Bits, class F>
KM_EMU_INLINE unsigned by_lanes(unsigned a, unsigned b, F f) {
  constexpr unsigned mask = Bits == 8 ? 0xffu : 0xffffu;
  unsigned made = 0;
  for (int at = 0; at < 32; at += Bits) made |= ((unsigned)f(a >> at & mask, b >> at & mask) & mask) << at;
  return made;
}
template <int Bits> KM_EMU_INLINE int lane_value(unsigned lane) {
  return Bits == 8 ? (int)(signed char)lane : (int)(short)lane;
}
template <int Bits> constexpr int lane_most = (1 << (Bits - 1)) - 1;
KM_EMU_INLINE int held(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

}  // namespace km_emu

// Signed lanes are x and y, unsigned ones u and v; M is the largest signed lane, U the largest unsigned one.
#define KM_EMU_LANES(N, Bits, name, expression) \
  KM_EMU_INLINE unsigned name##N(unsigned a, unsigned b) { \
    return km_emu::by_lanes<Bits>(a, b, [](unsigned lane, unsigned other) { \
      const int u = (int)lane, v = (int)other, x = km_emu::lane_value<Bits>(lane), y = km_emu::lane_value<Bits>(other); \
      constexpr int M = km_emu::lane_most<Bits>, U = 2 * M + 1; \
      return (void)u, (void)v, (void)x, (void)y, (void)U, (expression); \
    }); \
  }
#define KM_EMU_ONE(N, Bits, name, expression) \
  KM_EMU_INLINE unsigned name##N(unsigned a) { \
    return km_emu::by_lanes<Bits>(a, a, [](unsigned lane, unsigned) { \
      const int x = km_emu::lane_value<Bits>(lane); \
      constexpr int M = km_emu::lane_most<Bits>; \
      return (void)M, (expression); \
    }); \
  }
#define KM_EMU_COMPARISON(N, Bits, name, test) \
  KM_EMU_LANES(N, Bits, __vcmp##name, (test) ? ~0 : 0) KM_EMU_LANES(N, Bits, __vset##name, (test) ? 1 : 0)
#define KM_EMU_SUM_OF(N, Bits, name, of) \
  KM_EMU_INLINE unsigned name##N(unsigned a, unsigned b) { \
    const unsigned lanes = of##N(a, b); \
    unsigned sum = 0; \
    for (int at = 0; at < 32; at += Bits) sum += lanes >> at & (Bits == 8 ? 255u : 65535u); \
    return sum; \
  }
#define KM_EMU_WORDS(N, Bits) \
  KM_EMU_LANES(N, Bits, __vadd, u + v) KM_EMU_LANES(N, Bits, __vsub, u - v) \
  KM_EMU_LANES(N, Bits, __vaddss, km_emu::held(x + y, -M - 1, M)) \
  KM_EMU_LANES(N, Bits, __vsubss, km_emu::held(x - y, -M - 1, M)) \
  KM_EMU_LANES(N, Bits, __vaddus, km_emu::held(u + v, 0, U)) KM_EMU_LANES(N, Bits, __vsubus, km_emu::held(u - v, 0, U)) \
  KM_EMU_LANES(N, Bits, __vavgs, (x + y + (x + y >= 0)) >> 1) KM_EMU_LANES(N, Bits, __vavgu, (u + v + 1) >> 1) \
  KM_EMU_LANES(N, Bits, __vhaddu, (u + v) >> 1) \
  KM_EMU_LANES(N, Bits, __vmaxs, x < y ? y : x) KM_EMU_LANES(N, Bits, __vmaxu, u < v ? v : u) \
  KM_EMU_LANES(N, Bits, __vmins, x < y ? x : y) KM_EMU_LANES(N, Bits, __vminu, u < v ? u : v) \
  KM_EMU_LANES(N, Bits, __vabsdiffs, x < y ? y - x : x - y) KM_EMU_LANES(N, Bits, __vabsdiffu, u < v ? v - u : u - v) \
  KM_EMU_ONE(N, Bits, __vabs, x < 0 ? -x : x) KM_EMU_ONE(N, Bits, __vabsss, x == -M - 1 ? M : x < 0 ? -x : x) \
  KM_EMU_ONE(N, Bits, __vneg, -x) KM_EMU_ONE(N, Bits, __vnegss, x == -M - 1 ? M : -x) \
  KM_EMU_COMPARISON(N, Bits, eq, u == v) KM_EMU_COMPARISON(N, Bits, ne, u != v) \
  KM_EMU_COMPARISON(N, Bits, ges, x >= y) KM_EMU_COMPARISON(N, Bits, geu, u >= v) \
  KM_EMU_COMPARISON(N, Bits, gts, x > y) KM_EMU_COMPARISON(N, Bits, gtu, u > v) \
  KM_EMU_COMPARISON(N, Bits, les, x <= y) KM_EMU_COMPARISON(N, Bits, leu, u <= v) \
  KM_EMU_COMPARISON(N, Bits, lts, x < y) KM_EMU_COMPARISON(N, Bits, ltu, u < v) \
  KM_EMU_SUM_OF(N, Bits, __vsads, __vabsdiffs) KM_EMU_SUM_OF(N, Bits, __vsadu, __vabsdiffu)
KM_EMU_WORDS(2, 16)
KM_EMU_WORDS(4, 8)
#undef KM_EMU_WORDS
#undef KM_EMU_SUM_OF
#undef KM_EMU_COMPARISON
#undef KM_EMU_ONE
#undef KM_EMU_LANES

#define KM_EMU_DOT(name, T, Short, Byte, first) \
  KM_EMU_INLINE T name(T a, T b, T c) { \
    for (int i = 0; i < 2; i++) c += (T)(Short)(a >> 16 * i) * (T)(Byte)(b >> 8 * (first + i)); \
    return c; \
  }
KM_EMU_DOT(__dp2a_lo, int, short, signed char, 0)
KM_EMU_DOT(__dp2a_hi, int, short, signed char, 2)
KM_EMU_DOT(__dp2a_lo, unsigned, unsigned short, unsigned char, 0)
KM_EMU_DOT(__dp2a_hi, unsigned, unsigned short, unsigned char, 2)
#define KM_EMU_DOT_OF(name, T, Pair, Quad, p, q) \
  KM_EMU_INLINE T name(Pair a, Quad b, T c) { return c + (T)(a.x * b.p) + (T)(a.y * b.q); }
KM_EMU_DOT_OF(__dp2a_lo, int, short2, char4, x, y)
KM_EMU_DOT_OF(__dp2a_hi, int, short2, char4, z, w)
KM_EMU_DOT_OF(__dp2a_lo, unsigned, ushort2, uchar4, x, y)
KM_EMU_DOT_OF(__dp2a_hi, unsigned, ushort2, uchar4, z, w)
#undef KM_EMU_DOT_OF
#undef KM_EMU_DOT

// ---- rounded upwards, downwards, towards zero -----------------------------------------------------------------------

namespace km_emu {
// Hides a number from the compiler, which knows nothing of directions.
template <class T> KM_EMU_INLINE T opaque_number(T x) {
#if defined(__x86_64__)
  __asm__ volatile("" : "+x"(x)::"memory");
#else
  __asm__ volatile("" : "+w"(x)::"memory");
#endif
  return x;
}
template <int Direction, class F, class... T> KM_EMU_INLINE auto directed(F f, T... values) {
  const int before = fegetround();
  fesetround(Direction);
  const auto made = opaque_number(f(opaque_number(values)...));
  fesetround(before);
  return made;
}
}  // namespace km_emu
#define KM_EMU_DIRECTED(T, name, parameters, values, ...) \
  KM_EMU_INLINE T name##_rz parameters { return km_emu::directed<FE_TOWARDZERO> values; } \
  KM_EMU_INLINE T name##_ru parameters { return km_emu::directed<FE_UPWARD> values; } \
  KM_EMU_INLINE T name##_rd parameters { return km_emu::directed<FE_DOWNWARD> values; }
#define KM_EMU_DIRECTIONS(T, p, root, multiply_add) \
  KM_EMU_DIRECTED(T, __##p##add, (T a, T b), ([](T x, T y) { return x + y; }, a, b)) \
  KM_EMU_DIRECTED(T, __##p##sub, (T a, T b), ([](T x, T y) { return x - y; }, a, b)) \
  KM_EMU_DIRECTED(T, __##p##mul, (T a, T b), ([](T x, T y) { return x * y; }, a, b)) \
  KM_EMU_DIRECTED(T, __##p##div, (T a, T b), ([](T x, T y) { return x / y; }, a, b)) \
  KM_EMU_DIRECTED(T, __##p##rcp, (T a), ([](T x) { return T(1) / x; }, a)) \
  KM_EMU_DIRECTED(T, __##p##sqrt, (T a), ([](T x) { return root(x); }, a))
KM_EMU_DIRECTIONS(float, f, __builtin_sqrtf, __builtin_fmaf)
KM_EMU_DIRECTIONS(double, d, __builtin_sqrt, __builtin_fma)
KM_EMU_DIRECTED(float, __fmaf, (float a, float b, float c),
                ([](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c))
KM_EMU_DIRECTED(double, __fma, (double a, double b, double c),
                ([](double x, double y, double z) { return __builtin_fma(x, y, z); }, a, b, c))
KM_EMU_DIRECTED(float, __double2float, (double a), ([](double x) { return (float)x; }, a))
KM_EMU_DIRECTED(float, __int2float, (int a), ([](double x) { return (float)x; }, (double)a))
KM_EMU_DIRECTED(float, __uint2float, (unsigned a), ([](double x) { return (float)x; }, (double)a))
#undef KM_EMU_DIRECTIONS
#undef KM_EMU_DIRECTED
