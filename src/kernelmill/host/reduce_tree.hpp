// reduce_tree.hpp - one commutative fold over one chunk, in the fixed order of
// docs/reference/reduction-tree.md.  The tree of other operators is in reduce_ordered.hpp; which
// elements make a chunk, and threads, are in reduce.hpp.
//
// Trees work on `width` columns at once: slot j of a tree is a row of `width` accumulators. Columns
// never meet, so the bits are the same for any width; width 1 is the ordinary reduction of a
// sequence.
#pragma once
#include "fold.hpp"
#include "layout.hpp"

namespace km {

constexpr i64 chunk_elements = 16384;
constexpr i64 run_elements = 16;

template <class, class> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

// What a map of the caller's derives from.
struct mapped {
  static constexpr bool plain = false;
};
// The map that hands the one input to every fold as it is.
template <class T> struct same {
  static constexpr bool plain = true;
  KM_INL T operator()(T a) const { return a; }
};

// The first `left` bytes from one vector, the others from another.
alignas(64) constexpr u8 lane_mask[128] = {
#define KM_ONES 255, 255, 255, 255, 255, 255, 255, 255
    KM_ONES, KM_ONES, KM_ONES, KM_ONES, KM_ONES, KM_ONES, KM_ONES, KM_ONES};
#undef KM_ONES
template <class V> KM_INL V first_lanes(i64 left, V yes, V no) {
  typedef i8 bytes __attribute__((vector_size(sizeof(V))));
  bytes mask;
  __builtin_memcpy(&mask, lane_mask + 64 - clamp(left, 0, sizeof(V)), sizeof(V));
  return (V)(((bytes)yes & mask) | ((bytes)no & ~mask));
}
// The first `left` bytes of a register, if any; no byte after them is read. `before` bytes may be.
template <class V> KM_INL V load_some(const char* at, i64 left, i64 before) {
  constexpr i64 size = (i64)sizeof(V);
  V v;
#if defined(__AVX512BW__)
  if constexpr (size == 64) {
    u64 mask = left <= 0 ? 0 : ~u64(0) >> (64 - smaller(left, size));
    __asm__("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*(const unaligned<V>*)at), "Yk"(mask));
    return v;
  }
#endif
  if (left >= size) {
    __builtin_memcpy(&v, at, size);
    return v;
  }
  char both[2 * size] = {};
  if (left > 0 && before + left >= size) {
    __builtin_memcpy(both, at + left - size, size);
    __builtin_memcpy(&v, both + size - left, size);
  } else {
    if (left > 0) __builtin_memcpy(both, at, (usize)left);
    __builtin_memcpy(&v, both, size);
  }
  return v;
}

// Fold F, number K of N, of the values that Map makes of the inputs I.
template <class Map, int K, int N, class F, class... I> struct tree_base {
  typedef typename F::acc A;
  // The inputs are accumulators already: what combines elements combines accumulators as well.
  static constexpr bool direct =
      Map::plain && ((I::pattern == contiguous && same_type<typename I::type, A>) && ...);
  static constexpr int values = Map::plain ? 1 : N;  // km::same feeds its one value to every fold
  template <class... R> static KM_INL A value(const Map& map, i64 i, const R&... from) {
    return result<K, values>(map(from[i]...));
  }

  // acc[j] = value(j), or f(acc[j], value(j)).
  static KM_INL void sweep(const Map map, const F f, A* KM_R acc, i64 n, bool seed,
                           reader<I>... from) {
    if (seed) {
      KM_IVDEP
      for (i64 j = 0; j < n; j++) acc[j] = value(map, j, from...);
    } else {
      KM_IVDEP
      for (i64 j = 0; j < n; j++) acc[j] = f(acc[j], value(map, j, from...));
    }
  }
  template <int... J>
  static KM_INL void sweep_at(const Map& map, const F& f, A* acc, i64 n, bool seed, char* const* p,
                              const i64* s, indices<J...>) {
    sweep(map, f, acc, n, seed, reader<I>(p[J], s[J])...);
  }
  // to[j] = value(j).
  static KM_INL void copy_each(const Map map, A* KM_R to, i64 n, const reader<I>... from) {
    KM_IVDEP
    for (i64 j = 0; j < n; j++) to[j] = value(map, j, from...);
  }
  template <int... J>
  static KM_INL void copy_at(const Map& map, A* to, i64 n, char* const* p, const i64* s,
                             indices<J...>) {
    copy_each(map, to, n, reader<I>(p[J], s[J])...);
  }
  static KM_HOT void copy(const Map& map, A* to, i64 n, char* const* p, const i64* s) {
    copy_at(map, to, n, p, s, indices_of<(int)sizeof...(I)>());
  }
  static KM_HOT void combine(const Map& map, const F& f, A* acc, i64 n, bool seed, char* const* p,
                             const i64* s) {
    sweep_at(map, f, acc, n, seed, p, s, indices_of<(int)sizeof...(I)>());
  }
  static KM_HOT void pair_each(const F& fold, A* KM_R left, const A* KM_R right, i64 n) {
    const F f = fold;
    KM_IVDEP
    for (i64 j = 0; j < n; j++) left[j] = f(left[j], right[j]);
  }
  // left[j] = f(left[j], right[j]).
  static KM_INL void pair(const F& f, A* left, const A* right, i64 n) {
    if constexpr (direct) {
      char* const p[] = {(char*)right};
      const i64 s[] = {(i64)sizeof(A)};
      combine(Map(), f, left, n, false, p, s);
    } else {
      pair_each(f, left, right, n);
    }
  }
};

template <class Map, int K, int N, class F, class... I>
struct lane_tree : tree_base<Map, K, N, F, I...> {
  typedef tree_base<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 L = sizeof(A) <= 4 ? 64 : 32, slots = L;
  static constexpr bool packed = F::vectors && Map::plain && ((I::pattern == contiguous) && ...);

  // One register of lanes, where the fold has a vector form.
  typedef typename F::lane word;
  static constexpr int registers = (int)(L * sizeof(A)) / KM_VECTOR_BYTES;

  // Whole blocks of L elements of one sequence, lane by lane.
  static KM_INL void blocks(const Map& map, const F& f, A* acc, i64 count,
                            const reader<I>&... from) {
    if constexpr (packed) {
      typedef word V __attribute__((vector_size(KM_VECTOR_BYTES)));
      V a[registers];
      __builtin_memcpy(a, acc, sizeof(a));
      const char* at = (from.at, ...);
      for (; count > 0; count--, at += sizeof(a)) {
        KM_UNROLL_ALL
        for (int r = 0; r < registers; r++) {
          V v;
          __builtin_memcpy(&v, at + r * KM_VECTOR_BYTES, KM_VECTOR_BYTES);
          a[r] = f.vec(a[r], v);
        }
      }
      __builtin_memcpy(acc, a, sizeof(a));
    } else {
      constexpr int rounds = ((I::pattern == strided) || ...) ? 2 : 1;
      i64 i = 0;
      for (; count >= rounds; count -= rounds, i += rounds * L) {
        (from.prefetch(i + 8 * L, rounds * L),
         ...);  // the processor does not see through strided loads
        KM_IVDEP
        for (i64 j = 0; j < L; j++) {
          A a = acc[j];
          KM_UNROLL_ALL
          for (int r = 0; r < rounds; r++) a = f(a, base::value(map, i + r * L + j, from...));
          acc[j] = a;
        }
      }
      for (; count > 0; count--, i += L)
        for (i64 j = 0; j < L; j++) acc[j] = f(acc[j], base::value(map, i + j, from...));
    }
  }

  // lane[j] = f(lane[j], lane[j + S]) for all j < S of n lanes, where both exist; then the same for
  // S / 2 ...
  template <i64 S, bool Full> static KM_INL void halve(const F& f, A* acc, i64 n) {
    constexpr i64 bytes = S * (i64)sizeof(A);
    const i64 pairs = Full ? S : clamp(n - S, 0, S);
    if constexpr (F::vectors && bytes >= 16) {
      constexpr i64 B = bytes < KM_VECTOR_BYTES ? bytes : KM_VECTOR_BYTES;
      typedef word V __attribute__((vector_size(B)));
      KM_UNROLL_ALL
      for (i64 at = 0; at < bytes; at += B) {
        if (!Full && pairs * (i64)sizeof(A) <= at) break;
        V a, b;
        __builtin_memcpy(&a, (char*)acc + at, B);
        __builtin_memcpy(&b, (char*)acc + bytes + at, B);
        b = f.vec(a, b);
        a = Full ? b : first_lanes(pairs * (i64)sizeof(A) - at, b, a);
        __builtin_memcpy((char*)acc + at, &a, B);
      }
    } else {
      for (i64 j = 0; j < pairs; j++) acc[j] = f(acc[j], acc[j + S]);
    }
    if constexpr (S > 1) halve<S / 2, Full>(f, acc, n);
  }

  // The result of a whole chunk of n elements of one sequence.
  static KM_INL A whole(const Map map, const F f, i64 n, const reader<I>... from) {
    alignas(64) A acc[L];
    i64 first = smaller(n, L), done = n / L * L;
    if constexpr (packed) {
      if (n < L) return short_row(f, n, (from.at, ...));
      __builtin_memcpy(acc, (from.at, ...), sizeof(acc));
    } else {
      KM_IVDEP
      for (i64 j = 0; j < first; j++) acc[j] = base::value(map, j, from...);
    }
    if (n > L) blocks(map, f, acc, n / L - 1, from.ahead(L)...);
    if (n >= L) return rest(map, f, acc, done, n, from...);
    if constexpr (!packed)
      for (i64 step = L / 2; step > 0; step /= 2)
        for (i64 j = 0; j + step < n && j < step; j++) acc[j] = f(acc[j], acc[j + step]);
    return acc[0];
  }
  // Fewer elements than lanes.
  static KM_INL A short_row(const F& f, i64 n, const char* at) {
    constexpr i64 B = KM_VECTOR_BYTES;
    typedef word V __attribute__((vector_size(B)));
    alignas(64) A acc[L];
    for (i64 done = 0; done < (i64)sizeof(acc); done += B) {
      V v = load_some<V>(at + done, n * (i64)sizeof(A) - done, done);
      __builtin_memcpy((char*)acc + done, &v, B);
    }
    return join_lanes(f, acc, n);
  }
  // The tree over the first n lanes.
  static KM_HOT A join_lanes(const F& fold, A* acc, i64 n) {
    const F f = fold;
    halve<L / 2, false>(f, acc, n);
    return acc[0];
  }
  // All lanes hold elements, those before `done` are folded: the elements after it, and the tree.
  static KM_INL A rest(const Map& map, const F& f, A* acc, i64 done, i64 n,
                       const reader<I>&... from) {
    if constexpr (packed) {
      constexpr i64 B = KM_VECTOR_BYTES;
      typedef word V __attribute__((vector_size(B)));
      const char* at = (from.at, ...) + done * (i64)sizeof(A);
      char* lanes = (char*)acc;
      for (i64 left = (n - done) * (i64)sizeof(A); left > 0; left -= B, at += B, lanes += B) {
        V a;
        __builtin_memcpy(&a, lanes, B);
        a = first_lanes(left, f.vec(a, load_some<V>(at, left, B)), a);
        __builtin_memcpy(lanes, &a, B);
      }
    } else {
      KM_IVDEP
      for (i64 j = done; j < n; j++) acc[j - done] = f(acc[j - done], base::value(map, j, from...));
    }
    if constexpr (packed && N > 1) {
      return join_lanes(f, acc, L);
    } else {
      halve<L / 2, true>(f, acc, L);
      return acc[0];
    }
  }
  template <int... J>
  static KM_INL A whole_at(const Map& map, const F& f, i64 n, char* const* p, const i64* s,
                           indices<J...>) {
    return whole(map, f, n, reader<I>(p[J], s[J])...);
  }
  // The same for `count` sequences, `step` apart.
  static KM_HOT void each_whole(const Map& map, const F& f, A* to, i64 count, i64 n,
                                char* const* start, const i64* s, const i64* step) {
    constexpr int operands = (int)sizeof...(I);
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    for (i64 row = 0; row < count; row++) {
      to[row] = whole_at(map, f, n, p, s, indices_of<operands>());
      for (int k = 0; k < operands; k++) p[k] += step[k];
    }
  }

  // Elements q, q + 1, ... q + n - 1 of a chunk: `down` leads from one to the next, `s` from column
  // to column.
  static KM_INL void feed(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 width, bool dense,
                          char* const* start, const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 lane = q % L, m = smaller(n, L - lane);
      if (dense && lane == 0 && q != 0 && n >= 4 * L) {
        char* next[3][operands];
        for (int c = 0; c < 3; c++)
          for (int k = 0; k < operands; k++) next[c][k] = p[k] + (c + 1) * L * down[k];
        m = 4 * L;
        combine_four(map, f, acc, L * width, true, p, next[0], next[1], next[2], s);
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

  // A chunk of at most L elements, `down` apart, of at least one register of columns: a register at
  // a time, a quarter of the lanes at a time.  Meanwhile bytes after it, most likely those of the
  // next chunk, are asked for.
  static constexpr bool paneled = packed && sizeof...(I) == 1;
  static constexpr i64 panel = KM_VECTOR_BYTES / (i64)sizeof(A);
  static KM_HOT void panels(const F& fold, A* to, i64 n, i64 width, const char* at, i64 down) {
    typedef word V __attribute__((vector_size(KM_VECTOR_BYTES)));
    constexpr i64 quarter = L / 4;
    const char* next = at + n * down + 4096;  // a page further: what is needed first is under way
    const F f = fold;
    for (i64 column = 0; column < width; column += panel) {
      column = smaller(column, width - panel);  // the last ones once more
      const char* from = at + column * (i64)sizeof(A);
      const auto lane = [&](i64 i) __attribute__((always_inline)) {
        V v;
        __builtin_memcpy(&v, from + i * down, sizeof(V));
        __builtin_prefetch(next, 0, 2);
        next += sizeof(V);
        return v;
      };
      V parts[quarter];
      const i64 count = smaller(n, quarter);
      for (i64 j = 0; j < count; j++) {
        V a = lane(j);
        if (j + 2 * quarter < n) a = f.vec(a, lane(j + 2 * quarter));
        if (j + quarter < n) {
          V b = lane(j + quarter);
          if (j + 3 * quarter < n) b = f.vec(b, lane(j + 3 * quarter));
          a = f.vec(a, b);
        }
        parts[j] = a;
      }
      for (i64 step = quarter / 2; step > 0; step /= 2)
        for (i64 j = 0; j < step && j + step < count; j++)
          parts[j] = f.vec(parts[j], parts[j + step]);
      __builtin_memcpy((void*)(to + column), (const void*)parts, sizeof(V));
    }
  }

  // The tree of four rows of elements: distance two, then distance one; or, as a chain, acc and the
  // four rows from left to right.
  static KM_INL void sweep_four(const Map map, const F f, A* acc, i64 n, bool chain,
                                const reader<I>... a, const reader<I>... b, const reader<I>... c,
                                const reader<I>... d) {
    if (chain) {
      KM_IVDEP
      for (i64 j = 0; j < n; j++) {
        A left = f(f(acc[j], base::value(map, j, a...)), base::value(map, j, b...));
        acc[j] = f(f(left, base::value(map, j, c...)), base::value(map, j, d...));
      }
    } else {
      KM_IVDEP
      for (i64 j = 0; j < n; j++)
        acc[j] = f(f(base::value(map, j, a...), base::value(map, j, c...)),
                   f(base::value(map, j, b...), base::value(map, j, d...)));
    }
  }
  template <int... J>
  static KM_INL void sweep_four_at(const Map& map, const F& f, A* acc, i64 n, bool chain,
                                   char* const* a, char* const* b, char* const* c, char* const* d,
                                   const i64* s, indices<J...>) {
    sweep_four(map, f, acc, n, chain, reader<I>(a[J], s[J])..., reader<I>(b[J], s[J])...,
               reader<I>(c[J], s[J])..., reader<I>(d[J], s[J])...);
  }
  static KM_HOT void combine_four(const Map& map, const F& f, A* acc, i64 n, bool chain,
                                  char* const* a, char* const* b, char* const* c, char* const* d,
                                  const i64* s) {
    sweep_four_at(map, f, acc, n, chain, a, b, c, d, s, indices_of<(int)sizeof...(I)>());
  }

  static KM_HOT void join_each_four(const F& fold, A* KM_R acc, i64 n) {
    const F f = fold;
    const A *KM_R b = acc + n, *KM_R c = acc + 2 * n, *KM_R d = acc + 3 * n;
    KM_IVDEP
    for (i64 j = 0; j < n; j++) acc[j] = f(f(acc[j], c[j]), f(b[j], d[j]));
  }
  // The tree of four rows of accumulators.
  static KM_INL void join_four(const F& f, A* acc, i64 n) {
    if constexpr (base::direct) {
      char *const a[] = {(char*)acc}, *const b[] = {(char*)(acc + n)},
           *const c[] = {(char*)(acc + 2 * n)}, *const d[] = {(char*)(acc + 3 * n)};
      const i64 s[] = {(i64)sizeof(A)};
      combine_four(Map(), f, acc, n, false, a, b, c, d, s);
    } else {
      join_each_four(f, acc, n);
    }
  }

  // A chunk of 3 to L elements whose rows adjoin: the first two levels at once, straight from the
  // elements.  Returns how many lanes are left.
  static KM_COLD i64 first_levels(const Map& map, const F& f, A* acc, i64 n, i64 width,
                                  char* const* p, const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    i64 step = L / 4;
    while (2 * step >= n) step /= 2;
    i64 four = larger(n - 3 * step, i64(0)),
        three = smaller(step, n - 2 * step);  // rows with so many children
    char* q[4][operands];
    for (int c = 0; c < 4; c++)
      for (int k = 0; k < operands; k++) q[c][k] = p[k] + c * step * down[k];
    if (four) combine_four(map, f, acc, four * width, false, q[0], q[1], q[2], q[3], s);
    for (int c = 0; c < 3; c++)
      for (int k = 0; k < operands; k++) q[c][k] += four * down[k];
    base::combine(map, f, acc + four * width, (step - four) * width, true, q[0], s);
    base::combine(map, f, acc + four * width, (three - four) * width, false, q[2], s);
    base::combine(map, f, acc + four * width, (step - four) * width, false, q[1], s);
    return step;
  }

  // Combines the lanes of a chunk of n elements; the result is in slot 0.
  static KM_COLD void close(const F& fold, A* acc, i64 n, i64 width) {
    for (i64 step = L / 2; step > 0; step /= 2) {
      if (width > 1 && step > 1 && n >= 2 * step)
        join_four(fold, acc, (step /= 2) * width);
      else
        base::pair(fold, acc, acc + step * width, smaller(step, n - step) * width);
    }
  }
};

}  // namespace km
