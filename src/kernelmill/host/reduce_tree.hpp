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
// Rows of fewer elements are asked for so far ahead: the processor's own prefetching falls behind where
// each of them ends in a tree.
constexpr i64 ahead_elements = 4096, ahead_bytes = 8192;

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
// Of two registers, one after the other, every second run of S lanes: from the first one on, or with
// First = S from the second one on.
template <int S, int First, class V, int... J> KM_INL V each_second(V a, V b, indices<J...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (J / S * 2 * S + J % S + First)...);
#else
  typedef decltype(a == b) numbers;
  return __builtin_shuffle(a, b, numbers{(J / S * 2 * S + J % S + First)...});
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
  static constexpr i64 B = KM_VECTOR_BYTES, size = (i64)sizeof(A);
  typedef typename lane_word<F::vectors, word>::type lane_type;
  typedef lane_type V __attribute__((vector_size(KM_VECTOR_BYTES)));

  // Numbers of the registers, and of the lanes of one. All registers are named by such constants:
  // g++ keeps in memory what a loop counts.
  typedef indices_of<F::vectors ? registers : 1> each_register;
  typedef indices_of<F::vectors ? wide : 1> lanes;
  static KM_INL V load(const char* at) {
    V v;
    __builtin_memcpy(&v, at, sizeof(v));
    return v;
  }
  template <int... R> static KM_INL void load_round(V* a, const char* at, indices<R...>) {
    ((a[R] = load(at + R * B)), ...);
  }
  template <int... R>
  static KM_INL void fold_round(const F& f, V* a, const char* at, indices<R...>) {
    ((a[R] = f.vec(a[R], load(at + R * B))), ...);
  }
  // Whole blocks of L elements of one sequence, lane by lane.
  static KM_INL void blocks(const Map& map, const F& f, A* acc, i64 count,
                            const reader<I>&... from) {
    if constexpr (packed) {
      V a[registers];
      __builtin_memcpy(a, acc, sizeof(a));
      const char* at = (from.at, ...);
      for (; count > 0; count--, at += sizeof(a)) fold_round(f, a, at, each_register());
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
  // ... 1.
  static KM_INL A join(const F& f, A* acc, i64 n) {
    for (i64 s = L / 2; s > 0; s /= 2)
      for (i64 j = 0; j < s && j + s < n; j++) acc[j] = f(acc[j], acc[j + s]);
    return acc[0];
  }
  // The same down to the lanes of one register.  With Full there are L lanes.
  template <bool Full> static KM_INL V join_registers(const F& f, V* a, i64 n) {
    join_half<Full, registers / 2>(f, a, n);
    return a[0];
  }
  template <bool Full, int Half> static KM_INL void join_half(const F& f, V* a, i64 n) {
    if constexpr (Half > 0) {
      meet_all<Full, Half>(f, a, n, indices_of<Half>());
      join_half<Full, Half / 2>(f, a, n);
    }
  }
  template <bool Full, int Half, int... R>
  static KM_INL void meet_all(const F& f, V* a, i64 n, indices<R...>) {
    (meet<Full>(f, a[R], a[R + Half], (Half + R) * wide, n), ...);
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

  // All bits in the lanes before number `end` of each run of S.
  template <int S, int... J> static KM_INL V lanes_below(i64 end, indices<J...>) {
    typedef decltype(V{} == V{}) numbers;
    typedef __typeof__(numbers{}[0]) number;
    return (V)(numbers{(number)(J % S)...} < numbers{} + (number)clamp(end, 0, S));
  }
  // The results of `count` sequences of n elements, whose lanes are joined to one register each:
  // two of these share each operation of the next level, so that one register is left of as many
  // sequences as it has lanes.
  template <int S> static KM_INL void join_each(const F& f, V* top, i64 count, i64 n) {
    if constexpr (S > 0) {
      const V there = lanes_below<S>(n - S, lanes());
      if (count % 2) top[count] = top[count - 1];
      count = ceil_div(count, i64(2));
      for (i64 k = 0; k < count; k++) {
        V low = each_second<S, 0>(top[2 * k], top[2 * k + 1], lanes());
        V high = each_second<S, S>(top[2 * k], top[2 * k + 1], lanes());
        top[k] = choose(there, f.vec(low, high), low);
      }
      join_each<S / 2>(f, top, count, n);
    }
  }
  static KM_LOOP void join_tops(const F& fold, A* to, V* top, i64 count, i64 n) {
    const F f = fold;
    join_each<wide / 2>(f, top, count, n);
    __builtin_memcpy(to, top, B);
  }

  // A chunk of n elements of one sequence: its result, or one register of lanes that are to be joined.
  static KM_INL A whole(const Map map, const F f, i64 n, const reader<I>... from) {
    if constexpr (F::vectors) {
      const V left = top(map, f, n, from...);
      return join_top(f, &left, n);
    } else {
      alignas(64) A acc[L];
      return join(f, acc, fold_lanes(map, f, acc, n, from...));
    }
  }
  static KM_LOOP A join_top(const F& fold, const V* top, i64 n) {
    const F f = fold;
    return n < wide ? join_register<false>(f, *top, n) : join_register<true>(f, *top, wide);
  }
  static KM_INL V top(const Map map, const F f, i64 n, const reader<I>... from) {
    if constexpr (packed) {
      const char* at = (from.at, ...);
      if (n < L) return short_top(f, n, at);
      V a[registers];
      load_round(a, at, each_register());
      at += sizeof(a);
      for (i64 count = n / L; --count > 0; at += sizeof(a))
        fold_round(f, a, at, each_register());
      return top_after(f, a, n, at);
    } else {
      alignas(64) A acc[L] = {};
      V a[registers];
      n = fold_lanes(map, f, acc, n, from...);
      load_round(a, (const char*)acc, each_register());
      return n < L ? join_registers<false>(f, a, n) : join_registers<true>(f, a, n);
    }
  }
  // Folds n elements into the lanes; returns how many lanes there are.
  static KM_INL i64 fold_lanes(const Map& map, const F& f, A* acc, i64 n, const reader<I>&... from) {
    const i64 first = smaller(n, L), done = larger(n / L, i64(1)) * L;
    KM_IVDEP
    for (i64 j = 0; j < first; j++) acc[j] = base::value(map, j, from...);
    if (n > L) blocks(map, f, acc, n / L - 1, from.ahead(L)...);
    KM_IVDEP
    for (i64 j = done; j < n; j++) acc[j - done] = f(acc[j - done], base::value(map, j, from...));
    return first;
  }
  // Fewer elements than lanes.
  static KM_INL V short_top(const F& f, i64 n, const char* at) {
    V a[registers];
    load_first(a, n * size, at, each_register());
    return join_registers<false>(f, a, n);
  }
  template <int... R>
  static KM_INL void load_first(V* a, i64 bytes, const char* at, indices<R...>) {
    ((a[R] = load_some<V>(at + R * B, bytes - R * B, R * B)), ...);
  }
  // Lanes `a` of all whole rounds; what is left of the n elements lies at `at`.
  static KM_INL V top_after(const F& f, V* a, i64 n, const char* at) {
    const i64 left = (i64)((u64)n % L) * size;
    if (left) fold_part(f, a, at, left / B, left % B, each_register());
    return join_registers<true>(f, a, L);
  }
  // Elements of `whole` registers, and `some` bytes of one more.
  template <int... R>
  static KM_INL void fold_part(const F& f, V* a, const char* at, i64 whole, i64 some,
                               indices<R...>) {
    const V none = all_or_none<V>(false), mask = first_lanes(some, all_or_none<V>(true), none),
            last = load_some<V>(at + whole * B, some, B);
    ((a[R] = R < whole    ? f.vec(a[R], load(at + R * B))
             : R == whole ? choose(mask, f.vec(a[R], last), a[R])
                          : a[R]),
     ...);
  }
  // The same, where the lanes are in memory and the elements begin at `at`.
  static KM_LOOP void close_row(const F& fold, char* top, const A* acc, i64 n, const char* at) {
    const F f = fold;
    V a[registers];
    if (n >= L) load_round(a, (const char*)acc, each_register());
    a[0] = n < L ? short_top(f, n, at) : top_after(f, a, n, at + (u64)n / L * sizeof(a));
    __builtin_memcpy(top, a, B);
  }
  template <int... J>
  static KM_INL A whole_at(const Map& map, const F& f, i64 n, char* const* p, const i64* s,
                           indices<J...>) {
    return whole(map, f, n, reader<I>(p[J], s[J])...);
  }
  template <int... J>
  static KM_INL V top_at(const Map& map, const F& f, i64 n, char* const* p, const i64* s,
                         indices<J...>) {
    return top(map, f, n, reader<I>(p[J], s[J])...);
  }
  // The results of `count` sequences, `step` apart; there is room for whole registers of them.
  static KM_LOOP void each_whole(const Map& map, const F& f, A* to, i64 count, i64 n,
                                char* const* start, const i64* s, const i64* step) {
    constexpr int operands = (int)sizeof...(I);
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    const auto next = [&]() __attribute__((always_inline)) {
      for (int k = 0; k < operands; k++) p[k] += step[k];
    };
    if constexpr (F::vectors) {
      V tops[wide];
      for (i64 done = 0, rows; done < count; done += rows) {
        rows = smaller(count - done, (i64)wide);
        for (i64 k = 0; k < rows; k++, next()) {
          if constexpr (packed)
            if (n < ahead_elements)
              for (i64 b = 0; b < n * size; b += 64) __builtin_prefetch(p[0] + ahead_bytes + b, 0, 2);
          tops[k] = top_at(map, f, n, p, s, indices_of<operands>());
        }
        join_tops(f, to + done, tops, rows, n);
      }
    } else {
      for (i64 row = 0; row < count; row++, next())
        to[row] = whole_at(map, f, n, p, s, indices_of<operands>());
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
