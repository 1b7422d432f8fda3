// reduce_ordered.hpp - one fold that keeps the order of the elements, over one chunk: runs of 16,
// then adjacent pairs, as docs/reference/reduction-tree.md has it.  The tree of commutative folds
// is in reduce_tree.hpp.
#pragma once
#include "reduce_tree.hpp"

namespace km {

template <class Map, int K, int N, class F, class... I>
struct ordered_tree : tree_base<Map, K, N, F, I...> {
  typedef tree_base<Map, K, N, F, I...> base;
  typedef typename F::acc A;
  static constexpr i64 slots =
      13;  // the run at work, then one waiting partner for each level of pairs

  static KM_LOOP void join(const F& fold, A* acc, const A* left, i64 width) {
    const F f = fold;
    KM_IVDEP
    for (i64 j = 0; j < width; j++) acc[j] = f(left[j], acc[j]);
  }
  // `count` equal parts are complete, the last one in slot 0: combine what pairs up from `level`
  // on, store the rest.
  static KM_DRIVER void push(const F& f, A* acc, i64 count, int level, i64 width) {
    for (; !(count & 1); count >>= 1, level++) join(f, acc, acc + (1 + level) * width, width);
    __builtin_memcpy((void*)(acc + (1 + level) * width), (const void*)acc,
                     (usize)width * sizeof(A));
  }

  // Sixteen runs side by side: their chains are independent.
  static KM_INL void side_by_side(const Map map, const F f, A* acc, reader<I>... from) {
    A r[run_elements];
    for (i64 u = 0; u < run_elements; u++) r[u] = base::value(map, u * run_elements, from...);
    for (i64 e = 1; e < run_elements; e++)
      for (i64 u = 0; u < run_elements; u++)
        r[u] = f(r[u], base::value(map, u * run_elements + e, from...));
    for (i64 step = 1; step < run_elements; step *= 2)
      for (i64 u = 0; u < run_elements; u += 2 * step) r[u] = f(r[u], r[u + step]);
    acc[0] = r[0];
  }
  template <int... J>
  static KM_INL void side_by_side_at(const Map& map, const F& f, A* acc, char* const* p,
                                     const i64* s, indices<J...>) {
    side_by_side(map, f, acc, reader<I>(p[J], s[J])...);
  }
  static KM_LOOP void fold_runs(const Map& map, const F& f, A* acc, char* const* p, const i64* s) {
    side_by_side_at(map, f, acc, p, s, indices_of<(int)sizeof...(I)>());
  }

  static KM_INL void feed(const Map& map, const F& f, A* acc, i64 q, i64 n, i64 width, bool dense,
                          char* const* start, const i64* s, const i64* down) {
    constexpr int operands = (int)sizeof...(I);
    constexpr i64 square = run_elements * run_elements;
    char* p[operands];
    for (int k = 0; k < operands; k++) p[k] = start[k];
    while (n > 0) {
      i64 m = 1;
      if (width == 1 && dense && n >= square && q % square == 0) {
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
  static KM_DRIVER void close(const F& f, A* acc, i64 n, i64 width) {
    bool open = n % run_elements != 0;
    i64 count = n / run_elements;
    for (int level = 0; count >> level; level++) {
      if (!(count >> level & 1)) continue;
      const A* left = acc + (1 + level) * width;
      if (open)
        join(f, acc, left, width);
      else
        __builtin_memcpy((void*)acc, (const void*)left, (usize)width * sizeof(A));
      open = true;
    }
  }
};

}  // namespace km
