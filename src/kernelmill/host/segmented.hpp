// segmented.hpp - reductions and scans of segments, each as if it were an array of its own: the tree of
// docs/reference/reduction-tree.md.  Short segments by the hundreds to a task, a long one by its chunks.
//
//   km::segmented<Map, km::arg<T, pattern>, Fold, Empty, Offset, apart>::reduce(call, map, fold, empty)
//   ... ::scan<exclusive>(call, map, fold, empty)
//
// Operands: the elements, the offsets (begins, and ends where they are apart), the results, which `To`
// takes; elements that are computed are numbers, of which the map makes them, and offsets that are come from
// `Bounds`.  The shape is that of the segments, flags hold the number of elements, times 2.  Offsets are
// clamped to it.
// Workspace: an accumulator for each chunk of the elements, and one more.
#pragma once
#include "reduce.hpp"

namespace km {

// Takes results where they are an array: operand K.
template <class R, int K> struct results_at {
  static constexpr bool array = true;
  char* data;
  i64 step;
  KM_INL explicit results_at(const Call* call)
      : data(call->operands[K].data), step(call->operands[K].strides[0]) {}
  KM_INL void operator()(i64 i, const R& value) const { element<R>::store(data + i * step, value); }
};

// Where segments begin and end, where these are arrays: operands 1 and, where they are apart, 2.
template <class O, bool Apart> struct bounds_at {
  static constexpr bool array = true;
  const char *begins, *ends;
  i64 begin_step, end_step;
  KM_INL explicit bounds_at(const Call* call) {
    const Operand &first = call->operands[1], &last = call->operands[Apart ? 2 : 1];
    begins = first.data, begin_step = first.strides[0];
    end_step = last.strides[0], ends = last.data + (Apart ? 0 : end_step);
  }
  KM_INL i64 begin(i64 i) const { return (i64)element<O>::load(begins + i * begin_step); }
  KM_INL i64 end(i64 i) const { return (i64)element<O>::load(ends + i * end_step); }
};

template <class Map, class X, class F, class Empty, class O, bool Apart,
          class To = results_at<typename F::out, Apart ? 3 : 2>, class Bounds = bounds_at<O, Apart>>
struct segmented {
  typedef typename F::acc A;
  typedef typename F::out R;
  typedef tree_of<!F::ordered, rows, Map, 0, 1, F, X> tree;
  // Elements from which a segment is worked on by all threads, and segments of a task.
  static constexpr i64 long_segment = 16 * chunk_elements, fewest = 16, most = 4096;

  // Addresses and steps by value: a copy that nobody else sees stays in registers.
  struct Job {
    const Call* call;
    const Map& map;
    const F& fold;
    const Empty& empty;
    i64 elements;
    const char* data;
    i64 step;
    Bounds bounds;
    To to;

    KM_COLD Job(const Call* c, const Map& m, const F& f, const Empty& e)
        : call(c), map(m), fold(f), empty(e), elements(c->flags >> 1), data(c->operands[0].data),
          step(c->operands[0].strides[0]), bounds(c), to(c) {}
    KM_INL i64 begin(i64 i) const { return clamp(bounds.begin(i), 0, elements); }
    KM_INL i64 end(i64 i) const { return clamp(bounds.end(i), 0, elements); }
    KM_INL char* element_of(i64 i) const { return (char*)data + i * step; }
    KM_INL void store(i64 i, const R& value) const { to(i, value); }
  };

  // ---- one segment

  // A few elements at once, where the fold has a vector form: a tree of registers whose lanes are masked needs
  // no branch on the length, which no processor foresees where lengths differ.
  static constexpr i64 in_registers = larger(i64(8), 16 / (i64)sizeof(A));
  static constexpr bool masks() {
    if constexpr (F::ordered || !F::vectors) return false;
    else return tree::packed;
  }
  // The tree of a handful of elements, which is most of the cost where segments are short; of more than 8
  // where `masks` holds.
  static constexpr i64 handful = 16;
  static KM_INL A few_elements(const Job& job, i64 begin, i64 n) {
    A a[handful];
    const reader<X> from(job.element_of(begin), job.step);
    if constexpr (F::ordered) {
      A sum = value_of(job, from, 0);
      for (i64 j = 1; j < n; j++) sum = job.fold(sum, value_of(job, from, j));
      return sum;
    } else {
      if constexpr (!masks())
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
    const i64 s[1] = {job.step};
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
  static KM_INL A masked_elements(const Job& job, i64 begin, i64 n) {
    constexpr int wide = 16 / (int)sizeof(A), count = (int)in_registers / wide;
    typedef typename tree::word W __attribute__((vector_size(16)));
    W a[count];
    KM_UNROLL_ALL
    for (int r = 0; r < count; r++) __builtin_memcpy(&a[r], job.element_of(begin) + 16 * r, 16);
    KM_UNROLL_ALL
    for (int half = count / 2; half > 0; half /= 2)
      for (int r = 0; r < half; r++)
        tree::template meet<false>(job.fold, a[r], a[r + half], (half + r) * wide, n);
    return tree::template join_within<false, wide / 2>(job.fold, a[0], n);
  }

  // Whether the next segments have one element each and lie one after the other; their results.
  static constexpr i64 beside = 32;
  static KM_INL bool ones(const Job& job, i64 i) {
    if constexpr (Apart || !Bounds::array) {
      return false;
    } else {
      if (job.bounds.begin_step != (i64)sizeof(O)) return false;
      const char* at = job.bounds.begins + i * (i64)sizeof(O);
      const i64 first = job.begin(i);
      if (job.begin(i + beside) - first != beside) return false;
      u64 other = 0;
      for (i64 j = 0; j < beside; j++)
        other |= (u64)(i64)element<O>::load(at + j * (i64)sizeof(O)) ^ (u64)(first + j);
      return other == 0;
    }
  }
  static KM_INL void store_ones(const Job& job, i64 i) {
    const reader<X> from(job.element_of(job.begin(i)), job.step);
    R made[beside];
    KM_IVDEP
    for (i64 j = 0; j < beside; j++) made[j] = job.fold.finish(value_of(job, from, j));
    if constexpr (To::array)
      if (job.to.step == (i64)sizeof(R)) {
        for (i64 j = 0; j < beside; j++) element<R>::store(job.to.data + (i + j) * (i64)sizeof(R), made[j]);
        return;
      }
    for (i64 j = 0; j < beside; j++) job.store(i + j, made[j]);
  }

  // Long segments that were met on the way; beyond the first few they are looked for again.
  struct Long {
    static constexpr i64 room = 64;
    i64 count = 0, place[room];
    KM_COLD void add(i64 i) {
      const i64 number = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
      if (number < room) place[number] = i;
    }
  };

  static KM_INL void one(const Job& job, const Job& given, Long& found, i64 i) {
    const i64 begin = job.begin(i), n = job.end(i) - begin;
    if (n <= 0) return job.store(i, job.empty());
    if constexpr (masks())
      if (n <= in_registers && begin + in_registers <= job.elements)
        return job.store(i, job.fold.finish(masked_elements(job, begin, n)));
    if (n <= handful && (n > 8 || !masks()))
      job.store(i, job.fold.finish(few_elements(given, begin, n)));
    else if (n <= chunk_elements)
      job.store(i, job.fold.finish(chunk(given, begin, n)));
    else if (n < long_segment)
      job.store(i, job.fold.finish(chunks(given, begin, n)));
    else
      found.add(i);
  }
  static KM_HOT void few(const Job& given, Long& found, i64 first, i64 last) {
    const Job job = given;
    for (i64 i = first; i < last;) {
      if (i + beside <= last && ones(job, i)) {
        store_ones(job, i);
        i += beside;
        continue;
      }
      for (const i64 stop = smaller(i + beside, last); i < stop; i++) one(job, given, found, i);
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

  // Calls one(first, last) for ranges of segments, which tells of long ones, and all(i, begin, n) for each of these.
  template <class One, class All>
  static KM_COLD void each(const Job& job, i64 segments, Long& found, One& one, All& all) {
    const i64 elements = job.elements;
    const i64 share = clamp(segments * 4 * chunk_elements / larger(elements, i64(1)), fewest, most);
    auto body = [&](i64 low, i64 high) { one(low * share, smaller(high * share, segments)); };
    for_tasks(job.call, ceil_div(segments, share), body);
    const bool listed = found.count <= Long::room;
    for (i64 k = 0, count = listed ? found.count : segments; k < count; k++) {
      const i64 i = listed ? found.place[k] : k, begin = job.begin(i), n = job.end(i) - begin;
      if (n >= long_segment) all(i, begin, n);
    }
  }
  static KM_COLD void reduce(const Call* call, const Map& map, const F& fold, const Empty& empty) {
    const Job job(call, map, fold, empty);
    Long found;
    auto one = [&](i64 low, i64 high) { few(job, found, low, high); };
    auto all = [&](i64 i, i64 begin, i64 n) { together(job, i, begin, n); };
    each(job, extent_of(call, 0, call->ndim), found, one, all);
  }

  // ---- scans: from left to right within a chunk, chunks from left to right

  static KM_INL A value_at(const Job& job, i64 i) {
    return value_of(job, reader<X>(job.element_of(i), job.step), 0);
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
  // Chunks of a long segment go side by side, so that their chains of operations overlap: chunk number `first`
  // and those behind it, all of them whole.
  static constexpr i64 together_chunks = 4;
  static KM_HOT void totals_beside(const Job& given, i64 begin, A* parts) {
    const Job job = given;
    A sum[together_chunks];
    KM_UNROLL_ALL
    for (i64 k = 0; k < together_chunks; k++) sum[k] = value_at(job, begin + k * chunk_elements);
    for (i64 i = 1; i < chunk_elements; i++)
      KM_UNROLL_ALL
      for (i64 k = 0; k < together_chunks; k++)
        sum[k] = job.fold(sum[k], value_at(job, begin + k * chunk_elements + i));
    for (i64 k = 0; k < together_chunks; k++) parts[k] = sum[k];
  }
  template <bool Exclusive> static KM_HOT void scan_beside(const Job& given, i64 begin, const A* before) {
    const Job job = given;
    A sum[together_chunks], start[together_chunks];
    KM_UNROLL_ALL
    for (i64 k = 0; k < together_chunks; k++) {
      const i64 at = begin + k * chunk_elements;
      start[k] = before[k], sum[k] = value_at(job, at);
      job.store(at, job.fold.finish(Exclusive ? start[k] : job.fold(start[k], sum[k])));
    }
    for (i64 i = 1; i < chunk_elements; i++)
      KM_UNROLL_ALL
      for (i64 k = 0; k < together_chunks; k++) {
        const i64 at = begin + k * chunk_elements + i;
        const A next = job.fold(sum[k], value_at(job, at));
        job.store(at, job.fold.finish(job.fold(start[k], Exclusive ? sum[k] : next)));
        sum[k] = next;
      }
  }
  template <bool Exclusive> static KM_COLD void scan_together(const Job& job, i64 begin, i64 n) {
    A* parts = (A*)job.call->workspace;
    const i64 count = ceil_div(n, chunk_elements), whole = n / chunk_elements, step = together_chunks;
    const auto start = [&](i64 k) { return begin + k * chunk_elements; };
    const auto size = [&](i64 k) { return smaller(chunk_elements, n - k * chunk_elements); };
    auto totals = [&](i64 low, i64 high) {
      for (i64 g = low; g < high; g++)
        if (g * step + step <= whole)
          totals_beside(job, start(g * step), parts + g * step);
        else
          for (i64 k = g * step; k < smaller(count, g * step + step); k++)
            parts[k] = left_to_right(job, start(k), size(k));
    };
    for_tasks(job.call, ceil_div(count, step), totals);
    for (i64 k = 1; k < count; k++) parts[k] = job.fold(parts[k - 1], parts[k]);
    auto results = [&](i64 low, i64 high) {
      for (i64 g = low; g < high; g++)
        if (g && g * step + step <= whole)
          scan_beside<Exclusive>(job, start(g * step), parts + g * step - 1);
        else
          for (i64 k = g * step; k < smaller(count, g * step + step); k++)
            scan_chunk<Exclusive>(job, start(k), size(k), k ? parts + k - 1 : nullptr);
    };
    for_tasks(job.call, ceil_div(count, step), results);
  }
  // Segments of one element each, one after the other, as `store_ones` has them.
  template <bool Exclusive> static KM_INL void scan_ones(const Job& job, i64 i) {
    const i64 at = job.begin(i);
    const reader<X> from(job.element_of(at), job.step);
    R made[beside];
    KM_IVDEP
    for (i64 j = 0; j < beside; j++)
      made[j] = Exclusive ? job.empty() : job.fold.finish(value_of(job, from, j));
    for (i64 j = 0; j < beside; j++) job.store(at + j, made[j]);
  }
  template <bool Exclusive> static KM_HOT void scan_few(const Job& given, Long& found, i64 low, i64 high) {
    const Job job = given;
    for (i64 i = low; i < high;) {
      if (i + beside <= high && ones(job, i)) {
        scan_ones<Exclusive>(job, i);
        i += beside;
        continue;
      }
      for (const i64 stop = smaller(i + beside, high); i < stop; i++) {
        const i64 begin = job.begin(i), n = job.end(i) - begin;
        if (n >= long_segment)
          found.add(i);
        else if (n > 0)
          scan_one<Exclusive>(job, begin, n);
      }
    }
  }
  template <bool Exclusive>
  static KM_COLD void scan(const Call* call, const Map& map, const F& fold, const Empty& empty) {
    const Job job(call, map, fold, empty);
    Long found;
    auto one = [&](i64 low, i64 high) { scan_few<Exclusive>(job, found, low, high); };
    auto all = [&](i64, i64 begin, i64 n) { scan_together<Exclusive>(job, begin, n); };
    each(job, extent_of(call, 0, call->ndim), found, one, all);
  }
};

}  // namespace km
