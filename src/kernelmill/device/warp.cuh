// warp.cuh - values that move between the lanes of a warp, of any trivially copyable type: shuffles, and reduction and scan
// with any operator.  Operators need not be commutative: neighbours combine in order.  Blocks are in block.cuh.
#pragma once
#include "base.hpp"

namespace km {

template <int Words> struct words { u32 word[Words]; };
template <class T> constexpr int words_in = (int)(sizeof(T) + 3) / 4;

// Calls f on each 32-bit word of a value; a type that does not fill its last word is moved by bytes.
template <class T, class F>
KM_INL T by_words(const T& value, F f) {
  if constexpr (sizeof(T) == 1) return bit_cast<T>((u8)f((u32)bit_cast<u8>(value)));
  else if constexpr (sizeof(T) == 2) return bit_cast<T>((u16)f((u32)bit_cast<u16>(value)));
  else if constexpr (sizeof(T) % 4 == 0) {
    auto moved = bit_cast<words<words_in<T>>>(value);
    KM_UNROLL_ALL for (int i = 0; i < words_in<T>; ++i) moved.word[i] = f(moved.word[i]);
    return bit_cast<T>(moved);
  } else {
    struct bytes { u8 byte[sizeof(T)]; };
    auto moved = bit_cast<bytes>(value);
    KM_UNROLL_ALL for (int i = 0; i < (int)sizeof(T); ++i) moved.byte[i] = (u8)f((u32)moved.byte[i]);
    return bit_cast<T>(moved);
  }
}

// The value of another lane: of that number, of a lower or a higher one by `by`, or of the one across `mask`.  A lane that
// names none gets its own value back.
template <class T> KM_INL T shuffle(const T& value, int lane, u32 lanes = full_warp) {
  return by_words(value, [=](u32 w) { return __shfl_sync(lanes, w, lane); });
}
template <class T> KM_INL T shuffle_up(const T& value, int by, u32 lanes = full_warp) {
  return by_words(value, [=](u32 w) { return __shfl_up_sync(lanes, w, by); });
}
template <class T> KM_INL T shuffle_down(const T& value, int by, u32 lanes = full_warp) {
  return by_words(value, [=](u32 w) { return __shfl_down_sync(lanes, w, by); });
}
template <class T> KM_INL T shuffle_xor(const T& value, int mask, u32 lanes = full_warp) {
  return by_words(value, [=](u32 w) { return __shfl_xor_sync(lanes, w, mask); });
}

// Combines the values of lanes 0 .. count - 1, which every lane calls for; the result is that of lane 0.  The tree is the
// one of adjacent pairs: for s = 1, 2, 4 ... lane i takes in lane i + s where i is a multiple of 2 s and both exist.
template <class T, class Op>
KM_INL T warp_reduce(T value, const Op& op, int count = warp_size) {
  const int lane = (int)lane_id();
  KM_UNROLL_ALL for (int s = 1; s < warp_size; s *= 2) {
    const T other = shuffle_down(value, s);
    if ((lane & (2 * s - 1)) == 0 && lane + s < count) value = op(value, other);
  }
  return value;
}

// Lane i gets value 0 op value 1 op ... op value i.
template <class T, class Op>
KM_INL T warp_inclusive_scan(T value, const Op& op) {
  const int lane = (int)lane_id();
  KM_UNROLL_ALL for (int s = 1; s < warp_size; s *= 2) {
    const T other = shuffle_up(value, s);
    if (lane >= s) value = op(other, value);
  }
  return value;
}

}  // namespace km
