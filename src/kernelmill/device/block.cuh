// block.cuh - reduction and scan over a block of threads in one dimension, with any operator, commutative or not, and any
// trivially copyable type.  Memory and barriers are inside; loops over tiles are the caller's.
#pragma once
#include "warp.cuh"

namespace km {

// Shared memory for one of the functions below at a time; `Threads` is a multiple of 32.  Between two uses of one object no
// barrier is needed: each function ends with one.
template <class T, int Threads>
struct block_storage {
  static_assert(Threads % warp_size == 0 && Threads <= 1024, "a block is 1 to 32 whole warps");
  static constexpr int warps = Threads / warp_size;
  __align__(16) char room[warps * sizeof(T)];
  KM_INL T& operator[](int i) { return ((T*)room)[i]; }
};

// Combines the values of threads 0 .. count - 1 (at least one), in order, by the tree of adjacent pairs; every thread of
// the block calls it and gets the result.
template <int Threads, class T, class Op>
KM_INL T block_reduce(T value, const Op& op, block_storage<T, Threads>& storage, int count = Threads) {
  const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id(), first = warp * warp_size;
  value = warp_reduce(value, op, count - first);
  if (lane == 0) storage[warp] = value;
  block_barrier();
  if constexpr (Threads > warp_size) {
    if (warp == 0) {
      const int filled = (count + warp_size - 1) / warp_size;
      value = warp_reduce(storage[lane < filled ? lane : 0], op, filled);
      warp_barrier();
      if (lane == 0) storage[0] = value;
    }
    block_barrier();
  }
  value = storage[0];
  block_barrier();
  return value;
}

// Thread i gets value 0 op ... op value i; `total`, where given, receives the last one in every thread.
template <int Threads, class T, class Op>
KM_INL T block_inclusive_scan(T value, const Op& op, block_storage<T, Threads>& storage, T* total = nullptr) {
  const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id();
  value = warp_inclusive_scan(value, op);
  if (lane == warp_size - 1) storage[warp] = value;
  block_barrier();
  if constexpr (Threads > warp_size) {
    if (warp == 0) {
      const T sums = warp_inclusive_scan(storage[lane < storage.warps ? lane : 0], op);
      warp_barrier();
      if (lane < storage.warps) storage[lane] = sums;
    }
    block_barrier();
    if (warp > 0) value = op(storage[warp - 1], value);
  }
  if (total) *total = storage[storage.warps - 1];
  block_barrier();
  return value;
}

// Thread i gets first op value 0 op ... op value i - 1; thread 0 gets `first`.
template <int Threads, class T, class Op>
KM_INL T block_exclusive_scan(T value, T first, const Op& op, block_storage<T, Threads>& storage, T* total = nullptr) {
  const int lane = (int)lane_id(), warp = (int)threadIdx.x / warp_size;
  __shared__ block_storage<T, Threads> last;
  const T scanned = block_inclusive_scan(value, op, storage, total);
  if (lane == warp_size - 1) last[warp] = scanned;
  const T left = shuffle_up(scanned, 1);
  block_barrier();
  const T before = lane > 0 ? left : (warp > 0 ? last[warp - 1] : first);
  block_barrier();
  return threadIdx.x > 0 ? op(first, before) : first;
}

}  // namespace km
