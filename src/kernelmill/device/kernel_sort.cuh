// kernel_sort.cuh - sorts and merges that kernels written in Python call, of one value a thread, stable, by any operator.
// Included by texts that call them; how a block merges is in merge_tile.cuh.
#pragma once
#include "merge_tile.cuh"

namespace km {

// The lane of number i gets the i-th value: neighbours change places, by turns.
template <class T, class Less>
KM_INL T sort_warp(T value, const Less& less) {
  const int lane = (int)lane_id();
  _Pragma("unroll 1") for (int turn = 0; turn < warp_size; turn++) {
    const bool upper = ((lane ^ turn) & 1) != 0;  // the one behind, of a pair
    const int other = upper ? lane - 1 : lane + 1;
    const T seen = shuffle(value, other & (warp_size - 1));
    if (other >= 0 && other < warp_size && (upper ? less(value, seen) : less(seen, value))) value = seen;
  }
  return value;
}

// Room for the values of a block twice; one object serves all calls of a type, each of which ends with a barrier.
template <class T, int Threads>
struct sort_room {
  __align__(16) char bytes[2][Threads * sizeof(T)];
  part_ends<Threads / warp_size> ends[2];
};
template <class T, int Threads>
KM_INL sort_room<T, Threads>& sort_room_of() {
  __shared__ sort_room<T, Threads> room;
  return room;
}

// One level: values lie in the first memory, of which thread `rank` makes number `index` of a merge.
template <int Threads, class T, class Less>
KM_INL void merge_values(sort_room<T, Threads>& room, int from, const merging& m, int rank, int index, const Less& less) {
  merge_level<T, 1, Threads / warp_size, false>(room.bytes[from], nullptr, room.bytes[from ^ 1], nullptr, m, rank, index,
                                                room.ends[from], false, less);
}

// The thread of rank i gets the i-th value.
template <int Threads, class T, class Less>
KM_INL T sort_block(T value, const Less& less) {
  value = sort_warp(value, less);
  if constexpr (Threads == warp_size) return value;
  constexpr int size = (int)sizeof(T);
  const int rank = (int)thread_rank();
  sort_room<T, Threads>& room = sort_room_of<T, Threads>();
  *(T*)(room.bytes[0] + rank * size) = value;
  block_barrier();
  int from = 0;
  _Pragma("unroll 1") for (int width = warp_size; width < Threads; width *= 2) {
    const int low = rank / (2 * width) * 2 * width, high = low + width;
    const merging m{low * size, smaller(width, Threads - low), high * size, at_most(Threads - high, width), low, high, low};
    merge_values<Threads>(room, from, m, rank, rank - low, less);
    from ^= 1;
  }
  value = *(const T*)(room.bytes[from] + rank * size);
  block_barrier();
  return value;
}

// The values of the first threads, which are in order, merged with those of the others, which are.
template <int Threads, class T, class Less>
KM_INL T merge_block(T value, i32 first, const Less& less) {
  constexpr int size = (int)sizeof(T);
  const int rank = (int)thread_rank(), count = at_most(first, Threads);
  sort_room<T, Threads>& room = sort_room_of<T, Threads>();
  *(T*)(room.bytes[0] + rank * size) = value;
  block_barrier();
  merge_values<Threads>(room, 0, merging{0, count, count * size, Threads - count, 0, count, 0}, rank, rank, less);
  value = *(const T*)(room.bytes[1] + rank * size);
  block_barrier();
  return value;
}

}  // namespace km
