// segmented.hpp - reductions and scans of segments, each as if it were an array of its own: the tree of
// docs/reference/reduction-tree.md.  Short segments by the hundreds to a task, a long one by its chunks.
//
//   km::segmented<Map, km::arg<T, pattern>, Fold, Empty, Offset, apart>::reduce(call, map, fold, empty)
//   ... ::scan<exclusive>(call, map, fold, empty)
//
// Operands: the elements, the offsets (begins, and ends where they are apart), the results; the shape is
// that of the segments, flags hold the number of elements, times 2.  Offsets are clamped to it.
// Workspace: an accumulator for each chunk of the elements, and one more.
#pragma once
#include "reduce.hpp"

namespace km {

template <class Map, class X, class F, class Empty, class O, bool Apart> struct segmented {
  static constexpr int to = Apart ? 3 : 2;  // the operand of the results
  typedef typename F::acc A;
  typedef typename F::out R;
  typedef tree_of<!F::ordered, rows, Map, 0, 1, F, X> tree;
  // Elements from which a segment is worked on by all threads, and segments of a task.
  static constexpr i64 long_segment = 16 * chunk_elements, fewest = 16, most = 4096;

  struct Job {
    const Call* call;
    const Map& map;
    const F& fold;
    const Empty& empty;
    i64 elements;
    KM_INL i64 offset(int k, i64 i) const {
      const Operand& from = call->operands[k];
      return clamp((i64)element<O>::load(from.data + i * from.strides[0]), 0, elements);
    }
    KM_INL i64 begin(i64 i) const { return offset(1, i); }
    KM_INL i64 size(i64 i) const { return (Apart ? offset(2, i) : offset(1, i + 1)) - begin(i); }
    KM_INL char* element_of(i64 i) const { return call->operands[0].data + i * step(); }
    KM_INL i64 step() const { return call->operands[0].strides[0]; }
    KM_INL void store(i64 i, const R& value) const {
      element<R>::store(call->operands[to].data + i * call->operands[to].strides[0], value);
    }
  };

  // ---- one segment

  // The tree of a handful of elements, which is most of the cost where segments are short.
  static constexpr i64 handful = 16;
  static KM_INL A few_elements(const Job& job, i64 begin, i64 n) {
    A a[handful];
    const reader<X> from(job.element_of(begin), job.step());
    if constexpr (F::ordered) {
      A sum = value_of(job, from, 0);
      for (i64 j = 1; j < n; j++) sum = job.fold(sum, value_of(job, from, j));
      return sum;
    } else {
      switch (n) {  // most of all where segments are short: without loops
        case 1: return fixed<1>(job, from);
        case 2: return fixed<2>(job, from);
        case 3: return fixed<3>(job, from);
        case 4: return fixed<4>(job, from);
        case 5: return fixed<5>(job, from);
        case 6: return fixed<6>(job, from);
        case 7: return fixed<7>(job, from);
        case 8: return fixed<8>(job, from);
        default: break;
      }
      for (i64 j = 0; j < n; j++) a[j] = value_of(job, from, j);
      for (i64 j = 0; j < n - 8; j++) a[j] = job.fold(a[j], a[j + 8]);
      KM_UNROLL_ALL
      for (int s = 4; s > 0; s /= 2)
        KM_UNROLL_ALL
        for (int j = 0; j < s; j++) a[j] = job.fold(a[j], a[j + s]);
      return a[0];
    }
  }
  template <int N> static KM_INL A fixed(const Job& job, const reader<X>& from) {
    A a[N];
    KM_UNROLL_ALL
    for (int j = 0; j < N; j++) a[j] = value_of(job, from, j);
    KM_UNROLL_ALL
    for (int s = 4; s > 0; s /= 2)
      KM_UNROLL_ALL
      for (int j = 0; j < s; j++)
        if (j + s < N) a[j] = job.fold(a[j], a[j + s]);
    return a[0];
  }
  static KM_INL A value_of(const Job& job, const reader<X>& from, i64 i) {
    return tree_base<Map, 0, 1, F, X>::value(job.map, i, from);
  }
  static KM_INL A chunk(const Job& job, i64 begin, i64 n) {
    char* p[1] = {job.element_of(begin)};
    const i64 s[1] = {job.step()};
    if constexpr (F::ordered) {
      A acc[tree::slots];
      tree::feed(job.map, job.fold, acc, 0, n, 1, true, p, s, s);
      tree::close(job.fold, acc, n, 1);
      return acc[0];
    } else {
      return tree::whole_at(job.map, job.fold, n, p, s, indices<0>());
    }
  }
  // Chunks combine as adjacent pairs: one waits at each level.
  static KM_COLD A chunks(const Job& job, i64 begin, i64 n) {
    A level[48];
    i64 count = 0;
    for (i64 at = 0; at < n; at += chunk_elements, count++) {
      A value = chunk(job, begin + at, smaller(chunk_elements, n - at));
      int l = 0;
      for (; count >> l & 1; l++) value = job.fold(level[l], value);
      level[l] = value;
    }
    int l = 0;
    while (!(count >> l & 1)) l++;
    A value = level[l++];
    for (; count >> l; l++)
      if (count >> l & 1) value = job.fold(level[l], value);
    return value;
  }
  static KM_HOT void few(const Job& given, i64 first, i64 last) {
    const Job job = given;
    for (i64 i = first; i < last; i++) {
      const i64 begin = job.begin(i), n = job.size(i);
      if (n <= 0)
        job.store(i, job.empty());
      else if (n <= handful)
        job.store(i, job.fold.finish(few_elements(job, begin, n)));
      else if (n <= chunk_elements)
        job.store(i, job.fold.finish(chunk(job, begin, n)));
      else if (n < long_segment)
        job.store(i, job.fold.finish(chunks(job, begin, n)));
    }
  }
  // A long segment, by all threads.
  static KM_COLD void together(const Job& job, i64 i, i64 begin, i64 n) {
    A* parts = (A*)job.call->workspace;
    const i64 count = ceil_div(n, chunk_elements);
    auto body = [&](i64 low, i64 high) {
      for (i64 k = low; k < high; k++)
        parts[k] = chunk(job, begin + k * chunk_elements,
                         smaller(chunk_elements, n - k * chunk_elements));
    };
    for_tasks(job.call, count, body);
    join_chunks<rows, tree>(job.fold, parts, count, 1);
    job.store(i, job.fold.finish(parts[0]));
  }

  // ---- all of them

  // Calls one(first, last) for ranges of segments, and all(i, begin, n) for each long one.
  template <class One, class All>
  static KM_COLD void each(const Job& job, i64 segments, One& one, All& all) {
    const i64 elements = job.elements;
    const i64 share = clamp(segments * 4 * chunk_elements / larger(elements, i64(1)), fewest, most);
    auto body = [&](i64 low, i64 high) { one(low * share, smaller(high * share, segments)); };
    for_tasks(job.call, ceil_div(segments, share), body);
    if (elements < long_segment) return;
    for (i64 i = 0; i < segments; i++) {
      const i64 begin = job.begin(i), n = job.size(i);
      if (n >= long_segment) all(i, begin, n);
    }
  }
  static KM_COLD void reduce(const Call* call, const Map& map, const F& fold, const Empty& empty) {
    const Job job{call, map, fold, empty, call->flags >> 1};
    auto one = [&](i64 low, i64 high) { few(job, low, high); };
    auto all = [&](i64 i, i64 begin, i64 n) { together(job, i, begin, n); };
    each(job, extent_of(call, 0, call->ndim), one, all);
  }

  // ---- scans: from left to right within a chunk, chunks from left to right

  static KM_INL A value_at(const Job& job, i64 i) {
    return value_of(job, reader<X>(job.element_of(i), job.step()), 0);
  }
  static KM_INL A left_to_right(const Job& job, i64 begin, i64 n) {
    A sum = value_at(job, begin);
    for (i64 i = begin + 1; i < begin + n; i++) sum = job.fold(sum, value_at(job, i));
    return sum;
  }
  // Stores the results of a chunk, before which there is `before`, if anything; returns the total.
  template <bool Exclusive>
  static KM_HOT A scan_chunk(const Job& job, i64 begin, i64 n, const A* before) {
    A sum = value_at(job, begin);
    const A first = sum;
    if constexpr (Exclusive)
      job.store(begin, before ? job.fold.finish(*before) : job.empty());
    else
      job.store(begin, job.fold.finish(before ? job.fold(*before, first) : first));
    for (i64 i = begin + 1; i < begin + n; i++) {
      const A next = job.fold(sum, value_at(job, i));
      const A here = Exclusive ? sum : next;
      job.store(i, job.fold.finish(before ? job.fold(*before, here) : here));
      sum = next;
    }
    return before ? job.fold(*before, sum) : sum;
  }
  template <bool Exclusive> static KM_COLD void scan_one(const Job& job, i64 begin, i64 n) {
    A before;
    for (i64 at = 0; at < n; at += chunk_elements)
      before = scan_chunk<Exclusive>(job, begin + at, smaller(chunk_elements, n - at),
                                     at ? &before : nullptr);
  }
  template <bool Exclusive> static KM_COLD void scan_together(const Job& job, i64 begin, i64 n) {
    A* parts = (A*)job.call->workspace;
    const i64 count = ceil_div(n, chunk_elements);
    const auto size = [&](i64 k) { return smaller(chunk_elements, n - k * chunk_elements); };
    auto totals = [&](i64 low, i64 high) {
      for (i64 k = low; k < high; k++)
        parts[k] = left_to_right(job, begin + k * chunk_elements, size(k));
    };
    for_tasks(job.call, count, totals);
    for (i64 k = 1; k < count; k++) parts[k] = job.fold(parts[k - 1], parts[k]);
    auto results = [&](i64 low, i64 high) {
      for (i64 k = low; k < high; k++)
        scan_chunk<Exclusive>(job, begin + k * chunk_elements, size(k), k ? parts + k - 1 : nullptr);
    };
    for_tasks(job.call, count, results);
  }
  template <bool Exclusive>
  static KM_COLD void scan(const Call* call, const Map& map, const F& fold, const Empty& empty) {
    const Job job{call, map, fold, empty, call->flags >> 1};
    auto one = [&](i64 low, i64 high) {
      for (i64 i = low; i < high; i++) {
        const i64 begin = job.begin(i), n = job.size(i);
        if (n > 0 && n < long_segment) scan_one<Exclusive>(job, begin, n);
      }
    };
    auto all = [&](i64, i64 begin, i64 n) { scan_together<Exclusive>(job, begin, n); };
    each(job, extent_of(call, 0, call->ndim), one, all);
  }
};

}  // namespace km
