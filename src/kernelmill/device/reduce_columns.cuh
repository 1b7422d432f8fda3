// reduce_columns.cuh - reductions with a kept dimension inside the reduced ones: a block takes several columns at once, each
// thread V of them, and Y threads share a column.  Commutative operators and ordered ones.
#pragma once
#include "reduce_call.cuh"

namespace km {

// X * Y threads; `Nested`: there are several reduced dimensions.  `Tree`: in the order of docs/reference/reduction-tree.md,
// lanes and all; else in any fixed one.
template <class Pass, bool Nested, int X, int Y, int V, bool Tree>
struct columns : Pass {
  using typename Pass::bank;
  using typename Pass::call;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;
  static constexpr int width = X * V, run = 16;
  typedef typename Pass::every_fold every_fold;

  // ---- where a thread is

  struct spot {
    i64 row, base, extent;
    int x, y;
    bool packets;  // the columns of a thread are neighbours, all or none of them there; else they are X apart
    KM_INL i64 column(int v) const { return base + (packets ? x * V + v : v * X + x); }
    KM_INL bool has(int v) const { return column(v) < extent; }
  };
  static KM_INL spot locate(const call& c, i64 unit, place& at) {
    spot s;
    s.extent = c.shape[(int)c.ndim - 1];
    const i64 blocks = ceil_div(s.extent, width);
    s.row = quotient(unit, blocks);
    s.base = (unit - s.row * blocks) * width;
    s.x = (int)threadIdx.x % X;
    s.y = (int)threadIdx.x / X;
    at = Pass::sequence(c, s.row);
    s.packets = s.extent % V == 0 && Pass::template are_aligned<true, V>(c, at);
    return s;
  }
  static KM_INL place moved(const call& c, const place& at, i64 i, i64 column) {
    const int inner = (int)c.ndim - 1;
    place p = Pass::template element_of<Nested, false>(c, at, inner, i);
    KM_UNROLL_ALL for (int k = 0; k < Pass::inputs; k++) p.at[k] += column * c.strides[k][inner];
    return p;
  }
  // The thread's columns in each of N rows, `step` apart; where there is no such column, the last one again.
  template <int N>
  static KM_INL auto some(const call& c, const Map& map, const place& at, const spot& s, i64 first, i64 step) {
    if (s.packets) {
      place from[N];
      const i64 column = smaller(s.column(0), s.extent - V);
      KM_UNROLL_ALL for (int n = 0; n < N; n++) from[n] = moved(c, at, first + n * step, column);
      return Pass::template read<V, N>(c, map, from);
    }
    place from[N * V];
    KM_UNROLL_ALL for (int n = 0; n < N; n++)
      KM_UNROLL_ALL for (int v = 0; v < V; v++)
        from[n * V + v] = moved(c, at, first + n * step, smaller(s.column(v), s.extent - 1));
    return Pass::template read<1, N * V>(c, map, from);
  }

  // ---- over the threads of a column

  struct shared {
    __align__(16) char room[Y * width * sizeof(state)];
    KM_INL state& at(int y, int v, int x) { return ((state*)room)[(y * V + v) * X + x]; }
  };
  // Combines what the threads 0 .. count - 1 of a column have, by halving or as adjacent pairs; the first one gets it.
  template <bool Halving>
  static KM_INL void across(const bank& fold, const spot& s, shared& room, state* mine, i64 count) {
    KM_UNROLL_ALL for (int round = 1; round < Y; round *= 2) {
      const int step = Halving ? Y / 2 / round : round;
      KM_UNROLL_ALL for (int v = 0; v < V; v++) room.at(s.y, v, s.x) = mine[v];
      block_barrier();
      if ((Halving ? s.y < step : s.y % (2 * step) == 0) && s.y + step < count) {
        KM_UNROLL_ALL for (int v = 0; v < V; v++) mine[v] = fold(mine[v], room.at(s.y + step, v, s.x));
      }
      block_barrier();
    }
  }
  static KM_INL void store(const call& c, const bank& fold, const spot& s, const state* made) {
    if (s.y != 0) return;
    KM_UNROLL_ALL for (int v = 0; v < V; v++)
      if (s.has(v)) Pass::store(c, fold, made[v], s.row, s.column(v));
  }
  // The results of one piece, which the first thread of each column has: stored, or combined by the last block.
  static KM_INL void deliver(const call& c, const bank& fold, const spot& s, shared& room, state* mine, i64 unit, i64 piece) {
    if (c.pieces == 1) return store(c, fold, s, mine);
    if (s.y == 0) {
      KM_UNROLL_ALL for (int v = 0; v < V; v++) Pass::part(c, unit, piece, width)[v * X + s.x] = mine[v];
    }
    if (!Pass::is_last(c, unit)) return;
    const i64 each = Pass::shares(c, Y), count = ceil_div(c.pieces, each);
    if (s.y < count) {
      KM_UNROLL_ALL for (int v = 0; v < V; v++)
        mine[v] = Pass::joined_parts(c, fold, unit, s.y * each, each, width, v * X + s.x);
    }
    across<false>(fold, s, room, mine, count);
    store(c, fold, s, mine);
  }

  // ---- commutative operators: thread y takes the rows y, y + Y ... of a piece

  template <int J> static constexpr int slots = Tree ? Pass::lanes_of(J) / Y : 1;
  template <int... J>
  static KM_INL constexpr int most_slots(indices<J...>) {
    int most = 1;
    ((most = slots<J> > most ? slots<J> : most), ...);
    return most;
  }
  static constexpr int M = most_slots(every_fold()), U = 8;

  template <int J>
  static KM_INL void feed(const bank& fold, state* acc, const state& value, int u, int v, bool seed) {
    auto& to = at<J>(acc[u % slots<J> * V + v]);
    to = seed && u < slots<J> ? at<J>(value) : fold_of<J>(fold)(to, at<J>(value));
  }
  template <int... J>
  static KM_INL void feed_all(const bank& fold, state* acc, const state* values, int u, bool seed, indices<J...>) {
    KM_UNROLL_ALL for (int v = 0; v < V; v++) (feed<J>(fold, acc, values[v], u, v, seed), ...);
  }
  template <int J>
  static KM_INL void halve(const bank& fold, state* acc, int y, i64 n) {
    KM_UNROLL_ALL for (int h = slots<J> / 2; h > 0; h /= 2)
      KM_UNROLL_ALL for (int m = 0; m < h; m++) {
        if (y + Y * (m + h) >= n) continue;
        KM_UNROLL_ALL for (int v = 0; v < V; v++) {
          auto& to = at<J>(acc[m * V + v]);
          to = fold_of<J>(fold)(to, at<J>(acc[(m + h) * V + v]));
        }
      }
  }
  template <int... J>
  static KM_INL void halve_all(const bank& fold, state* acc, int y, i64 n, indices<J...>) {
    (halve<J>(fold, acc, y, n), ...);
  }
  static KM_INL void sweep(const call& c, const Map& map, const bank& fold, const place& at, const spot& s, i64 low, i64 high,
                           state* acc) {
    bool seed = true;
    i64 i = low + s.y;
    _Pragma("unroll 1") for (; i + (U - 1) * Y < high; i += U * Y) {
      auto found = some<U>(c, map, at, s, i, Y);
      if constexpr (Tree) {
        KM_UNROLL_ALL for (int u = 0; u < U; u++) feed_all(fold, acc, found.item + u * V, u, seed, every_fold());
      } else {
        KM_UNROLL_ALL for (int h = 1; h < U; h *= 2)
          KM_UNROLL_ALL for (int u = 0; u + h < U; u += 2 * h)
            KM_UNROLL_ALL for (int v = 0; v < V; v++)
              found.item[u * V + v] = fold(found.item[u * V + v], found.item[(u + h) * V + v]);
        feed_all(fold, acc, found.item, 0, seed, every_fold());
      }
      seed = false;
    }
    KM_UNROLL_ALL for (int u = 0; u < U - 1; u++) {
      if (i + u * Y < high) feed_all(fold, acc, some<1>(c, map, at, s, i + u * Y, Y).item, u, seed, every_fold());
      if constexpr (!Tree) seed = false;
    }
    halve_all(fold, acc, s.y, high - low, every_fold());
  }
  static KM_INL void blocks(const call& c) {
    __shared__ shared room;
    const Map map(c.captures);
    const bank fold(c.captures);
    _Pragma("unroll 1") for (i64 index = blockIdx.x; index < c.units * c.pieces; index += gridDim.x) {
      const i64 unit = quotient(index, c.pieces), piece = index - unit * c.pieces;
      const i64 low = piece * c.piece, high = smaller(c.length, low + c.piece);
      place at;
      const spot s = locate(c, unit, at);
      state acc[M * V];
      sweep(c, map, fold, at, s, low, high, acc);
      across<true>(fold, s, room, acc, high - low);
      deliver(c, fold, s, room, acc, unit, piece);
    }
  }

  // ---- ordered operators: thread y takes the run y of each Y runs; pieces are a power of two times so many

  template <int N>
  static KM_INL void chain(const bank& fold, const batch<state, N * V>& found, state* acc, bool seed) {
    KM_UNROLL_ALL for (int n = 0; n < N; n++)
      KM_UNROLL_ALL for (int v = 0; v < V; v++)
        acc[v] = n == 0 && seed ? found.item[v] : fold(acc[v], found.item[n * V + v]);
  }
  static KM_INL void run_of(const call& c, const Map& map, const bank& fold, const place& at, const spot& s, i64 first, i64 end,
                            state* acc) {
    constexpr int many = 4;
    i64 i = first;
    _Pragma("unroll 1") for (; i + many <= end; i += many)
      chain<many>(fold, some<many>(c, map, at, s, i, 1), acc, i == first);
    _Pragma("unroll 1") for (; i < end; i++) chain<1>(fold, some<1>(c, map, at, s, i, 1), acc, i == first);
  }
  static KM_INL void ordered(const call& c) {
    __shared__ shared room;
    const Map map(c.captures);
    const bank fold(c.captures);
    _Pragma("unroll 1") for (i64 index = blockIdx.x; index < c.units * c.pieces; index += gridDim.x) {
      const i64 unit = quotient(index, c.pieces), piece = index - unit * c.pieces;
      const i64 low = piece * c.piece, high = smaller(c.length, low + c.piece);
      place at;
      const spot s = locate(c, unit, at);
      state acc[V];
      pile<state> tiles[V];
      _Pragma("unroll 1") for (i64 base = low; base < high; base += run * Y) {
        const i64 end = smaller(high, base + run * Y), first = base + run * s.y;
        if (first < end) run_of(c, map, fold, at, s, first, smaller(end, first + run), acc);
        across<false>(fold, s, room, acc, ceil_div(end - base, run));
        if (high - low > run * Y && s.y == 0) {
          KM_UNROLL_ALL for (int v = 0; v < V; v++) tiles[v].push(acc[v], fold);
        }
      }
      if (high - low > run * Y && s.y == 0) {
        KM_UNROLL_ALL for (int v = 0; v < V; v++) acc[v] = tiles[v].top(fold);
      }
      deliver(c, fold, s, room, acc, unit, piece);
    }
  }
};

}  // namespace km
