// kernel.cuh - what kernels written in Python are printed in: arrays as views, what whole warps and blocks of any shape do
// together, and the checks of debug kernels.  Printed by compiler/cpp_kernel.py.
#pragma once
#include "atomics.cuh"
#include "warp.cuh"

namespace km {

// ---- arrays --------------------------------------------------------------------------------------------------------------

// How the elements of an array lie: in C order without gaps, rows without gaps, anywhere.
enum array_layout : int { in_order, in_rows, anywhere };

// An array that is passed; I is the type in which positions are computed, strides count elements.  Indices are not checked.
template <class T, int N, int Layout, class I>
struct array {
  T* data;
  I shape[N > 0 ? N : 1];
  I stride[N > 0 ? N : 1];
  template <class... J>
  KM_INL T& at(J... index) const {
    static_assert(sizeof...(J) == N, "one index a dimension");
    const I i[N > 0 ? N : 1] = {I(index)...};
    I place = 0;
    if constexpr (Layout == in_order) {
      KM_UNROLL_ALL for (int k = 0; k < N; ++k) place = k == 0 ? i[0] : I(place * shape[k] + i[k]);
    } else {
      KM_UNROLL_ALL for (int k = 0; k < N; ++k) place += Layout == in_rows && k == N - 1 ? i[k] : I(i[k] * stride[k]);
    }
    return data[place];
  }
};

// The position of an element in an array of fixed shape.
template <int... Shape, class... J>
KM_INL i32 place_in(J... index) {
  static_assert(sizeof...(J) == sizeof...(Shape), "one index a dimension");
  const i32 shape[] = {Shape..., 1}, i[] = {i32(index)..., 0};
  i32 place = 0;
  KM_UNROLL_ALL for (int k = 0; k < (int)sizeof...(Shape); ++k) place = place * shape[k] + i[k];
  return place;
}

// An array of fixed shape: shared, or of one thread.
template <class T, int... Shape>
struct fixed_array {
  T* data;
  template <class... J>
  KM_INL T& at(J... index) const { return data[place_in<Shape...>(index...)]; }
};

// Dynamic shared memory seen as elements of a type.
template <class T>
struct flat_array {
  T* data;
  template <class I> KM_INL T& at(I index) const { return data[i32(index)]; }
};

// ---- warps and blocks ------------------------------------------------------------------------------------------------------

KM_INL u32 match_value(u32 value) { return match_any(value); }
KM_INL u32 match_value(u64 value) { return match_any(value); }

// Where an operator gives the same bits in either order, every lane makes the tree of adjacent pairs itself.
template <int Lanes, class T, class Op>
KM_INL T crossed(T value, const Op& op) {
  KM_UNROLL_ALL for (int s = 1; s < Lanes; s *= 2) value = op(value, shuffle_xor(value, s));
  return value;
}
template <bool EitherOrder, class T, class Op>
KM_INL T all_of_warp(const T& value, const Op& op) {
  if constexpr (EitherOrder) return crossed<warp_size>(value, op);
  else return shuffle(warp_reduce(value, op), 0);
}

// Room for one value a warp; one object serves all calls of a type, each of which ends with a barrier.
template <class T>
struct warp_room {
  __align__(16) char bytes[warp_size * sizeof(T)];
  KM_INL T& operator[](int i) { return ((T*)bytes)[i]; }
};
template <class T>
KM_INL warp_room<T>& room_of() {
  __shared__ warp_room<T> room;
  return room;
}

// Combines the values of all threads in the order of their ranks, by the tree of adjacent pairs; every thread gets the result.
template <int Threads, bool EitherOrder, class T, class Op>
KM_INL T all_of_block(T value, const Op& op) {
  const int rank = (int)thread_rank(), warp = rank / warp_size, lane = rank % warp_size;
  constexpr int warps = Threads / warp_size;
  if constexpr (warps == 1) return all_of_warp<EitherOrder>(value, op);
  value = EitherOrder ? crossed<warp_size>(value, op) : warp_reduce(value, op);
  warp_room<T>& room = room_of<T>();
  if (lane == 0) room[warp] = value;
  block_barrier();
  if constexpr (EitherOrder && (warps & (warps - 1)) == 0) {
    value = crossed<warps>(room[lane % warps], op);
  } else {
    value = warp_reduce(room[lane < warps ? lane : 0], op, warps);
    value = shuffle(value, 0);
  }
  block_barrier();
  return value;
}

// The thread of rank i gets value 0 op value 1 op ... op value i.
template <int Threads, class T, class Op>
KM_INL T scan_block(T value, const Op& op) {
  const int rank = (int)thread_rank(), warp = rank / warp_size, lane = rank % warp_size;
  constexpr int warps = Threads / warp_size;
  value = warp_inclusive_scan(value, op);
  if constexpr (warps == 1) return value;
  warp_room<T>& room = room_of<T>();
  if (lane == warp_size - 1) room[warp] = value;
  block_barrier();
  const T sums = warp_inclusive_scan(room[lane < warps ? lane : 0], op);
  const T before = shuffle(sums, warp > 0 ? warp - 1 : 0);
  block_barrier();
  return warp > 0 ? op(before, value) : value;
}

// The thread of rank i gets first op value 0 op ... op value i - 1.
template <int Threads, class T, class Op>
KM_INL T scan_block_before(T value, T first, const Op& op) {
  const int rank = (int)thread_rank(), warp = rank / warp_size, lane = rank % warp_size;
  const T scanned = scan_block<Threads>(value, op);
  const T left = shuffle_up(scanned, 1);
  warp_room<T>& room = room_of<T>();
  if (lane == warp_size - 1) room[warp] = scanned;
  block_barrier();
  const T before = lane > 0 ? left : room[warp > 0 ? warp - 1 : 0];
  block_barrier();
  return rank > 0 ? op(first, before) : first;
}

KM_INL bool block_any(bool test) { return __syncthreads_or(test) != 0; }
KM_INL bool block_all(bool test) { return __syncthreads_and(test) != 0; }
KM_INL i64 block_count(bool test) { return __syncthreads_count(test); }

// ---- what ends a kernel --------------------------------------------------------------------------------------------------------

KM_COLD static void index_failed(i64 index, i64 extent, const char* array, int dim, const char* kernel, const char* file, int line) {
  printf("kernel %s, %s line %d: index %lld is out of range for dimension %d of %s, which has %lld elements "
         "(block %d %d %d, thread %d %d %d)\n",
         kernel, file, line, (long long)index, dim, array, (long long)extent, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z,
         (int)threadIdx.x, (int)threadIdx.y, (int)threadIdx.z);
  __trap();
}
KM_INL void check_index(i64 index, i64 extent, const char* array, int dim, const char* kernel, const char* file, int line) {
  if (KM_UNLIKELY(index < 0 || index >= extent)) index_failed(index, extent, array, dim, kernel, file, line);
}
KM_COLD static void assertion_failed(const char* text, const char* kernel, const char* file, int line) {
  printf("kernel %s, %s line %d: assertion failed: %s (block %d %d %d, thread %d %d %d)\n", kernel, file, line, text,
         (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z, (int)threadIdx.x, (int)threadIdx.y, (int)threadIdx.z);
  __trap();
}
KM_INL void assertion(bool test, const char* text, const char* kernel, const char* file, int line) {
  if (KM_UNLIKELY(!test)) assertion_failed(text, kernel, file, line);
}

}  // namespace km
