// reduce_tree.hpp - one fold over one chunk, in the fixed order of docs/reference/reduction-tree.md: strided lanes for
// commutative operators, runs of 16 for the others.  Which elements make a chunk, and threads, are in reduce.hpp.
//
// Both trees work on `width` columns at once: slot j of a tree is a row of `width` accumulators.  Columns never meet, so the
// bits are the same for any width; width 1 is the ordinary reduction of a sequence.
#pragma once
#include "fold.hpp"
#include "layout.hpp"

namespace km {

constexpr i64 chunk_elements = 16384;
constexpr i64 run_elements = 16;

// What a map of the caller's derives from.
struct mapped {
  static constexpr bool plain = false;
};
// The map that hands the one input to every fold as it is.
template <class T>
struct same {
  static constexpr bool plain = true;
  KM_INL T operator()(T a) const { return a; }
};

// Fold F, number K of N, of the values that Map makes of the inputs I.
template <class Map, int K, int N, class F, class... I>
struct tree_base {
  typedef typename F::acc A;
  static constexpr int values = Map::plain ? 1 : N;  // km::same feeds its one value to every fold
  template <class... R>
  static KM_INL A value(const Map& map, i64 i, const R&... from) { return result<K, values>(map(from[i]...)); }

  // acc[j] = value(j), or f(acc[j], value(j)).
  static KM_INL void sweep(const Map map, const F f, A* KM_R acc, i64 n, bool seed, reader<I>... from) {
    if (seed) {
      KM_IVDEP
      for (i64 j = 0; j < n; j++) acc[j] = value(map, j, from...);
    } else {
      KM_IVDEP
      for (i64 j = 0; j < n; j++) acc[j] = f(acc[j], value(map, j, from...));
    }
  }
  template <int... J>
  static KM_INL void sweep_at(const Map& map, const F& f, A* acc, i64 n, bool seed, char* const* p, const i64* s,
                              indices<J...>) {
    sweep(map, f, acc, n, seed, reader<I>(p[J], s[J])...);
  }
  static KM_HOT void combine(const Map& map, const F& f, A* acc, i64 n, bool seed, char* const* p, const i64* s) {
    sweep_at(map, f, acc, n, seed, p, s, indices_of<(int)sizeof...(I)>());
  }
};

template <class Map, int K, int N, class F, class... I>
struct lane_tree : tree_base<Map, K, N, F, I...> {
  typedef tree_base<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 L = sizeof(A) <= 4 ? 64 : 32, slots = L;
  static constexpr bool packed = F::vectors && Map::plain && ((I::pattern == contiguous) && ...);

  // Whole blocks of L elements of one sequence, lane by lane.
  static KM_INL void blocks(const Map map, const F f, A* acc, i64 count, reader<I>... from) {
    if constexpr (packed) {
      typedef typename F::lane V __attribute__((vector_size(KM_VECTOR_BYTES)));
      constexpr int B = KM_VECTOR_BYTES, R = (int)(L * sizeof(A)) / B;
      V a[R];
      KM_UNROLL_ALL
      for (int r = 0; r < R; r++) __builtin_memcpy(&a[r], (const char*)acc + r * B, B);
      const char* at = (from.at, ...);
      for (; count > 0; count--, at += R * B) {
        KM_UNROLL_ALL
        for (int r = 0; r < R; r++) {
          V v;
          __builtin_memcpy(&v, at + r * B, B);
          a[r] = f.vec(a[r], v);
        }
      }
      KM_UNROLL_ALL
      for (int r = 0; r < R; r++) __builtin_memcpy((char*)acc + r * B, &a[r], B);
    } else {
      for (i64 i = 0; count > 0; count--, i += L) {
        KM_IVDEP
        for (i64 j = 0; j < L; j++) acc[j] = f(acc[j], base::value(map, i + j, from...));
      }
    }
  }
  template <int... J>
  static KM_INL void blocks_at(const Map& map, const F& f, A* acc, i64 count, char* const* p, const i64* s, indices<J...>) {
    blocks(map, f, acc, count, reader<I>(p[J], s[J])...);
  }
  static KM_HOT void fold_blocks(const Map& map, const F& f, A* acc, i64 count, char* const* p, const i64* s) {
    blocks_at(map, f, acc, count, p, s, indices_of<(int)sizeof...(I)>());
  }

  // Elements q, q + 1, ... q + n - 1 of a chunk: `down` leads from one to the next, `s` from column to column.
  static KM_INL void feed(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 width, bool dense, char* const* start,
                          const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 lane = q % L, m = smaller(n, L - lane);
      if (width == 1 && lane == 0 && q != 0 && n >= L) {
        m = n / L * L;
        fold_blocks(map, f, acc, n / L, p, s);
      } else if (dense) {
        base::combine(map, f, acc + lane * width, m * width, q < L, p, s);
      } else {
        m = 1;
        base::combine(map, f, acc + lane * width, width, q < L, p, s);
      }
      for (int k = 0; k < operands; k++) p[k] += m * down[k];
      q += m;
      n -= m;
    }
  }

  // Combines the lanes of a chunk of n elements; the result is in slot 0.
  static KM_HOT void close(const F& fold, A* KM_R acc, i64 n, i64 width) {
    const F f = fold;
    for (i64 step = L / 2; step > 0; step /= 2) {
      i64 m = smaller(step, n - step) * width;
      const A* KM_R other = acc + step * width;
      KM_IVDEP
      for (i64 j = 0; j < m; j++) acc[j] = f(acc[j], other[j]);
    }
  }
};

template <class Map, int K, int N, class F, class... I>
struct ordered_tree : tree_base<Map, K, N, F, I...> {
  typedef tree_base<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 slots = 13;  // the run at work, then one waiting partner for each level of pairs

  static KM_HOT void join(const F& fold, A* acc, const A* left, i64 width) {
    const F f = fold;
    KM_IVDEP
    for (i64 j = 0; j < width; j++) acc[j] = f(left[j], acc[j]);
  }
  // `count` equal parts are complete, the last one in slot 0: combine what pairs up from `level` on, store the rest.
  static KM_COLD void push(const F& f, A* acc, i64 count, int level, i64 width) {
    for (; !(count & 1); count >>= 1, level++) join(f, acc, acc + (1 + level) * width, width);
    __builtin_memcpy((void*)(acc + (1 + level) * width), (const void*)acc, (usize)width * sizeof(A));
  }

  // Sixteen runs side by side: their chains are independent.
  static KM_INL void side_by_side(const Map map, const F f, A* acc, reader<I>... from) {
    A r[run_elements];
    for (i64 u = 0; u < run_elements; u++) r[u] = base::value(map, u * run_elements, from...);
    for (i64 e = 1; e < run_elements; e++)
      for (i64 u = 0; u < run_elements; u++) r[u] = f(r[u], base::value(map, u * run_elements + e, from...));
    for (i64 step = 1; step < run_elements; step *= 2)
      for (i64 u = 0; u < run_elements; u += 2 * step) r[u] = f(r[u], r[u + step]);
    acc[0] = r[0];
  }
  template <int... J>
  static KM_INL void side_by_side_at(const Map& map, const F& f, A* acc, char* const* p, const i64* s, indices<J...>) {
    side_by_side(map, f, acc, reader<I>(p[J], s[J])...);
  }
  static KM_HOT void fold_runs(const Map& map, const F& f, A* acc, char* const* p, const i64* s) {
    side_by_side_at(map, f, acc, p, s, indices_of<(int)sizeof...(I)>());
  }

  static KM_INL void feed(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 width, bool, char* const* start,
                          const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    constexpr i64 square = run_elements * run_elements;
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 m = 1;
      if (width == 1 && n >= square && q % square == 0) {
        fold_runs(map, f, acc, p, s);
        m = square;
        push(f, acc, q / square + 1, 4, width);
      } else {
        base::combine(map, f, acc, width, q % run_elements == 0, p, s);
        if ((q + 1) % run_elements == 0) push(f, acc, (q + 1) / run_elements, 0, width);
      }
      for (int k = 0; k < operands; k++) p[k] += m * down[k];
      q += m;
      n -= m;
    }
  }
  static KM_COLD void close(const F& f, A* acc, i64 n, i64 width) {
    bool open = n % run_elements != 0;
    i64 count = n / run_elements;
    for (int level = 0; count >> level; level++) {
      if (!(count >> level & 1)) continue;
      const A* left = acc + (1 + level) * width;
      if (open) join(f, acc, left, width);
      else __builtin_memcpy((void*)acc, (const void*)left, (usize)width * sizeof(A));
      open = true;
    }
  }
};

template <bool Ordered, class Map, int K, int N, class F, class... I> struct tree_of;
template <class Map, int K, int N, class F, class... I>
struct tree_of<false, Map, K, N, F, I...> : lane_tree<Map, K, N, F, I...> {};
template <class Map, int K, int N, class F, class... I>
struct tree_of<true, Map, K, N, F, I...> : ordered_tree<Map, K, N, F, I...> {};

}  // namespace km
