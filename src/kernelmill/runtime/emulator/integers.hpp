// integers.hpp - integer intrinsics, conversions that are named after their rounding, casts of bits, and cached accesses.
#pragma once
#include "thread.hpp"

KM_EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
KM_EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
KM_EMU_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
KM_EMU_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
KM_EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
KM_EMU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
KM_EMU_INLINE unsigned __brev(unsigned x) {
  x = __builtin_bswap32(x);
  x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  return (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
}
KM_EMU_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
// The n-th set bit from `base` on, upwards for offset > 0 and downwards for offset < 0; all ones where there is none.
KM_EMU_INLINE unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  const int step = offset > 0 ? 1 : -1;
  int left = offset > 0 ? offset : -offset;
  for (int at = (int)base; at >= 0 && at < 32; at += step)
    if (mask >> at & 1 && --left == 0) return (unsigned)at;
  return ~0u;
}
KM_EMU_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
KM_EMU_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
KM_EMU_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
KM_EMU_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
KM_EMU_INLINE int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
KM_EMU_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
KM_EMU_INLINE unsigned __sad(int a, int b, unsigned c) { return (a < b ? (unsigned)b - a : (unsigned)a - b) + c; }
KM_EMU_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
KM_EMU_INLINE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
KM_EMU_INLINE int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
KM_EMU_INLINE unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
KM_EMU_INLINE unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b + 1) >> 1); }
KM_EMU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? high << by | low >> (32 - by) : high;
}
KM_EMU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? low >> by | high << (32 - by) : low;
}
KM_EMU_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? low : __funnelshift_l(low, high, by);
}
KM_EMU_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? high : __funnelshift_r(low, high, by);
}
KM_EMU_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)b << 32 | a;
  unsigned made = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned pick = selector >> 4 * i & 15;
    unsigned byte = (unsigned)(bytes >> 8 * (pick & 7)) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    made |= byte << 8 * i;
  }
  return made;
}

// Dot products of bytes, and of two halves with two bytes.
KM_EMU_INLINE int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
  return c;
}
KM_EMU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return c;
}
KM_EMU_INLINE int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
KM_EMU_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return c + (unsigned)(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w);
}

// ---- bits of floats -------------------------------------------------------------------------------------------------

#define KM_EMU_BITS(name, To, From) \
  KM_EMU_INLINE To name(From x) { return __builtin_bit_cast(To, x); }
KM_EMU_BITS(__float_as_int, int, float)
KM_EMU_BITS(__int_as_float, float, int)
KM_EMU_BITS(__float_as_uint, unsigned, float)
KM_EMU_BITS(__uint_as_float, float, unsigned)
KM_EMU_BITS(__double_as_longlong, long long, double)
KM_EMU_BITS(__longlong_as_double, double, long long)
#undef KM_EMU_BITS
KM_EMU_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
KM_EMU_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
KM_EMU_INLINE double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

// ---- conversions ----------------------------------------------------------------------------------------------------

namespace km_emu {
// As the chip converts: what does not fit becomes the nearest limit, a NaN 0 (for 64-bit integers, the bits of the top).
template <class To>
KM_EMU_INLINE To saturated(double x) {
  constexpr bool is_signed = To(-1) < To(0);
  constexpr To low = is_signed ? To(u64(1) << (8 * sizeof(To) - 1)) : To(0);
  constexpr To high = To(~low);
  constexpr double past = (is_signed ? 1.0 : 2.0) * (double)(u64(1) << (8 * sizeof(To) - 1));
  if (x != x) return sizeof(To) == 8 ? To(u64(1) << 63) : To(0);
  if (x >= past) return is_signed ? To(u64(low) - 1) : high;
  return x <= (is_signed ? -past : 0.0) ? low : To(x);
}
}  // namespace km_emu

#define KM_EMU_ROUND(name, To, From, rounded) \
  KM_EMU_INLINE To name(From x) { return km_emu::saturated<To>(rounded((double)x)); }
#define KM_EMU_ROUNDS(name, To, From)                        \
  KM_EMU_ROUND(name##_rn, To, From, __builtin_rint)          \
  KM_EMU_ROUND(name##_rz, To, From, __builtin_trunc)         \
  KM_EMU_ROUND(name##_ru, To, From, __builtin_ceil)          \
  KM_EMU_ROUND(name##_rd, To, From, __builtin_floor)
KM_EMU_ROUNDS(__float2int, int, float)
KM_EMU_ROUNDS(__float2uint, unsigned, float)
KM_EMU_ROUNDS(__float2ll, long long, float)
KM_EMU_ROUNDS(__float2ull, unsigned long long, float)
KM_EMU_ROUNDS(__double2int, int, double)
KM_EMU_ROUNDS(__double2uint, unsigned, double)
KM_EMU_ROUNDS(__double2ll, long long, double)
KM_EMU_ROUNDS(__double2ull, unsigned long long, double)
#undef KM_EMU_ROUNDS
#undef KM_EMU_ROUND
KM_EMU_INLINE float __int2float_rn(int x) { return (float)x; }
KM_EMU_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
KM_EMU_INLINE float __ll2float_rn(long long x) { return (float)x; }
KM_EMU_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
KM_EMU_INLINE double __int2double_rn(int x) { return (double)x; }
KM_EMU_INLINE double __uint2double_rn(unsigned x) { return (double)x; }
KM_EMU_INLINE double __ll2double_rn(long long x) { return (double)x; }
KM_EMU_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
KM_EMU_INLINE float __double2float_rn(double x) { return (float)x; }

// ---- accesses that name a cache, and the clock ----------------------------------------------------------------------

#define KM_EMU_LOAD(name) \
  template <class T> KM_EMU_INLINE T name(const T* from) { return *from; }
KM_EMU_LOAD(__ldg)
KM_EMU_LOAD(__ldcg)
KM_EMU_LOAD(__ldca)
KM_EMU_LOAD(__ldcs)
KM_EMU_LOAD(__ldlu)
KM_EMU_LOAD(__ldcv)
#undef KM_EMU_LOAD
#define KM_EMU_STORE(name) \
  template <class T, class V> KM_EMU_INLINE void name(T* to, V value) { *to = value; }
KM_EMU_STORE(__stwb)
KM_EMU_STORE(__stcg)
KM_EMU_STORE(__stcs)
KM_EMU_STORE(__stwt)
#undef KM_EMU_STORE
KM_EMU_INLINE unsigned long __cvta_generic_to_shared(const void* p) { return km_emu_to_shared(p); }
KM_EMU_INLINE void* __cvta_shared_to_generic(unsigned long a) { return km_emu_from_shared((unsigned)a); }
KM_EMU_INLINE void __prefetch_global_l1(const void*) {}
KM_EMU_INLINE void __prefetch_global_l2(const void*) {}
extern "C" long long km_emu_clock();
KM_EMU_INLINE long long clock64() { return km_emu_clock(); }
#ifdef KM_EMU_LIGHT  // the C library has one of this name
KM_EMU_INLINE long clock() { return (long)km_emu_clock(); }
#endif
extern "C" unsigned long long km_emu_nanoseconds();
KM_EMU_INLINE unsigned long long __globaltimer() { return km_emu_nanoseconds(); }
KM_EMU_INLINE void __barrier_sync(unsigned id) { km_emu_barrier((int)id, 0, 0, 0); }
KM_EMU_INLINE void __barrier_sync_count(unsigned id, unsigned count) { km_emu_barrier((int)id, (int)count, 0, 0); }
KM_EMU_INLINE void __prof_trigger(int) {}
KM_EMU_INLINE unsigned long __cvta_generic_to_global(const void* p) { return (unsigned long)p; }
KM_EMU_INLINE void* __cvta_global_to_generic(unsigned long a) { return (void*)a; }
