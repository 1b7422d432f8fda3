// reduce_rows.cuh - reductions whose innermost dimension is a reduced one, with commutative operators: by a block or by
// several, by a few threads, and in the order of docs/reference/reduction-tree.md.
#pragma once
#include "reduce_call.cuh"

namespace km {

// `Nested`: there are several reduced dimensions.  A thread takes U packets of V neighbours at a time.
template <class Pass, bool Nested, int V, int U>
struct rows : Pass {
  using typename Pass::bank;
  using typename Pass::call;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;

  // Takes in packets of W neighbours: first each place of them, as a tree, then what was there before.
  template <int W, int Packets>
  static KM_INL void absorb(const bank& fold, batch<state, W * Packets> some, state (&acc)[W], bool any) {
    KM_UNROLL_ALL for (int s = 1; s < Packets; s *= 2)
      KM_UNROLL_ALL for (int u = 0; u + s < Packets; u += 2 * s)
        KM_UNROLL_ALL for (int w = 0; w < W; w++) some.item[u * W + w] = fold(some.item[u * W + w], some.item[(u + s) * W + w]);
    KM_UNROLL_ALL for (int w = 0; w < W; w++) acc[w] = any ? fold(acc[w], some.item[w]) : some.item[w];
  }
  // Packets of W neighbours, N of them at a time: first, first + step ... before `end`.  Whether there was one.
  template <int W, int N>
  static KM_INL bool collect(const call& c, const Map& map, const bank& fold, const place& row, i64 first, i64 step, i64 end,
                             state (&acc)[W]) {
    bool any = false;
    i64 i = first;
    _Pragma("unroll 1") for (; i + (N - 1) * step + W <= end; i += N * step) {
      absorb<W, N>(fold, Pass::template elements<Nested, W, N>(c, map, row, i, step), acc, any);
      any = true;
    }
    _Pragma("unroll 1") for (; i + W <= end; i += step) {
      absorb<W, 1>(fold, Pass::template elements<Nested, W, 1>(c, map, row, i, step), acc, any);
      any = true;
    }
    return any;
  }
  template <int W, int N>
  static KM_INL bool sweep(const call& c, const Map& map, const bank& fold, const place& row, i64 first, i64 step, i64 end,
                           state& total) {
    state acc[W];
    const bool any = collect<W, N>(c, map, fold, row, first, step, end, acc);
    if (any) {
      KM_UNROLL_ALL for (int s = 1; s < W; s *= 2)
        KM_UNROLL_ALL for (int w = 0; w + s < W; w += 2 * s) acc[w] = fold(acc[w], acc[w + s]);
      total = acc[0];
    }
    return any;
  }

  // What thread t of T has of the elements low .. high - 1, and of how many threads that holds, the first ones.  `low` is a
  // multiple of V.
  static KM_INL i64 share(const call& c, const Map& map, const bank& fold, const place& row, i64 low, i64 high, int t, int T,
                          state& total) {
    const bool packets = Pass::template packets_fit<Nested, V>(c, row);
    const int wide = packets ? V : 1;
    const i64 first = low + t * wide, step = T * wide;
    bool any;
    if (packets)
      any = sweep<V, U>(c, map, fold, row, first, step, high, total);
    else
      any = sweep<1, (V * U > 8 ? 8 : V * U)>(c, map, fold, row, first, step, high, total);
    const i64 whole = (high - low) / wide, left = high - low - whole * wide;
    _Pragma("unroll 1") for (i64 i = t; i < left; i += T) {  // once, but where a team is smaller than a packet
      const state one = Pass::template elements<Nested, 1, 1>(c, map, row, low + whole * wide + i, 1).item[0];
      total = any ? fold(total, one) : one;
      any = true;
    }
    return larger(smaller<i64>(whole, T), left);
  }

  // A block for each piece of a sequence.
  template <int T>
  static KM_INL void blocks(const call& c) {
    __shared__ block_storage<state, T> storage;
    const Map map(c.captures);
    const bank fold(c.captures);
    _Pragma("unroll 1") for (i64 unit = blockIdx.x; unit < c.units * c.pieces; unit += gridDim.x) {
      const i64 row = quotient(unit, c.pieces), piece = unit - row * c.pieces;
      const i64 low = piece * c.piece, high = smaller(c.length, low + c.piece);
      state made;
      const i64 count = share(c, map, fold, Pass::sequence(c, row), low, high, (int)threadIdx.x, T, made);
      made = block_reduce<T>(made, fold, storage, (int)smaller<i64>(count, T));
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
      state made;
      const i64 count = share(c, map, fold, Pass::sequence(c, row), 0, c.length, t, T, made);
      made = team_reduce<T>(made, fold, count);
      if (t == 0 && mine < c.units) Pass::store(c, fold, made, row);
    }
  }

  // ---- many short sequences: T neighbouring lanes take Q packets each, which is all there is, of R sequences at a time

  static KM_INL bool all_aligned(const call& c) {
    place p;
    KM_UNROLL_ALL for (int k = 0; k < Pass::inputs; k++) {
      uptr bits = (uptr)c.data[k];
      for (int d = 0; d < (int)c.kept; d++) bits |= (uptr)c.strides[k][d];  // aligned where all of them are
      p.at[k] = (const char*)bits;
    }
    return Pass::template are_aligned<false, V>(c, p);
  }
  // All lanes of a sequence of n elements, one each, by halving.
  template <int N>
  static KM_INL state halve_few(const bank& fold, state* lane, i64 n) {
    KM_UNROLL_ALL for (int s = warp_size / 2; s > 0; s /= 2)
      KM_UNROLL_ALL for (int j = 0; j < s && j + s < N; j++)
        if (j + s < n) lane[j] = fold(lane[j], lane[j + s]);
    return lane[0];
  }
  template <int Threads, int T, int Q, int R, bool Tree>
  static KM_INL void few(const call& c) {
    if (!all_aligned(c)) {
      if constexpr (Tree) return tree_teams<Threads>(c);
      else return teams<Threads, T>(c);
    }
    static_assert(!Tree || T == 1, "one thread has all lanes");
    const Map map(c.captures);
    const bank fold(c.captures);
    const int t = (int)threadIdx.x % T;
    const i64 each = Threads / T, packets = c.length / V;
    _Pragma("unroll 1") for (i64 first = (i64)blockIdx.x * each * R; first < c.units; first += (i64)gridDim.x * each * R) {
      const i64 mine = first + (int)threadIdx.x / T;
      place from[R * Q];
      KM_UNROLL_ALL for (int r = 0; r < R; r++) {
        const place row = Pass::sequence(c, smaller(mine + r * each, c.units - 1));
        KM_UNROLL_ALL for (int q = 0; q < Q; q++)
          from[r * Q + q] = Pass::template element_of<false>(c, row, (int)c.ndim, smaller<i64>(t + q * T, packets - 1) * V);
      }
      auto some = Pass::template read<V, R * Q>(c, map, from);
      KM_UNROLL_ALL for (int r = 0; r < R; r++) {
        state* one = some.item + r * Q * V;
        if constexpr (Tree) {
          one[0] = halve_few<Q * V>(fold, one, c.length);
        } else {
          KM_UNROLL_ALL for (int q = 1; q < Q; q++) {
            if (t + q * T >= packets) continue;
            KM_UNROLL_ALL for (int v = 0; v < V; v++) one[v] = fold(one[v], one[q * V + v]);
          }
          KM_UNROLL_ALL for (int s = 1; s < V; s *= 2)
            KM_UNROLL_ALL for (int v = 0; v + s < V; v += 2 * s) one[v] = fold(one[v], one[v + s]);
          one[0] = team_reduce<T>(one[0], fold, packets);
        }
        if (t == 0 && mine + r * each < c.units) Pass::store(c, fold, one[0], mine + r * each);
      }
    }
  }

  // ---- the order of the reduction tree: 32 threads have its 32 or 64 lanes

  template <int J>
  static KM_INL void feed(const bank& fold, state (&acc)[2], const state& value, int u, bool seed) {
    constexpr int slots = Pass::lanes_of(J) / warp_size;
    auto& to = at<J>(acc[u % slots]);
    to = seed && u < slots ? at<J>(value) : fold_of<J>(fold)(to, at<J>(value));
  }
  template <int... J>
  static KM_INL void feed_all(const bank& fold, state (&acc)[2], const state& value, int u, bool seed, indices<J...>) {
    (feed<J>(fold, acc, value, u, seed), ...);
  }
  template <int J>
  static KM_INL void halve(const bank& fold, state (&acc)[2], int lane, i64 n) {
    const auto& f = fold_of<J>(fold);
    auto value = at<J>(acc[0]);
    if constexpr (Pass::lanes_of(J) > warp_size)
      if (lane + warp_size < n) value = f(value, at<J>(acc[1]));
    KM_UNROLL_ALL for (int s = warp_size / 2; s > 0; s /= 2) {
      const auto other = shuffle_down(value, s);
      if (lane < s && lane + s < n) value = f(value, other);
    }
    at<J>(acc[0]) = value;
  }
  template <int... J>
  static KM_INL void halve_all(const bank& fold, state (&acc)[2], int lane, i64 n, indices<J...>) {
    (halve<J>(fold, acc, lane, n), ...);
  }
  template <int N>
  static KM_INL void feed_each(const bank& fold, state (&acc)[2], const batch<state, N>& some, bool seed) {
    KM_UNROLL_ALL for (int u = 0; u < N; u++) feed_all(fold, acc, some.item[u], u, seed, typename Pass::every_fold());
  }
  // The result of a chunk, for which a whole warp calls, in lane 0.  While some elements are folded, the next ones are under
  // way; batches are of even length, so that each begins with the first lane of a thread.
  static KM_INL state chunk_of(const call& c, const Map& map, const bank& fold, const place& row, i64 low, i64 high) {
    constexpr int many = sizeof(state) <= 4 ? 32 : sizeof(state) <= 8 ? 16 : 8, few = 8;
    const int lane = (int)lane_id();
    state acc[2];
    bool seed = true;
    i64 i = low + lane;
    if (i + (many - 1) * warp_size < high) {
      auto some = Pass::template elements<Nested, 1, many>(c, map, row, i, warp_size);
      bool more;
      do {
        i += many * warp_size;
        more = i + (many - 1) * warp_size < high;
        auto next = some;
        if (more) next = Pass::template elements<Nested, 1, many>(c, map, row, i, warp_size);
        feed_each<many>(fold, acc, some, seed);
        some = next;
        seed = false;
      } while (more);
    }
    _Pragma("unroll 1") for (; i + (few - 1) * warp_size < high; i += few * warp_size) {
      feed_each<few>(fold, acc, Pass::template elements<Nested, 1, few>(c, map, row, i, warp_size), seed);
      seed = false;
    }
    KM_UNROLL_ALL for (int u = 0; u < few - 1; u++) {
      if (i + u * warp_size < high) {
        const auto one = Pass::template elements<Nested, 1, 1>(c, map, row, i + u * warp_size, 1);
        feed_all(fold, acc, one.item[0], u, seed, typename Pass::every_fold());
      }
    }
    halve_all(fold, acc, lane, high - low, typename Pass::every_fold());
    return acc[0];
  }

  // A warp for each sequence, of at most one chunk.
  template <int Threads>
  static KM_INL void tree_teams(const call& c) {
    const Map map(c.captures);
    const bank fold(c.captures);
    _Pragma("unroll 1") for (i64 first = (i64)blockIdx.x * Threads; first < c.units * warp_size;
                             first += (i64)gridDim.x * Threads) {
      const i64 row = (first + threadIdx.x) / warp_size;
      if (row >= c.units) return;  // the whole warp
      const state made = chunk_of(c, map, fold, Pass::sequence(c, row), 0, c.length);
      if (lane_id() == 0) Pass::store(c, fold, made, row);
    }
  }
  // A warp for each chunk; a piece is as many chunks as a block has warps.
  template <int Threads>
  static KM_INL void tree_blocks(const call& c) {
    __shared__ block_storage<state, Threads> storage;
    const Map map(c.captures);
    const bank fold(c.captures);
    const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id();
    const i64 chunk = c.piece / storage.warps;
    _Pragma("unroll 1") for (i64 unit = blockIdx.x; unit < c.units * c.pieces; unit += gridDim.x) {
      const i64 row = quotient(unit, c.pieces), piece = unit - row * c.pieces, low = piece * c.piece + warp * chunk;
      state made;
      if (low < c.length) {
        made = chunk_of(c, map, fold, Pass::sequence(c, row), low, smaller(c.length, low + chunk));
        if (lane == 0) storage[warp] = made;
      }
      block_barrier();
      const i64 filled = smaller<i64>(storage.warps, ceil_div(c.length - piece * c.piece, chunk));
      if (warp == 0) made = warp_reduce(storage[lane < filled ? lane : 0], fold, (int)filled);
      block_barrier();
      Pass::template deliver<Threads>(c, fold, made, row, piece, storage);
    }
  }
};

}  // namespace km
