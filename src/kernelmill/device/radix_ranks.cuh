// radix_ranks.cuh - short rows sorted in one launch by many blocks: an element goes to the place that is the number of those in
// front of it, all of which are compared with it.  Longer rows are in radix.cuh.
//
// Operands: keys, payload, keys and payload to be written, as `radix_rows`; nothing may be written over what is read.
#pragma once
#include "radix.cuh"

namespace km {

// A lane has an element, a warp a part of those that it is compared with.
template <class Order, class Payload, int Warps>
struct radix_ranks {
  typedef typename Order::U U;
  static constexpr int threads = Warps * warp_size, at_once = 4, wide = 16 / (int)sizeof(U);
  static constexpr bool pays = sizeof(Payload) > 1;
  struct __align__(16) several { U order[wide]; };

  // What is behind the end is behind all others.
  static KM_INL void read(const U* from, U* orders, int length, int held) {
    for (int low = (int)threadIdx.x; low < held; low += at_once * threads) {
      U bits[at_once];
      KM_UNROLL_ALL for (int k = 0; k < at_once; k++)
        if (low + k * threads < length) bits[k] = from[low + k * threads];
      KM_UNROLL_ALL for (int k = 0; k < at_once; k++) {
        const int at = low + k * threads;
        if (at < held) orders[at] = at < length ? Order::of(bits[k]) : (U)~(U)0;
      }
    }
  }
  template <bool Equal>
  static KM_INL u32 in_front(const U* orders, int low, int high, U mine) {
    u32 count = 0;
    _Pragma("unroll 1") for (int i = low; i < high; i += warp_size) {
      KM_UNROLL_ALL for (int q = 0; q < warp_size / wide; q++) {
        const several others = *(const several*)(orders + i + q * wide);
        KM_UNROLL_ALL for (int v = 0; v < wide; v++)
          if (Equal ? others.order[v] <= mine : others.order[v] < mine) count++;
      }
    }
    return count;
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ u32 places[warp_size];
    U* orders = (U*)radix_memory;
    const int lane = (int)lane_id(), warp = (int)threadIdx.x / warp_size, length = (int)c.shape[1];
    const int groups = (length + warp_size - 1) / warp_size, held = groups * warp_size;
    const int own = (int)(blockIdx.x % (u32)groups) * warp_size, at = own + lane;
    const i64 row = (i64)(blockIdx.x / (u32)groups) * length;
    const U* from = (const U*)c.data[0] + row;
    if (warp == 0) places[lane] = 0;
    read(from, orders, length, held);
    block_barrier();
    const U mine = orders[at];
    const int share = (groups + Warps - 1) / Warps * warp_size;
    const int low = smaller(warp * share, held), high = smaller(low + share, held);
    u32 count = in_front<true>(orders, low, smaller(high, own), mine);
    count += in_front<false>(orders, larger(low, own + warp_size), high, mine);
    if (low <= own && own < high)
      for (int j = 0; j < warp_size; j++) {
        const U other = orders[own + j];
        if (other < mine || (other == mine && j < lane)) count++;
      }
    add_shared(places + lane, count);
    block_barrier();
    if (warp > 0 || at >= length) return;
    const i64 to = row + (i64)places[lane];
    if (!(c.flags & keys_are_dropped)) ((U*)c.data[2])[to] = from[at];
    if constexpr (pays) {
      const Payload payload = (c.flags & payload_is_place) ? (Payload)at : ((const Payload*)c.data[1])[row + at];
      if (c.flags & result_is_wide) ((i64*)c.data[3])[to] = (i64)payload;
      else ((Payload*)c.data[3])[to] = payload;
    }
  }
};

}  // namespace km
