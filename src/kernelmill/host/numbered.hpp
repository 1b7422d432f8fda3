// numbered.hpp - the elements of one operand of a call by number, in whatever layout it has.  Loops, and
// what is done with elements, are in the families.
#pragma once
#include "layout.hpp"

namespace km {

// Elements of one operand by number, in whatever layout.
template <class T> struct elements_of {
  const Call* call;
  int k;
  KM_INL bool plain() const {
    return call->ndim == 0 || (call->ndim == 1 && call->operands[k].strides[0] == (i64)sizeof(T));
  }
  KM_INL char* at(i64 i) const {
    char* to = call->operands[k].data;
    for (int d = call->ndim - 1; d >= 0 && i; d--) {
      to += i % call->shape[d] * call->operands[k].strides[d];
      i /= call->shape[d];
    }
    return to;
  }
  // n elements from number i on: where they lie, or a copy of them.
  KM_INL const char* fetch(i64 i, i64 n, char* room) const {
    if (plain()) return call->operands[k].data + i * (i64)sizeof(T);
    gather(i, n, room);
    return room;
  }
  KM_COLD void gather(i64 i, i64 n, char* room) const {
    const int inner = call->ndim - 1;
    const i64 extent = call->shape[inner], stride = call->operands[k].strides[inner];
    for (i64 done = 0, m; done < n; done += m) {
      m = smaller(n - done, extent - (i + done) % extent);
      const char* from = at(i + done);
      collect<T>(room + done * (i64)sizeof(T), from, stride, m);
    }
  }
};

}  // namespace km
