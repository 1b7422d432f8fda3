// reduce_columns.hpp - one commutative fold over a chunk of many columns at once.  A tree of eight
// rows is combined in registers, so that accumulators are a small part of what is read and written.
// The order is that of reduce_tree.hpp; which elements make a chunk is in reduce.hpp.
#pragma once
#include "reduce_tree.hpp"

namespace km {

template <class Map, int K, int N, class F, class... I>
struct column_tree : lane_tree<Map, K, N, F, I...> {
  typedef lane_tree<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 L = base::L, size = (i64)sizeof(A), B = KM_VECTOR_BYTES;
  static constexpr bool packed = base::packed && sizeof...(I) == 1;
  // Rounds of L elements that are folded at once.
  static constexpr i64 rounds = packed ? 8 : 1;
  typedef typename base::V V;

  static KM_INL void store_some(char* at, V v, i64 left) {
    if (KM_LIKELY(left >= B))
      __builtin_memcpy(at, &v, sizeof(v));
    else
      __builtin_memcpy(at, &v, (usize)left);
  }
  static KM_INL V load_whole(const char* at) {
    V v;
    __builtin_memcpy(&v, at, B);
    return v;
  }
  // to = the tree of eight rows of n accumulators, those whose bit is in `have`, the first one
  // among them: distance four, then two, then one.  The lines `ahead` of the rows are asked for.
  static KM_LOOP void tree(const F& fold, A* to, i64 n, u32 have, char* const* rows, i64 ahead) {
    const F f = fold;
    const char* p[8];
    V there[8];
    for (int k = 0; k < 8; k++) {
      p[k] = rows[have >> k & 1 ? k : 0];
      there[k] = all_or_none<V>(have >> k & 1);
    }
    i64 at = 0, bytes = n * size;
    const auto ask = [&](int k) __attribute__((always_inline)) {
      __builtin_prefetch(p[k] + at + ahead, 0, 2);
    };
    for (; have == 255 && at + B <= bytes; at += B) {
      const auto both = [&](int k) __attribute__((always_inline)) {
        ask(k), ask(k + 4);
        return f.vec(load_whole(p[k] + at), load_whole(p[k + 4] + at));
      };
      V even = f.vec(both(0), both(2)), odd = f.vec(both(1), both(3));
      even = f.vec(even, odd);
      __builtin_memcpy((char*)to + at, &even, B);
    }
    for (; at < bytes; at += B) {
      const auto row = [&](int k) __attribute__((always_inline)) {
        return load_some<V>(p[k] + at, bytes - at, at);
      };
      const auto both = [&](int k) __attribute__((always_inline)) {
        ask(k), ask(k + 4);
        V a = row(k);
        return choose(there[k + 4], f.vec(a, row(k + 4)), a);
      };
      V even = both(0), odd = both(1);
      even = choose(there[2], f.vec(even, both(2)), even);
      odd = choose(there[3], f.vec(odd, both(3)), odd);
      store_some((char*)to + at, choose(there[1], f.vec(even, odd), even), bytes - at);
    }
  }
  // to = `from` and `count` rows, from left to right.
  static KM_LOOP void chain(const F& fold, A* to, const char* from, i64 n, i64 count,
                           char* const* rows, i64 ahead) {
    const F f = fold;
    for (i64 at = 0, bytes = n * size; at < bytes; at += B) {
      V a = load_some<V>(from + at, bytes - at, at);
      for (i64 k = 0; k < count; k++) {
        __builtin_prefetch(rows[k] + at + ahead, 0, 2);
        a = f.vec(a, load_some<V>(rows[k] + at, bytes - at, at));
      }
      store_some((char*)to + at, a, bytes - at);
    }
  }

  static KM_INL void pair(const F& f, A* left, A* right, i64 n) {
    char* const rows[] = {(char*)left, (char*)right};
    join_rows(f, left, right - left, n, 3, rows, 0);
  }
  // acc = f(... f(acc, row 0) ..., row count - 1), or without acc for the first elements.
  static KM_INL void fold_rows(const Map& map, const F& f, A* acc, i64 n, bool seed, i64 count,
                               char* const (*p)[(int)sizeof...(I) + N], const i64* s, i64 ahead) {
    if constexpr (packed) {
      char* rows[rounds];
      for (i64 k = 0; k < count; k++) rows[k] = p[k][0];
      chain(f, acc, seed ? rows[0] : (const char*)acc, n, count - seed, rows + seed, ahead);
    } else {
      for (i64 k = 0; k < count; k++) base::combine(map, f, acc, n, seed && k == 0, p[k], s);
    }
  }
  // The tree of eight rows, those in `have`, into acc: the packed ones lie at `rows`, the others at
  // acc, acc + pitch ...
  static KM_INL void join_rows(const F& f, A* acc, i64 pitch, i64 n, u32 have, char* const* rows,
                               i64 ahead) {
    if constexpr (packed)
      tree(f, acc, n, have, rows, ahead);
    else
      for (i64 half = 4; half > 0; half /= 2)
        for (i64 k = 0; k < half; k++)
          if (have >> (k + half) & 1) base::pair(f, acc + k * pitch, acc + (k + half) * pitch, n);
  }
  // How many lanes the tree of n elements can have when second elements count as lanes of their
  // own: a lane of two is one more level of pairs.
  static KM_INL i64 all_lanes(i64 n) {
    i64 all = 1;
    while (all < n && all < L) all *= 2;
    return 2 * n >= 3 * L && n < 3 * L ? 2 * L : all;
  }
  // How many elements such a lane has; a third one has the second with it.
  static KM_INL i64 length(i64 lane, i64 n, i64 all) {
    if (all <= L) return ceil_div(n - lane, L);
    return lane < L ? (lane + 2 * L < n ? 3 : 1) : (lane + L < n ? 0 : 1);
  }
  // The tree over `lanes` that lie side by side, each of `width` columns: those at `from` into acc,
  // which may be the same.
  static KM_DRIVER void join_beside(const F& f, A* acc, char* from, i64 lanes, i64 width,
                                    i64 ahead) {
    i64 all = 2 * L, part;
    while (all / 2 >= lanes && all > 2) all /= 2;
    do {
      part = larger(all / 8, i64(1));  // lanes that stay
      const i64 whole = lanes / part, rest = lanes % part * width;
      char* p[9];
      for (i64 k = 0; k <= 8; k++) p[k] = from + k * part * width * size;
      if (rest) tree(f, acc, rest, (2u << whole) - 1, p, ahead);
      for (i64 k = 0; k < whole; k++) p[k] += rest * size;
      if (whole) tree(f, acc + rest, part * width - rest, (1u << whole) - 1, p, ahead);
      lanes = smaller(lanes, part);
      from = (char*)acc;
      ahead = 0;
    } while ((all = part) > 1);
  }
};

}  // namespace km
