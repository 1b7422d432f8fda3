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

// Functions with loops over elements, and the control flow around them.  Both exist once, and g++
// is told to spend its time on the former.
#if defined(__clang__)
#define KM_LOOP KM_HOT
#define KM_DRIVER KM_COLD
#else
#define KM_LOOP __attribute__((noinline, noclone, hot))
#define KM_DRIVER __attribute__((noinline, noclone, cold, optimize("O1")))
#endif

namespace km {

constexpr i64 chunk_elements = 16384;
constexpr i64 run_elements = 16;

template <class, class> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

// The type of a lane, where there are registers of them.
template <bool Vectors, class T> struct lane_word {
  typedef T type;
};
template <class T> struct lane_word<false, T> {
  typedef u8 type;
};

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
// All bits of a register, or none, and the bits of one register or another by such a mask.
template <class V> KM_INL V all_or_none(bool all) {
  typedef i8 bytes __attribute__((vector_size(sizeof(V))));
  return (V)(bytes{} - (i8)all);
}
template <class V> KM_INL V choose(V mask, V yes, V no) {
  typedef i64 bits __attribute__((vector_size(sizeof(V))));
  return (V)(((bits)yes & (bits)mask) | ((bits)no & ~(bits)mask));
}
// 0, 1, 2 ...
template <class V, int... J> KM_INL V counted(indices<J...>) { return V{J...}; }
// Lane j + S of a register in lane j, those below S at the end.
template <int S, class V, int... J> KM_INL V lanes_from(V v, indices<J...>) {
#if defined(__clang__)
  return __builtin_shufflevector(v, v, ((J + S) % (int)sizeof...(J))...);
#else
  typedef decltype(v == v) numbers;
  return __builtin_shuffle(v, numbers{((J + S) % (int)sizeof...(J))...});
#endif
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
  static KM_LOOP void combine(const Map& map, const F& f, A* acc, i64 n, bool seed, char* const* p,
                             const i64* s) {
    sweep_at(map, f, acc, n, seed, p, s, indices_of<(int)sizeof...(I)>());
  }
  static KM_LOOP void pair_each(const F& fold, A* KM_R left, const A* KM_R right, i64 n) {
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
  static constexpr int registers = (int)(L * sizeof(A)) / KM_VECTOR_BYTES,
                       wide = KM_VECTOR_BYTES / (int)sizeof(word);
  static constexpr i64 B = KM_VECTOR_BYTES;
  typedef typename lane_word<F::vectors, word>::type lane_type;
  typedef lane_type V __attribute__((vector_size(KM_VECTOR_BYTES)));

  // Whole blocks of L elements of one sequence, lane by lane.
  static KM_INL void blocks(const Map& map, const F& f, A* acc, i64 count,
                            const reader<I>&... from) {
    if constexpr (packed) {
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
      // Lanes stay in registers for some rounds; several inputs would then be read in too many places.
      constexpr int rounds = ((I::pattern == strided) || ...) ? 2 : sizeof...(I) == 1 ? 4 : 1;
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

  // lane[j] = f(lane[j], lane[j + s]) for all j < s of n lanes, where both exist, for s = L / 2
  // ... 1.  With Full there are L lanes.
  template <bool Full> static KM_INL A join(const F& f, A* acc, i64 n) {
    if constexpr (F::vectors) {
      V a[registers];
      __builtin_memcpy(a, acc, sizeof(a));
      return join_registers<Full>(f, a, n);
    } else {
      for (i64 s = L / 2; s > 0; s /= 2)
        for (i64 j = 0; j < s && j + s < n; j++) acc[j] = f(acc[j], acc[j + s]);
      return acc[0];
    }
  }
  template <bool Full> static KM_INL A join_registers(const F& f, V* a, i64 n) {
    KM_UNROLL_ALL
    for (int half = registers / 2; half > 0; half /= 2)
      for (int r = 0; r < half; r++) meet<Full>(f, a[r], a[r + half], (half + r) * wide, n);
    return join_register<Full>(f, a[0], n);
  }
  // a = f(a, b) in the lanes where b, from lane `first` on, is one of n.
  template <bool Full, class W>
  static KM_INL void meet(const F& f, W& a, W b, int first, i64 n) {
    b = f.vec(a, b);
    if constexpr (Full) {
      a = b;
    } else {
      typedef decltype(a == b) numbers;
      typedef __typeof__(numbers{}[0]) number;
      constexpr int count = (int)(sizeof(W) / sizeof(A));
      const numbers lane = counted<numbers>(indices_of<count>());
      a = lane < numbers{} + (number)(n - first) ? b : a;
    }
  }
  // By halves of a register down to the smallest one, then by its lanes.
  template <bool Full, class W> static KM_INL A join_register(const F& f, W a, i64 n) {
    if constexpr (sizeof(W) > 16) {
      typedef word H __attribute__((vector_size(sizeof(W) / 2)));
      H low, high;
      __builtin_memcpy(&low, &a, sizeof(H));
      __builtin_memcpy(&high, (char*)&a + sizeof(H), sizeof(H));
      meet<Full>(f, low, high, (int)(sizeof(H) / sizeof(A)), n);
      return join_register<Full>(f, low, n);
    } else {
      return join_within<Full, (int)(8 / sizeof(A))>(f, a, n);
    }
  }
  template <bool Full, int S, class W> static KM_INL A join_within(const F& f, W a, i64 n) {
    if constexpr (S > 0) {
      meet<Full>(f, a, lanes_from<S>(a, indices_of<(int)(16 / sizeof(A))>()), S, n);
      return join_within<Full, S / 2>(f, a, n);
    } else {
      return (A)a[0];
    }
  }

  // The result of a whole chunk of n elements of one sequence.
  static KM_INL A whole(const Map map, const F f, i64 n, const reader<I>... from) {
    alignas(64) A acc[L];
    [[maybe_unused]] i64 first = smaller(n, L), done = larger(n / L, i64(1)) * L;
    if constexpr (packed) {
      if (n < L) return close_row(f, acc, n, (from.at, ...));
      __builtin_memcpy(acc, (from.at, ...), sizeof(acc));
    } else {
      KM_IVDEP
      for (i64 j = 0; j < first; j++) acc[j] = base::value(map, j, from...);
    }
    if (n > L) blocks(map, f, acc, n / L - 1, from.ahead(L)...);
    if constexpr (packed)
      return close_row(f, acc, n, (from.at, ...));
    KM_IVDEP
    for (i64 j = done; j < n; j++) acc[j - done] = f(acc[j - done], base::value(map, j, from...));
    return join<false>(f, acc, first);
  }
  // The tree of n elements at `at`, whose whole rounds of L are in the lanes already.
  static KM_LOOP A close_row(const F& fold, A* acc, i64 n, const char* at) {
    const F f = fold;
    if (n < L) {
      V a[registers];
      for (i64 r = 0, done = 0; r < registers; r++, done += B)
        a[r] = load_some<V>(at + done, n * (i64)sizeof(A) - done, done);
      return join_registers<false>(f, a, n);
    }
    add_tail(f, acc, (u64)n % L * sizeof(A), at + (u64)n / L * L * sizeof(A));
    return join<true>(f, acc, L);
  }
  // Bytes at `at`, fewer than those of the lanes, after whole rounds.
  static KM_INL void add_tail(const F& f, A* acc, i64 left, const char* at) {
    for (char* lanes = (char*)acc; left > 0; left -= B, at += B, lanes += B) {
      V a;
      __builtin_memcpy(&a, lanes, B);
      a = first_lanes(left, f.vec(a, load_some<V>(at, left, B)), a);
      __builtin_memcpy(lanes, &a, B);
    }
  }
  // The tree over the first n lanes.
  static KM_LOOP A join_lanes(const F& fold, A* acc, i64 n) {
    const F f = fold;
    return join<false>(f, acc, n);
  }
  template <int... J>
  static KM_INL A whole_at(const Map& map, const F& f, i64 n, char* const* p, const i64* s,
                           indices<J...>) {
    return whole(map, f, n, reader<I>(p[J], s[J])...);
  }
  // The same for `count` sequences, `step` apart.
  static KM_LOOP void each_whole(const Map& map, const F& f, A* to, i64 count, i64 n,
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
  static KM_DRIVER void feed(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 width,
                             bool dense, char* const* start, const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 lane = q % L, m = dense ? smaller(n, L - lane) : 1;
      base::combine(map, f, acc + lane * width, m * width, q < L, p, s);
      for (int k = 0; k < operands; k++) p[k] += m * down[k];
      q += m;
      n -= m;
    }
  }
  // Combines the lanes of a chunk of n elements; the result is in slot 0.
  static KM_DRIVER void close(const F& fold, A* acc, i64 n, i64 width) {
    for (i64 step = L / 2; step > 0; step /= 2)
      if (n > step) base::pair(fold, acc, acc + step * width, smaller(step, n - step) * width);
  }
};

}  // namespace km
