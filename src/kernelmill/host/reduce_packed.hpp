// reduce_packed.hpp - several folds with vector forms over one contiguous sequence: each register
// of elements is read once. A single fold, and folds without vector forms, are in reduce_tree.hpp.
#pragma once
#include "reduce_tree.hpp"

namespace km {

// The lanes of fold number K; T is its lane_tree.
template <int K, class F, class T> struct packed_lanes {
  typedef typename T::word V __attribute__((vector_size(KM_VECTOR_BYTES)));
  V lane[T::registers];
  const F& f;

  KM_INL explicit packed_lanes(const F& fold) : f(fold) {}
  static KM_INL V load(const char* at, int r) {
    V v;
    __builtin_memcpy(&v, at + r * KM_VECTOR_BYTES, KM_VECTOR_BYTES);
    return v;
  }
  KM_INL void seed(const char* at, int r) { lane[r] = load(at, r); }
  KM_INL void fold(const char* at, int r) { lane[r] = f.vec(lane[r], load(at, r)); }
  KM_INL void keep(char* acc) const { __builtin_memcpy(acc, lane, sizeof(lane)); }
};

template <class... L> struct packed_bank;
template <int... K, class... F, class... T>
struct packed_bank<packed_lanes<K, F, T>...> : packed_lanes<K, F, T>... {
  KM_INL explicit packed_bank(const F&... f) : packed_lanes<K, F, T>(f)... {}

  // Register R of every fold.
  template <int R> KM_INL void seed(const char* at) { (packed_lanes<K, F, T>::seed(at, R), ...); }
  template <int R> KM_INL void fold(const char* at) { (packed_lanes<K, F, T>::fold(at, R), ...); }
  // Whole rounds of as many elements as there are lanes.
  template <int... R> KM_INL void fold_all(const char* at, i64 rounds, indices<R...>) {
    (seed<R>(at), ...);
    while (--rounds > 0) {
      at += sizeof...(R) * KM_VECTOR_BYTES;
      (fold<R>(at), ...);
    }
  }
  static KM_LOOP void each_whole(const F&... f, typename T::A*... to, i64 count, i64 n,
                                 const char* at, i64 step) {
    constexpr i64 lanes = min_of(T::L...);
    constexpr int registers = (int)min_of(T::registers...);
    constexpr i64 wide = min_of(T::wide...);
    alignas(64) char acc[sizeof...(F)][registers * KM_VECTOR_BYTES],
        tops[sizeof...(F)][wide * KM_VECTOR_BYTES];
    for (i64 done = 0, rows; done < count; done += rows) {
      rows = smaller(count - done, wide);
      for (i64 row = 0; row < rows; row++, at += step) {
        if (n >= lanes) {
          packed_bank bank(f...);
          bank.fold_all(at, n / lanes, indices_of<registers>());
          (bank.packed_lanes<K, F, T>::keep(acc[K]), ...);
        }
        (T::close_row(f, tops[K] + row * KM_VECTOR_BYTES, (typename T::A*)acc[K], n, at), ...);
      }
      (T::join_tops(f, to + done, (typename T::V*)tops[K], rows, n), ...);
    }
  }
};

}  // namespace km
