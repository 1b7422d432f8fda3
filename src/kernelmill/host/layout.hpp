// layout.hpp - operands of a loop: element type, pattern along the innermost dimension, and the
// walk over the outer dimensions.  What is computed per element is in transform.hpp and reduce.hpp.
#pragma once
#include "abi.hpp"
#include "elements.hpp"

namespace km {

// How an operand moves when the innermost index grows by one.  Known at compile time, so that loops
// vectorise.
enum Pattern : int {
  contiguous,  // to the adjacent element
  broadcast,   // not at all: stride 0
  strided,     // by the stride of the call
  transposed,  // by the stride of the call, while the dimension before is the contiguous one
               // (transform only)
  index,       // nothing is read: the address is the value, which grows by the stride
  address,     // likewise, and does not move
  placed,      // written where the result says, as an offset behind the address
};

template <class T, int P> struct arg {
  typedef T type;
  static constexpr int pattern = P;
  static constexpr i64 size = (i64)sizeof(T);
};

template <class... A> struct in {};
template <class... A> struct out {};

template <class... T> constexpr i64 min_of(T... sizes) {
  i64 least = (i64)1 << 62;
  ((least = (i64)sizes < least ? (i64)sizes : least), ...);
  return least;
}
template <class... T> constexpr i64 max_of(T... sizes) {
  i64 most = 0;
  ((most = (i64)sizes > most ? (i64)sizes : most), ...);
  return most;
}

// Reads one operand along the innermost dimension.  A broadcast value is read once, before the
// loop.
template <class A, int P = A::pattern> struct reader {
  const char* at;
  KM_INL reader(const char* p, i64) : at(p) {}
  KM_INL reader ahead(i64 n) const { return reader(at + n * A::size, 0); }
  KM_INL void prefetch(i64, i64) const {}
  KM_INL typename A::type operator[](i64 i) const {
    return element<typename A::type>::load(at + i * A::size);
  }
};
template <class A> struct reader<A, strided> {
  const char* at;
  i64 stride;
  KM_INL reader(const char* p, i64 s) : at(p), stride(s) {}
  KM_INL reader ahead(i64 n) const { return reader(at + n * stride, stride); }
  // Asks for the lines of n elements from number i on, in the order of their addresses.
  KM_INL void prefetch(i64 i, i64 n) const {
    const char* from = at + i * stride;
    if (stride >= 64 || stride <= -64)
      for (i64 j = 0; j < n; j++) __builtin_prefetch(from + j * stride);
    else
      for (i64 b = 0; b < n * stride; b += 64) __builtin_prefetch(from + b);
  }
  KM_INL typename A::type operator[](i64 i) const {
    return element<typename A::type>::load(at + i * stride);
  }
};
template <class A> struct reader<A, broadcast> {
  typename A::type value;
  KM_INL reader(const char* p, i64) : value(element<typename A::type>::load(p)) {}
  KM_INL reader ahead(i64) const { return *this; }
  KM_INL void prefetch(i64, i64) const {}
  KM_INL typename A::type operator[](i64) const { return value; }
};

template <class A> struct reader<A, index> {
  i64 first, stride;
  KM_INL reader(const char* p, i64 s) : first((i64)(uptr)p), stride(s) {}
  KM_INL reader ahead(i64 n) const { return reader((const char*)(uptr)(first + n * stride), stride); }
  KM_INL void prefetch(i64, i64) const {}
  KM_INL typename A::type operator[](i64 i) const { return first + i * stride; }
};
template <class A> struct reader<A, address> {
  i64 value;
  KM_INL reader(const char* p, i64) : value((i64)(uptr)p) {}
  KM_INL reader ahead(i64) const { return *this; }
  KM_INL void prefetch(i64, i64) const {}
  KM_INL typename A::type operator[](i64) const { return value; }
};

// Brings n elements that lie `stride` bytes apart together; the strides that a view often has, each
// other element and backwards, by whole registers.
template <class T> KM_HOT void collect(char* KM_R to, const char* KM_R from, i64 stride, i64 n) {
  constexpr i64 size = (i64)sizeof(T);
  if (stride == 2 * size)
    for (i64 i = 0; i < n; i++)
      element<T>::store(to + i * size, element<T>::load(from + i * 2 * size));
  else if (stride == -size)
    for (i64 i = 0; i < n; i++)
      element<T>::store(to + i * size, element<T>::load(from - i * size));
  else
    for (i64 i = 0; i < n; i++)
      element<T>::store(to + i * size, element<T>::load(from + i * stride));
}

// Stores a value, f0, behind an address by its offset, f1.
template <class R> KM_INL void store_placed(char* to, const R& placed) {
  typedef decltype(R::f0) T;
  if (placed.f1 != nowhere) element<T>::store(to + placed.f1, placed.f0);
}

template <class A> struct writer {
  char* at;
  i64 stride;
  KM_INL writer(char* p, i64 s) : at(p), stride(A::pattern == strided ? s : A::size) {}
  template <class V> KM_INL void put(i64 i, const V& value) const {
    if constexpr (A::pattern == placed)
      store_placed(at, value);
    else if constexpr (A::pattern == strided)
      element<typename A::type>::store(at + i * stride, value);
    else
      element<typename A::type>::store(at + i * A::size, value);
  }
};

// Moves N pointers to position `step` of the dimensions [first, last) of a call.
template <int N> KM_COLD void seek(const Call* call, int first, int last, i64 step, char** p) {
  for (int d = last - 1; d >= first && step; d--) {
    i64 i = step % call->shape[d];
    step /= call->shape[d];
    for (int k = 0; k < N; k++) p[k] += i * call->operands[k].strides[d];
  }
}

KM_INL i64 extent_of(const Call* call, int first, int last) {
  i64 n = 1;
  for (int d = first; d < last; d++) n *= call->shape[d];
  return n;
}

}  // namespace km
