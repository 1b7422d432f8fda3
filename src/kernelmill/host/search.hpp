// search.hpp - where values belong in sorted data: several binary searches side by side, so that their
// cache misses overlap, without branches.  What comes before what, says the comparator.
//
//   km::search<Op, Data, Value, upper, plain, Source, Sorted>::run(call, Op)      // plain: the data adjoin, aligned
//
// Operands: the data, in one dimension, the values, the places.  The shape is that of the values; flags
// hold the length of the data, times 2.  Where there is a `Source`, values come from the functor that it makes, and
// data from that of `Sorted`.
// Whatever the order of the data, no place outside is read.
#pragma once
#include "numbered.hpp"

namespace km {

struct no_source {
  static constexpr bool computes = false;
  static KM_INL int make(const Call*) { return 0; }
};

template <class Op, class D, class V, bool Upper, bool Plain, class Source = no_source, class Sorted = no_source> struct search {
  static constexpr i64 beside = 32, task = 1024;

  struct Job {
    const Call* call;
    const Op& op;
    const char* data;
    i64 stride, length;
    decltype(Sorted::make((const Call*)nullptr)) sorted;
    KM_INL D at(i64 i) const {
      if constexpr (Sorted::computes)
        return sorted(i);
      else if constexpr (Plain)
        return ((const D*)data)[i];  // a type of its own, so that compilers find gathers
      else
        return element<D>::load(data + i * stride);
    }
    // Whether the place of a value is behind element i.
    KM_INL bool before(i64 i, const V& value) const {
      const D found = at(i);
      if constexpr (Upper)
        return !op(value, found);
      else
        return op(found, value);
    }
  };

  // `count` searches side by side; not a constant, so that the loops are vectors of searches.
  static KM_HOT void find(const Job& given, const V* KM_R value, i64* KM_R at, int count) {
    const Job job = given;
    for (int u = 0; u < count; u++) at[u] = 0;
    for (i64 n = job.length; n > 1;) {
      const i64 half = n / 2;
      KM_IVDEP
      for (int u = 0; u < count; u++)
        at[u] += job.before(at[u] + half - 1, value[u]) ? half : 0;
      n -= half;
    }
    if (job.length > 0) {
      KM_IVDEP
      for (int u = 0; u < count; u++) at[u] += job.before(at[u], value[u]) ? 1 : 0;
    }
  }
  static KM_HOT void range(const Job& job, i64 begin, i64 end) {
    const elements_of<V> from{job.call, 1};
    const elements_of<i64> to{job.call, 2};
    const bool plain = to.plain();
    [[maybe_unused]] const auto made = Source::make(job.call);
    char room[beside * sizeof(V)];
    V value[beside];
    i64 at[beside];
    for (i64 i = begin, n; i < end; i += n) {
      n = smaller(beside, end - i);
      if constexpr (Source::computes) {
        for (i64 u = 0; u < n; u++) value[u] = made(i + u);
      } else {
        const char* values = from.fetch(i, n, room);
        for (i64 u = 0; u < n; u++) value[u] = element<V>::load(values + u * (i64)sizeof(V));
      }
      find(job, value, at, (int)n);
      for (i64 u = 0; u < n; u++)
        element<i64>::store(plain ? to.call->operands[2].data + (i + u) * 8 : to.at(i + u), at[u]);
    }
  }

  static KM_COLD void run(const Call* call, const Op& op) {
    const Job job{call, op, call->operands[0].data, call->operands[0].strides[0], call->flags >> 1,
                  Sorted::make(call)};
    const i64 values = extent_of(call, 0, call->ndim);
    auto body = [&](i64 begin, i64 end) {
      range(job, begin * task, smaller(end * task, values));
    };
    for_tasks(call, ceil_div(values, task), body);
  }
};

}  // namespace km
