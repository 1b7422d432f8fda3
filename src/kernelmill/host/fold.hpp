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
  template <class V> KM_INL V vec(V a, V b) const {
    V least = a < b ? a : b;  // one instruction: b where the two are equal or unordered
    KM_OPAQUE(least);
    return a != a ? a : least;
  }
};
template <class T> struct maximum : vector_fold<T, T> {
  KM_INL T operator()(T a, T b) const { return ((a > b) | (a != a)) ? a : b; }
  template <class V> KM_INL V vec(V a, V b) const {
    V most = a > b ? a : b;
    KM_OPAQUE(most);
    return a != a ? a : most;
  }
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
