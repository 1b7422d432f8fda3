// reduce_runs.hpp - one commutative fold over sequences that consist of runs, several sequences
// side by side: their runs are read in the order of memory, each into the lanes of its own
// sequence.  The order is that of reduce_tree.hpp; which runs make a chunk is in reduce.hpp.
#pragma once
#include "reduce_tree.hpp"

namespace km {

template <class Map, int K, int N, class F, class... I>
struct run_tree : lane_tree<Map, K, N, F, I...> {
  typedef lane_tree<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 L = base::L, size = (i64)sizeof(A), B = KM_VECTOR_BYTES;
  static constexpr bool packed = base::packed && sizeof...(I) == 1;
  static constexpr int operands = (int)sizeof...(I);
  typedef typename base::V V;

  // Bytes [low, high) of a register at `from`; no others are read where masks exist.
  static KM_INL V load_between(const char* from, i64 low, i64 high) {
#if defined(__AVX512BW__)
    if constexpr (B == 64) {
      V v;
      u64 mask = (~u64(0) >> (64 - high)) & (~u64(0) << low);
      __asm__("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*(const unaligned<V>*)from), "Yk"(mask));
      return v;
    }
#endif
    char both[B] = {};
    V v;
    __builtin_memcpy(both + low, from + low, (usize)(high - low));
    __builtin_memcpy(&v, both, B);
    return v;
  }
  // Bytes [low, high) of the lanes of `count` sequences meet as many bytes of elements at `at`,
  // `step` apart; with `seed` these are the first.  The lines `ahead` of them are asked for.
  static KM_LOOP void strip(const F& fold, char* acc, const char* at, i64 count, i64 step, i64 low,
                            i64 high, bool seed, i64 ahead) {
    const F f = fold;
    // Registers [whole, end) are covered whole.
    i64 whole = (low + B - 1) / B * B, end = high / B * B;
    if (seed || whole >= end) whole = end = -1;
    char* to = acc + whole;
    const char* from = at + (whole - low);
    for (i64 row = 0; row < count && end > 0; row++, from += step, to += L * size)
      for (i64 r = 0; r < end - whole; r += B) {
        V a, v;
        __builtin_memcpy(&a, to + r, B);
        __builtin_memcpy(&v, from + r, B);
        __builtin_prefetch(from + r + ahead, 0, 2);
        a = f.vec(a, v);
        __builtin_memcpy(to + r, &a, B);
      }
    for (i64 r = low / B * B;; r += B) {
      if (r == whole) r = end;
      if (r >= high) break;
      const i64 first = larger(low - r, i64(0)), left = smaller(high - r, B);
      const V none = all_or_none<V>(false), all = all_or_none<V>(true),
              mask = first_lanes(first, none, first_lanes(left, all, none)),
              fresh = all_or_none<V>(seed);
      to = acc + r;
      from = at + (r - low);
      for (i64 row = 0; row < count; row++, from += step, to += L * size) {
        V a, v = load_between(from, first, left);
        __builtin_memcpy(&a, to, B);
        __builtin_prefetch(from + ahead, 0, 2);
        a = choose(mask, choose(fresh, v, f.vec(a, v)), a);
        __builtin_memcpy(to, &a, B);
      }
    }
  }

  // Elements q ... q + n - 1 of `count` sequences, adjacent in each.
  static KM_DRIVER void fold_run(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 count,
                                 char* const* start, const i64* s, const i64* step, i64 ahead) {
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 lane = q % L, m = smaller(n, L - lane);
      if constexpr (packed) {
        if (lane == 0 && q > 0 && n >= 4 * L) {
          m = n / L * L;
          for (i64 row = 0; row < count; row++)
            base::blocks(map, f, acc + row * L, n / L, reader<I>(p[0] + row * step[0], 0)...);
        } else {
          strip(f, (char*)acc, p[0], count, step[0], lane * size, (lane + m) * size, q < L, ahead);
        }
      } else {
        char* beside[operands];
        for (int k = 0; k < operands; k++) beside[k] = p[k];
        for (i64 row = 0; row < count; row++) {
          base::combine(map, f, acc + row * L + lane, m, q < L, beside, s);
          for (int k = 0; k < operands; k++) beside[k] += step[k];
        }
      }
      for (int k = 0; k < operands; k++) p[k] += m * s[k];
      q += m;
      n -= m;
    }
  }
  // The trees over the lanes of `count` sequences.
  static KM_DRIVER void join_sequences(const Map& map, const F& f, A* to, A* acc, i64 count, i64 n) {
    if constexpr (packed) {
      char* const p[] = {(char*)acc};
      const i64 s[] = {size}, step[] = {L * size};
      base::each_whole(map, f, to, count, smaller(n, L), p, s, step);
    } else {
      for (i64 row = 0; row < count; row++, acc += L) base::close(f, acc, n, 1), to[row] = acc[0];
    }
  }
};

}  // namespace km
