// feeds.hpp - what one-dimensional families read and write by index on the host: functors, of which
// the two of plain arrays stand here.  Those of iterators are printed for each call
// (algorithms/feeds.py) with the same members; loops are in the families.
#pragma once
#include "abi.hpp"
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

// Where a functor finds its operands: `call` is the record of the kernel, see abi.hpp.
KM_INL const char* captures_of(const Call* call) { return (const char*)call->captures; }
KM_INL char* operand_data(const Call* call, int k) { return call->operands[k].data; }
KM_INL i64 operand_stride(const Call* call, int k) { return call->operands[k].strides[0]; }

}  // namespace km
