// sort_partition.hpp - splits numbers around one of them, side by side: what is smaller to the front, the rest behind.
//
//   km::split_numbers<T>::run(call)    operands: elements; the split ones, the number of smaller ones (one i64)
//
// Both are contiguous; the pivot lies in the captured scalars.  Nothing is sorted here.
#pragma once
#include "sort_keys.hpp"

namespace km {

template <class T> struct split_numbers {
  static constexpr i64 most_ranges = 64, part = 4096;  // of a sum in 32 bits

#if defined(__AVX512F__) && defined(__AVX512DQ__)
  typedef T vector __attribute__((vector_size(64)));
  static constexpr i64 width = 64 / (i64)sizeof(T);
  static constexpr u32 all = (1u << width) - 1;
  static KM_INL vector load(const T* x) {
    vector v;
    __builtin_memcpy(&v, x, 64);
    return v;
  }
  // The lanes of a mask only; the others are neither read nor written.
  static KM_INL vector load_some(const T* x, u32 mask) {
    if constexpr (sizeof(T) == 4) {
      typedef int lane __attribute__((vector_size(64)));
      return (vector)__builtin_ia32_loaddqusi512_mask((const int*)x, lane{}, (u16)mask);
    } else {
      typedef long long lane __attribute__((vector_size(64)));
      return (vector)__builtin_ia32_loaddqudi512_mask((const long long*)x, lane{}, (u8)mask);
    }
  }
  static KM_INL void store_some(T* to, vector v, u32 mask) {
    if constexpr (sizeof(T) == 4) {
      typedef int lane __attribute__((vector_size(64)));
      __builtin_ia32_storedqusi512_mask((int*)to, (lane)v, (u16)mask);
    } else {
      typedef long long lane __attribute__((vector_size(64)));
      __builtin_ia32_storedqudi512_mask((long long*)to, (lane)v, (u8)mask);
    }
  }
  static KM_INL u32 below(vector v, vector limit) {
    if constexpr (sizeof(T) == 4) {
      typedef int lane __attribute__((vector_size(64)));
      return (u16)__builtin_ia32_cvtd2mask512((lane)(v < limit));
    } else {
      typedef long long lane __attribute__((vector_size(64)));
      return (u8)__builtin_ia32_cvtq2mask512((lane)(v < limit));
    }
  }
  // Puts the elements of a mask side by side.  Packing in a register and storing that is quicker than a store that
  // packs, on some processors many times; what a whole store writes too much must lie before `end`.
  static KM_INL void pack(vector v, u32 mask, T*& to, const T* end) {
    vector packed;
    if constexpr (sizeof(T) == 4) {
      typedef int lane __attribute__((vector_size(64)));
      packed = (vector)__builtin_ia32_compresssi512_mask((lane)v, lane{}, (u16)mask);
    } else {
      typedef long long lane __attribute__((vector_size(64)));
      packed = (vector)__builtin_ia32_compressdi512_mask((lane)v, lane{}, (u8)mask);
    }
    const int taken = __builtin_popcount(mask);
    if (KM_LIKELY(to + width <= end))
      __builtin_memcpy(to, &packed, 64);
    else
      store_some(to, packed, (1u << taken) - 1);
    to += taken;
  }
  static KM_HOT i64 count(const T* x, i64 n, T pivot) {
    const vector limit = vector{} + pivot;
    i64 i = 0, total = 0;
    for (; i + width <= n; i += width) total += __builtin_popcount(below(load(x + i), limit));
    const u32 rest = (1u << (n - i)) - 1;
    return total + __builtin_popcount(below(load_some(x + i, rest), limit) & rest);
  }
  static KM_HOT void move(const T* x, i64 n, T pivot, T* left, T* right, i64 lefts) {
    const vector limit = vector{} + pivot;
    const T *left_end = left + lefts, *right_end = right + (n - lefts);
    i64 i = 0;
    for (; i + width <= n; i += width) {
      const vector v = load(x + i);
      const u32 mask = below(v, limit);
      pack(v, mask, left, left_end);
      pack(v, mask ^ all, right, right_end);
    }
    const u32 rest = (1u << (n - i)) - 1;
    const vector v = load_some(x + i, rest);
    const u32 mask = below(v, limit) & rest;
    pack(v, mask, left, left_end);
    pack(v, mask ^ rest, right, right_end);
  }
#else
  static KM_HOT i64 count(const T* x, i64 n, T pivot) {
    i64 total = 0;
    for (i64 at = 0; at < n; at += part) {
      const i64 end = smaller(at + part, n);
      u32 few = 0;
      for (i64 i = at; i < end; i++) few += x[i] < pivot;
      total += few;
    }
    return total;
  }
  static KM_HOT void move(const T* x, i64 n, T pivot, T* left, T* right, i64) {
    for (i64 i = 0; i < n; i++) {
      const T value = x[i];
      const i64 before = value < pivot;
      *(before ? left : right) = value;
      left += before;
      right += before ^ 1;
    }
  }
#endif
  // By all threads; returns how many are smaller.
  static KM_COLD i64 split(const Call* call, const T* x, i64 n, T* to, T pivot) {
    const i64 ranges = clamp((i64)call->threads, 1, most_ranges);
    i64 found[most_ranges], total = 0;
    auto first = [&](i64 low, i64 high) {
      for (i64 r = low; r < high; r++) {
        const i64 begin = n * r / ranges;
        found[r] = count(x + begin, n * (r + 1) / ranges - begin, pivot);
      }
    };
    for_tasks(call, ranges, first);
    for (i64 r = 0; r < ranges; r++) total += found[r];
    auto second = [&](i64 low, i64 high) {
      for (i64 r = low; r < high; r++) {
        const i64 begin = n * r / ranges;
        i64 before = 0;
        for (i64 q = 0; q < r; q++) before += found[q];
        move(x + begin, n * (r + 1) / ranges - begin, pivot, to + before, to + total + begin - before,
             found[r]);
      }
    };
    for_tasks(call, ranges, second);
    return total;
  }
  static KM_COLD void run(const Call* call) {
    const T pivot = element<T>::load((const char*)call->captures);
    *(i64*)call->operands[2].data =
        split(call, (const T*)call->operands[0].data, call->shape[0], (T*)call->operands[1].data, pivot);
  }
};

}  // namespace km
