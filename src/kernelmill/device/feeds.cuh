// feeds.cuh - what one-dimensional families read and write by index on a device: functors, of which the two of plain arrays
// stand here.  Those of iterators are printed for each call (algorithms/feeds.py) with the same members; loops are in the
// families.  The host's twin is host/feeds.hpp.
#pragma once
#include "elements.hpp"

namespace km {

// `contiguous` says that there is `data`, which may be read in packets of any width; others have none.
template <class T>
struct plain_in {
  using type = T;
  static constexpr bool contiguous = true;
  const T* data;
  KM_INL T operator()(i64 i) const { return element<T>::load((const char*)(data + i)); }
};

template <class T>
struct plain_out {
  using type = T;
  static constexpr bool contiguous = true;
  T* data;
  KM_INL void operator()(i64 i, T v) const { element<T>::store((char*)(data + i), v); }
};

// Where a functor finds its operands: in a record that begins as `Call` of transform.cuh does.
template <class C> KM_INL const char* captures_of(const C& call) { return call.captures; }
template <class C> KM_INL char* operand_data(const C& call, int k) { return call.data[k]; }
template <class C> KM_INL i64 operand_stride(const C& call, int k) { return call.strides[k][0]; }

}  // namespace km
