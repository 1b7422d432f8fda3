// reduce_ordered.cuh - reductions whose innermost dimension is a reduced one, with operators that must see the elements in
// order: the tree of docs/reference/reduction-tree.md, runs of 16 elements and adjacent pairs, whatever the pieces.
#pragma once
#include "reduce_call.cuh"

namespace km {

constexpr int run_elements = 16;

// `Nested`: there are several reduced dimensions.  A thread takes V neighbours at a time.
template <class Pass, bool Nested, int V>
struct ordered_rows : Pass {
  using typename Pass::bank;
  using typename Pass::call;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;

  // Elements first .. end - 1, at most a run of them, from left to right.
  static KM_INL state run(const call& c, const Map& map, const bank& fold, const place& row, i64 first, i64 end, bool packets) {
    if (packets && first + run_elements <= end) {
      auto all = Pass::template elements<Nested, V, run_elements / V>(c, map, row, first, V);
      KM_UNROLL_ALL for (int i = 1; i < run_elements; i++) all.item[0] = fold(all.item[0], all.item[i]);
      return all.item[0];
    }
    state made = Pass::template elements<Nested, 1, 1>(c, map, row, first, 1).item[0];
    _Pragma("unroll 4") for (i64 i = first + 1; i < end; i++)
      made = fold(made, Pass::template elements<Nested, 1, 1>(c, map, row, i, 1).item[0]);
    return made;
  }
  // Combines low .. high - 1: T threads take a run each, and `join(value, runs)` their results.  Valid in the first thread.
  template <int T, class Join>
  static KM_INL state tiles(const call& c, const Map& map, const bank& fold, const place& row, i64 low, i64 high, int t,
                            const Join& join) {
    constexpr int tile = T * run_elements;
    const bool packets = Pass::template packets_fit<Nested, V>(c, row);
    const auto one = [&](i64 base) {
      const i64 end = smaller(high, base + tile), first = base + t * run_elements;
      state made;
      if (first < end) made = run(c, map, fold, row, first, smaller(end, first + run_elements), packets);
      return join(made, ceil_div(end - base, run_elements));
    };
    if (high - low <= tile) return one(low);
    pile<state> parts;
    _Pragma("unroll 1") for (i64 base = low; base < high; base += tile) parts.push(one(base), fold);
    return parts.top(fold);
  }

  // A block for each piece of a sequence; a piece is a power of two times the runs of all threads.
  template <int T>
  static KM_INL void blocks(const call& c) {
    __shared__ block_storage<state, T> storage;
    const Map map(c.captures);
    const bank fold(c.captures);
    _Pragma("unroll 1") for (i64 unit = blockIdx.x; unit < c.units * c.pieces; unit += gridDim.x) {
      const i64 row = quotient(unit, c.pieces), piece = unit - row * c.pieces;
      const i64 low = piece * c.piece, high = smaller(c.length, low + c.piece);
      const state made = tiles<T>(c, map, fold, Pass::sequence(c, row), low, high, (int)threadIdx.x,
                                  [&](const state& value, i64 runs) {
                                    return block_reduce<T>(value, fold, storage, (int)runs);
                                  });
      Pass::template deliver<T>(c, fold, made, row, piece, storage);
    }
  }

  // T neighbouring lanes for each sequence.
  template <int Threads, int T>
  static KM_INL void teams(const call& c) {
    const Map map(c.captures);
    const bank fold(c.captures);
    const int t = (int)threadIdx.x % T;
    const i64 each = Threads / T;
    _Pragma("unroll 1") for (i64 first = (i64)blockIdx.x * each; first < c.units; first += (i64)gridDim.x * each) {
      const i64 mine = first + (int)threadIdx.x / T, row = smaller(mine, c.units - 1);
      const state made = tiles<T>(c, map, fold, Pass::sequence(c, row), 0, c.length, t, [&](const state& value, i64 runs) {
        return team_reduce<T>(value, fold, runs);
      });
      if (t == 0 && mine < c.units) Pass::store(c, fold, made, row);
    }
  }
};

}  // namespace km
