// elements.hpp - elements that are read by index, and the order of a shuffle; for the host and for
// devices.  What an iterator is made of is decided in algorithms/feed_nodes.py.
//
// Called with the addresses of values, so that types of elements are deduced from the result.
#pragma once
#include "base.hpp"

namespace km {

template <class T>
KM_INL void element_at(const i64* address, const i64* step, const i64* index, T* made) {
  *made = element<T>::load((const char*)(uptr)*address + *index * *step);
}

#ifdef __CUDA_ARCH__
// The same at any address.
template <class T>
KM_INL void element_anywhere(const i64* address, const i64* step, const i64* index, T* made) {
  *made = unaligned_element<T>::load((const char*)(uptr)*address + *index * *step);
}

// The same past a cache, where one access reads an element.
#define KM_ELEMENT(how)                                                                        \
  template <class T>                                                                           \
  KM_INL void element_##how(const i64* address, const i64* step, const i64* index, T* made) {  \
    const char* at = (const char*)(uptr)*address + *index * *step;                             \
    if constexpr (sizeof(T) == 4 && alignof(T) == 4)                                           \
      *made = bit_cast<T>(load_##how((const u32*)at));                                         \
    else if constexpr (sizeof(T) == 8 && alignof(T) == 8)                                      \
      *made = bit_cast<T>(load_##how((const u64*)at));                                         \
    else                                                                                       \
      *made = element<T>::load(at);                                                            \
  }
KM_ELEMENT(stream)
KM_ELEMENT(global)
KM_ELEMENT(volatile)
#undef KM_ELEMENT
#endif

// The offset of an element that is written nowhere.
constexpr i64 nowhere = (i64)((u64)1 << 63);

// Mixes the bits of a number with those of a key.
KM_INL u64 mixed(u64 x, u64 key) {
  x = (x + key) * 0xbf58476d1ce4e5b9u;
  return (x ^ x >> 31) * 0x94d049bb133111ebu >> 29;
}
// Where a number below `count` stands in an order that `key` decides: a Feistel network over as many
// bits as the count needs, walked until the number is below it.
KM_INL void shuffled(const i64* index, const i64* count, const i64* bits, const u64* key, i64* made) {
  const u64 low = (u64)*bits / 2, mask = ((u64)1 << low) - 1, upper = ((u64)1 << ((u64)*bits - low)) - 1;
  u64 x = (u64)*index;
  do {
    u64 right = x & mask, left = x >> low, turn = *key;
    for (int k = 0; k < 4; k++) {
      left = (left ^ mixed(right, turn += 0x9e3779b97f4a7c15u)) & upper;
      right = (right ^ mixed(left, turn += 0x9e3779b97f4a7c15u)) & mask;
    }
    x = left << low | right;
  } while (x >= (u64)*count);
  *made = (i64)x;
}

}  // namespace km
