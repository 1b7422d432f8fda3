// warp.hpp - what threads do together: block barriers, votes, shuffles, match and reduce. One rendezvous each: lanes post
// a value, and the last of those named in the mask computes the result of all.
#pragma once
#include "thread.hpp"

KM_EMU_INLINE void __syncthreads() { km_emu_barrier(0, 0, 0, 0); }
KM_EMU_INLINE int __syncthreads_and(int test) { return km_emu_barrier(0, 0, 1, test); }
KM_EMU_INLINE int __syncthreads_or(int test) { return km_emu_barrier(0, 0, 2, test); }
KM_EMU_INLINE int __syncthreads_count(int test) { return km_emu_barrier(0, 0, 3, test); }

namespace km_emu {

template <class T>
KM_EMU_INLINE u64 bits(T value) {
  static_assert(sizeof(T) <= 8, "a value that lanes exchange has at most 8 bytes");
  u64 word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
KM_EMU_INLINE T from_bits(u64 word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

// Runs `f(lane)` for each lane of a set.
template <class F>
KM_EMU_INLINE void each(u32 lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}
inline void meet(const u64*, u64*, const i32*, u32) {}
inline void permute(const u64* values, u64* results, const i32* from, u32 lanes) {
  each(lanes, [=](int l) { results[l] = values[from[l]]; });
}
inline void collect(const u64* values, u64* results, const i32*, u32 lanes) {
  u32 set = 0;
  each(lanes, [&](int l) { set |= u32(values[l] != 0) << l; });
  each(lanes, [=](int l) { results[l] = (u64)lanes << 32 | set; });
}
inline void match(const u64* values, u64* results, const i32*, u32 lanes) {
  each(lanes, [=](int l) {
    u32 same = 0;
    each(lanes, [&](int k) { same |= u32(values[k] == values[l]) << k; });
    results[l] = same;
  });
}
template <class T, class Op>
inline void combine(const u64* values, u64* results, const i32*, u32 lanes) {
  const int first = __builtin_ctz(lanes);
  T total = from_bits<T>(values[first]);
  each(lanes & (lanes - 1), [&](int l) { total = Op::apply(total, from_bits<T>(values[l])); });
  each(lanes, [=](int l) { results[l] = bits(total); });
}
template <class T>
KM_EMU_INLINE T take(unsigned mask, T value, int lane) {
  return from_bits<T>(km_emu_warp(mask, bits(value), lane & 31, permute));
}
struct Sum { template <class T> static T apply(T a, T b) { return a + b; } };
struct Least { template <class T> static T apply(T a, T b) { return b < a ? b : a; } };
struct Most { template <class T> static T apply(T a, T b) { return a < b ? b : a; } };
struct Both { template <class T> static T apply(T a, T b) { return a & b; } };
struct Either { template <class T> static T apply(T a, T b) { return a | b; } };
struct Odd { template <class T> static T apply(T a, T b) { return a ^ b; } };
template <class Op, class T>
KM_EMU_INLINE T reduce(unsigned mask, T value) {
  return from_bits<T>(km_emu_warp(mask, bits(value), -1, combine<T, Op>));
}

}  // namespace km_emu

KM_EMU_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { km_emu_warp(mask, 0, -1, km_emu::meet); }

template <class T>
KM_EMU_INLINE T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  return km_emu::take(mask, value, (KM_EMU_LANE & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
KM_EMU_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = KM_EMU_LANE;
  return km_emu::take(mask, value, (unsigned)(lane & (width - 1)) >= by ? lane - (int)by : lane);
}
template <class T>
KM_EMU_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = KM_EMU_LANE;
  return km_emu::take(mask, value, (lane & (width - 1)) + (int)by < width ? lane + (int)by : lane);
}
template <class T>
KM_EMU_INLINE T __shfl_xor_sync(unsigned mask, T value, int across, int width = 32) {
  const int lane = KM_EMU_LANE, from = lane ^ (across & 31);
  return km_emu::take(mask, value, from >= (lane & ~(width - 1)) + width ? lane : from);
}

KM_EMU_INLINE unsigned __ballot_sync(unsigned mask, int test) {
  return (unsigned)km_emu_warp(mask, test != 0, -1, km_emu::collect);
}
KM_EMU_INLINE int __any_sync(unsigned mask, int test) { return __ballot_sync(mask, test) != 0; }
KM_EMU_INLINE int __all_sync(unsigned mask, int test) {
  const km_emu::u64 both = km_emu_warp(mask, test != 0, -1, km_emu::collect);
  return (unsigned)both == (unsigned)(both >> 32);
}
template <class T>
KM_EMU_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  return (unsigned)km_emu_warp(mask, km_emu::bits(value), -1, km_emu::match);
}
template <class T>
KM_EMU_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const unsigned same = __match_any_sync(mask, value);
  const unsigned lanes = __ballot_sync(mask, 1);
  *all = same == lanes;
  return *all ? lanes : 0;
}
// The lanes that come to this place together: when no other lane of the warp runs.
KM_EMU_INLINE unsigned __activemask() { return km_emu_step(); }

// The forms of chips before sm_70, for the whole warp.
template <class T> KM_EMU_INLINE T __shfl(T value, int from, int width = 32) { return __shfl_sync(~0u, value, from, width); }
template <class T>
KM_EMU_INLINE T __shfl_up(T value, unsigned by, int width = 32) {
  return __shfl_up_sync(~0u, value, by, width);
}
template <class T>
KM_EMU_INLINE T __shfl_down(T value, unsigned by, int width = 32) {
  return __shfl_down_sync(~0u, value, by, width);
}
template <class T>
KM_EMU_INLINE T __shfl_xor(T value, int across, int width = 32) {
  return __shfl_xor_sync(~0u, value, across, width);
}
KM_EMU_INLINE unsigned __ballot(int test) { return __ballot_sync(~0u, test); }
KM_EMU_INLINE int __any(int test) { return __any_sync(~0u, test); }
KM_EMU_INLINE int __all(int test) { return __all_sync(~0u, test); }

#define KM_EMU_REDUCE(name, T, Op) \
  KM_EMU_INLINE T name(unsigned mask, T value) { return km_emu::reduce<km_emu::Op>(mask, value); }
KM_EMU_REDUCE(__reduce_add_sync, unsigned, Sum)
KM_EMU_REDUCE(__reduce_add_sync, int, Sum)
KM_EMU_REDUCE(__reduce_min_sync, unsigned, Least)
KM_EMU_REDUCE(__reduce_min_sync, int, Least)
KM_EMU_REDUCE(__reduce_max_sync, unsigned, Most)
KM_EMU_REDUCE(__reduce_max_sync, int, Most)
KM_EMU_REDUCE(__reduce_and_sync, unsigned, Both)
KM_EMU_REDUCE(__reduce_or_sync, unsigned, Either)
KM_EMU_REDUCE(__reduce_xor_sync, unsigned, Odd)
#undef KM_EMU_REDUCE
