// search.cuh - where values belong in sorted data.  A block has some elements of the data at even distances in its shared
// memory and looks there first.  A thread searches for several values side by side, and looks at several elements of what is left at a
// time, so that it waits once for all of them.  What comes before what, says the comparator.
//
//   typedef km::search<Op, Data, Value, upper, Captured, Access, Beside, Ways, Pivots, Operands, Source, Sorted> Run;
//   Run::each(call)
//
// Operands: the data, in one dimension, the values, the places.  The shape is that of the values, `length` that of the data.
// Where there is a `Source`, values come from the functor that it makes, and data from that of `Sorted`.
// Whatever the order of the data, no place outside is read.
#pragma once
#include "operands.cuh"

namespace km {

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

template <class Op, class D, class V, bool Upper, int Bytes, template <class> class Access, int Beside, int Ways, int Pivots,
          int Operands = 3, class Source = no_source, class Sorted = no_source>
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
  // Whether the place of a value is behind an element.
  static KM_INL bool before(const Op& op, const D& found, const V& value) {
    if constexpr (Upper) return !op(value, found);
    else return op(found, value);
  }
  // Behind the end, the last element stands again.
  static KM_INL D data_at(const call& c, i64 i) {
    const i64 at = smaller(i, c.length - 1);
    if constexpr (Sorted::computes) {
      const auto sorted = Sorted::make(c);
      return sorted(at);
    } else {
      return Access<D>::load(c.data[0] + at * c.strides[0][0]);
    }
  }

  static KM_INL void each(const call& c) {
    __shared__ __align__(16) char room[Pivots * sizeof(D)];
    D* pivot = (D*)room;
    const Op op(c.captures);
    [[maybe_unused]] const auto made = Source::make(c);
    const i64 apart = c.length / (Pivots + 1) + 1, step = (i64)gridDim.x * blockDim.x;
    const int many = (int)(c.length / apart);
    _Pragma("unroll 8") for (int k = (int)threadIdx.x; k < many; k += (int)blockDim.x) pivot[k] = data_at(c, (k + 1) * apart - 1);
    block_barrier();
    _Pragma("unroll 1") for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < c.elements; i += Beside * step) {
      V value[Beside];
      i64 found[Beside];
      KM_UNROLL_ALL for (int u = 0; u < Beside; u++) {
        const i64 from = smaller(i + u * step, c.elements - 1);
        if constexpr (Source::computes) value[u] = made(from);
        else value[u] = Access<V>::load(at(c, 1, from));
      }
      among_pivots(op, pivot, many, value, apart, found);
      _Pragma("unroll 1") for (u32 left = (u32)apart - 1; left;) {
        const u32 part = left / Ways + 1;
        D seen[Beside][Ways - 1];
        KM_UNROLL_ALL for (int u = 0; u < Beside; u++)
          KM_UNROLL_ALL for (int w = 1; w < Ways; w++) seen[u][w - 1] = data_at(c, found[u] + (i64)w * part - 1);
        KM_UNROLL_ALL for (int u = 0; u < Beside; u++) {
          u32 behind = 0;
          KM_UNROLL_ALL for (int w = 1; w < Ways; w++) behind += before(op, seen[u][w - 1], value[u]) ? part : 0;
          found[u] += behind;
        }
        left = part - 1;
      }
      KM_UNROLL_ALL for (int u = 0; u < Beside; u++)
        if (i + u * step < c.elements) store_anywhere<i64>(at(c, 2, i + u * step), smaller(found[u], c.length));
    }
  }
  // Where the elements begin among which each value belongs.
  static KM_INL void among_pivots(const Op& op, const D* pivot, int many, const V (&value)[Beside], i64 apart, i64 (&found)[Beside]) {
    int behind[Beside];
    KM_UNROLL_ALL for (int u = 0; u < Beside; u++) behind[u] = 0;
    _Pragma("unroll 1") for (int left = many; left;) {
      const int part = left / 2 + 1;
      KM_UNROLL_ALL for (int u = 0; u < Beside; u++)
        behind[u] += before(op, pivot[smaller(behind[u] + part, many) - 1], value[u]) ? part : 0;
      left = part - 1;
    }
    KM_UNROLL_ALL for (int u = 0; u < Beside; u++) found[u] = (i64)smaller(behind[u], many) * apart;
  }
};

}  // namespace km
