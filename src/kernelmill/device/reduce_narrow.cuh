// reduce_narrow.cuh - reductions with a few columns that lie side by side, such as the colours of pixels, with commutative
// operators: a thread takes packets of the whole memory, so far apart that each element of a packet is always of one column.
#pragma once
#include "reduce_rows.cuh"

namespace km {

// The elements of all columns as one sequence.
template <class Pass>
struct flattened : Pass {
  using typename Pass::call;
  using typename Pass::place;
  typedef typename Pass::map_type Map;
  template <bool, int V, int U>
  static KM_INL auto elements(const call& c, const Map& map, const place& row, i64 first, i64 step) {
    place from[U];
    KM_UNROLL_ALL for (int u = 0; u < U; u++)
      from[u] = Pass::template along<true>(c, row, (int)c.ndim - 1, first + u * step, typename Pass::every_input());
    return Pass::template read<V, U>(c, map, from);
  }
};

// A block has T threads, and each takes U packets of V neighbours at a time.
template <class Pass, int T, int V, int U>
struct narrow : flattened<Pass> {
  typedef rows<flattened<Pass>, false, V, U> row_loops;
  using typename Pass::bank;
  using typename Pass::call;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;

  struct shared {
    __align__(16) char room[T * V * sizeof(state)];
    KM_INL state& operator[](int i) { return ((state*)room)[i]; }
  };
  // Combines the values of the threads y = 0 .. count - 1 of a column, `extent` apart, of `beside` at most; the first one
  // gets it.
  static KM_INL void across(const bank& fold, shared& room, int extent, int beside, i64 count, state& mine) {
    const int y = (int)threadIdx.x / extent;
    _Pragma("unroll 1") for (int s = 1; s < beside; s *= 2) {
      room[threadIdx.x] = mine;
      block_barrier();
      if (y % (2 * s) == 0 && y + s < count) mine = fold(mine, room[threadIdx.x + s * extent]);
      block_barrier();
    }
  }
  // Elements low .. high - 1 of memory, which begin with the first column; what thread t then has is of column t modulo
  // `extent`, of the first one of a column all of it.
  template <int W>
  static KM_INL void sum(const call& c, const Map& map, const bank& fold, const place& at, shared& room, int extent, int active,
                         i64 low, i64 high, state& mine) {
    const int t = (int)threadIdx.x, beside = active / extent;
    const i64 whole = (high - low) / W;
    state acc[W];
    const bool any = t < active && row_loops::template collect<W, (W == 1 ? 8 : U)>(c, map, fold, at, low + t * W, active * W,
                                                                                   high, acc);
    if (any) {
      KM_UNROLL_ALL for (int w = 0; w < W; w++) room[t * W + w] = acc[w];
    }
    block_barrier();
    const i64 filled = smaller<i64>(whole, active) * W;
    bool seen = false;
    if (t < active) {
      _Pragma("unroll 1") for (i64 i = t; i < filled; i += active) {
        mine = seen ? fold(mine, room[(int)i]) : room[(int)i];
        seen = true;
      }
    }
    block_barrier();
    // Elements after the packets: those of its column each first thread takes in.
    const i64 rest = low + whole * W;
    if (t < extent) {
      _Pragma("unroll 1") for (i64 i = rest + (t - (rest - low) % extent + extent) % extent; i < high; i += extent) {
        const state one = flattened<Pass>::template elements<false, 1, 1>(c, map, at, i, 1).item[0];
        mine = seen ? fold(mine, one) : one;
        seen = true;
      }
    }
    const i64 present = larger<i64>(ceil_div(filled - t % extent, extent), 1);
    across(fold, room, extent, beside, t < active ? smaller<i64>(beside, present) : 0, mine);
  }
  static KM_INL void blocks(const call& c) {
    __shared__ shared room;
    const Map map(c.captures);
    const bank fold(c.captures);
    const int t = (int)threadIdx.x, extent = (int)c.shape[(int)c.ndim - 1], active = T / extent * extent;
    const int y = t / extent, beside = active / extent;
    _Pragma("unroll 1") for (i64 index = blockIdx.x; index < c.units * c.pieces; index += gridDim.x) {
      const i64 row = quotient(index, c.pieces), piece = index - row * c.pieces;
      const place at = Pass::sequence(c, row);
      const i64 low = piece * c.piece * extent, high = smaller(c.length, (piece + 1) * c.piece) * extent;
      state mine;
      if (Pass::template are_aligned<false, V>(c, at))
        sum<V>(c, map, fold, at, room, extent, active, low, high, mine);
      else
        sum<1>(c, map, fold, at, room, extent, active, low, high, mine);
      if (c.pieces > 1) {
        if (t < extent) Pass::part(c, row, piece, extent)[t] = mine;
        if (!Pass::is_last(c, row)) continue;
        const i64 each = Pass::shares(c, beside), count = ceil_div(c.pieces, each);
        if (t < active && y < count) mine = Pass::joined_parts(c, fold, row, y * each, each, extent, t % extent);
        across(fold, room, extent, beside, t < active ? count : 0, mine);
      }
      if (t < extent) Pass::store(c, fold, mine, row, t);
    }
  }
};

}  // namespace km
