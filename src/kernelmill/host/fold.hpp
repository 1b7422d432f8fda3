// fold.hpp - the well-known operators of a reduction, with their vector forms; the tree they run in
// is in reduce_tree.hpp. A generated fold derives from one of these, or has the same members, and
// adds
//     typedef T out;  KM_INL out finish(acc a) const;   // applies `init` on the left and converts
//     to the type of the result
#pragma once
#include "base.hpp"

namespace km {

template <class T> struct unsigned_of {
  typedef T type;
};  // integers wrap around: added and multiplied as unsigned
template <> struct unsigned_of<i8> {
  typedef u8 type;
};
template <> struct unsigned_of<i16> {
  typedef u16 type;
};
template <> struct unsigned_of<i32> {
  typedef u32 type;
};
template <> struct unsigned_of<i64> {
  typedef u64 type;
};

// An operator that only exists for one element at a time.  Derive, and add operator()(T, T) const.
template <class T, bool Ordered = false> struct scalar_fold {
  typedef T acc;
  typedef T lane;
  static constexpr bool vectors = false, ordered = Ordered;
};

// `lane` is the type in which vec() works on registers of several elements.
template <class T, class Lane> struct vector_fold {
  typedef T acc;
  typedef Lane lane;
  static constexpr bool vectors = true, ordered = false;
};

// The greater or the lesser of two registers of numbers, NaN where one is NaN.
template <bool Greater, class V> KM_INL V extreme(V a, V b) {
#if defined(__x86_64__) && defined(__AVX512VL__)
  // Two instructions, which compilers do not find: b where the two are equal or unordered, but
  // only where a is no NaN.
  typedef decltype(a[0] + a[0]) T;
  if constexpr ((T)0.5 != 0) {
    u32 numbers;
    if constexpr (sizeof(T) == 4) {
      __asm__("vcmpps $7, %1, %1, %0" : "=Yk"(numbers) : "v"(a));
      if constexpr (Greater)
        __asm__("vmaxps %2, %0, %0%{%1%}" : "+v"(a) : "Yk"(numbers), "v"(b));
      else
        __asm__("vminps %2, %0, %0%{%1%}" : "+v"(a) : "Yk"(numbers), "v"(b));
    } else {
      __asm__("vcmppd $7, %1, %1, %0" : "=Yk"(numbers) : "v"(a));
      if constexpr (Greater)
        __asm__("vmaxpd %2, %0, %0%{%1%}" : "+v"(a) : "Yk"(numbers), "v"(b));
      else
        __asm__("vminpd %2, %0, %0%{%1%}" : "+v"(a) : "Yk"(numbers), "v"(b));
    }
    return a;
  }
#endif
  V found = (Greater ? a > b : a < b) ? a : b;  // one instruction
  KM_OPAQUE(found);
  return a != a ? a : found;
}

namespace fold {

template <class T> struct add : vector_fold<T, typename unsigned_of<T>::type> {
  typedef typename unsigned_of<T>::type U;
  KM_INL T operator()(T a, T b) const { return (T)(U)((U)a + (U)b); }
  template <class V> KM_INL V vec(V a, V b) const { return a + b; }
};
template <class T> struct multiply : vector_fold<T, typename unsigned_of<T>::type> {
  typedef typename unsigned_of<T>::type U;
  KM_INL T operator()(T a, T b) const {
    if constexpr (sizeof(T) == 2)
      return (T)(U)((u32)(U)a * (u32)(U)b);  // u16 * u16 overflows int
    else
      return (T)(U)((U)a * (U)b);
  }
  template <class V> KM_INL V vec(V a, V b) const { return a * b; }
};
// NaN wins, as in NumPy: the first one of the two.
template <class T> struct minimum : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return ((a < b) | (a != a)) ? a : b; }
  template <class V> KM_INL V vec(V a, V b) const { return extreme<false>(a, b); }
};
template <class T> struct maximum : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return ((a > b) | (a != a)) ? a : b; }
  template <class V> KM_INL V vec(V a, V b) const { return extreme<true>(a, b); }
};
template <class T> struct bitwise_and : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return (T)(a & b); }
  template <class V> KM_INL V vec(V a, V b) const { return a & b; }
};
template <class T> struct bitwise_or : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return (T)(a | b); }
  template <class V> KM_INL V vec(V a, V b) const { return a | b; }
};
template <class T> struct bitwise_xor : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return (T)(a ^ b); }
  template <class V> KM_INL V vec(V a, V b) const { return a ^ b; }
};

}  // namespace fold

}  // namespace km
