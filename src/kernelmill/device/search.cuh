// search.cuh - where values belong in sorted data: a thread searches for several values side by side, so that it waits once
// for all of them.  What comes before what, says the comparator.
//
//   typedef km::search<Op, Data, Value, upper, Captured, Access, Beside, Operands, Source> Run;  Run::each(call)
//
// Operands: the data, in one dimension, the values, the places.  The shape is that of the values, `length` that of the data.
// Where there is a `Source`, values come from the functor that it makes.  Whatever the order of the data, no place outside is read.
#pragma once
#include "operands.cuh"

namespace km {

constexpr int search_threads = 256;

template <int Bytes, int Operands>
struct SearchCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 length;
};

struct no_source {
  static constexpr bool computes = false;
  template <class Call> static KM_INL int make(const Call&) { return 0; }
};

template <class Op, class D, class V, bool Upper, int Bytes, template <class> class Access, int Beside, int Operands = 3,
          class Source = no_source>
struct search {
  typedef SearchCall<Bytes, Operands> call;

  static KM_INL char* at(const call& c, int k, i64 i) {
    if (c.ndim <= 1) return c.data[k] + i * (c.ndim ? c.strides[k][0] : 0);
    char* to = c.data[k];
    _Pragma("unroll 1") for (int d = (int)c.ndim - 1; d >= 0; d--) {
      const i64 outer = i / c.shape[d];
      to += (i - outer * c.shape[d]) * c.strides[k][d];
      i = outer;
    }
    return to;
  }
  // Whether the place of a value is behind element i.
  static KM_INL bool before(const call& c, const Op& op, i64 i, const V& value) {
    const D found = Access<D>::load(c.data[0] + i * c.strides[0][0]);
    if constexpr (Upper) return !op(value, found);
    else return op(found, value);
  }
  static KM_INL void each(const call& c) {
    const Op op(c.captures);
    [[maybe_unused]] const auto made = Source::make(c);
    const i64 step = (i64)gridDim.x * blockDim.x;
    _Pragma("unroll 1") for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < c.elements; i += Beside * step) {
      V value[Beside];
      i64 found[Beside];
      KM_UNROLL_ALL for (int u = 0; u < Beside; u++) {
        const i64 from = smaller(i + u * step, c.elements - 1);
        if constexpr (Source::computes) value[u] = made(from);
        else value[u] = Access<V>::load(at(c, 1, from));
        found[u] = 0;
      }
      _Pragma("unroll 1") for (i64 n = c.length; n > 1;) {
        const i64 half = n / 2;
        KM_UNROLL_ALL for (int u = 0; u < Beside; u++) found[u] += before(c, op, found[u] + half - 1, value[u]) ? half : 0;
        n -= half;
      }
      KM_UNROLL_ALL for (int u = 0; u < Beside; u++) {
        if (c.length > 0) found[u] += before(c, op, found[u], value[u]) ? 1 : 0;
        if (i + u * step < c.elements) store_anywhere<i64>(at(c, 2, i + u * step), found[u]);
      }
    }
  }
};

}  // namespace km
