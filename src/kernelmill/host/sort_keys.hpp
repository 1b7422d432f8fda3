// sort_keys.hpp - the order of elements as unsigned integers of their size: -0 and 0 are equal, every NaN is one number
// behind all others, complex numbers go by their real part first.  No loops.
#pragma once
#include "abi.hpp"

namespace km {

template <int Bytes> struct unsigned_of;
template <> struct unsigned_of<1> { typedef u8 type; };
template <> struct unsigned_of<2> { typedef u16 type; };
template <> struct unsigned_of<4> { typedef u32 type; };
template <> struct unsigned_of<8> { typedef u64 type; };
__extension__ typedef unsigned __int128 u128;
template <> struct unsigned_of<16> { typedef u128 type; };
template <class T> using bits_of = typename unsigned_of<sizeof(T)>::type;

template <class U> KM_INL U signed_order(U bits) { return bits ^ (U)((U)1 << (8 * sizeof(U) - 1)); }
// As CUB: all bits of a negative number are turned over, the sign of others, and both zeros are the middle.
template <class U, U Infinity> KM_INL U float_order(U bits) {
  const U top = (U)((U)1 << (8 * sizeof(U) - 1)), size = bits & (U)(top - 1);
  const U number = bits & top ? (U)((U)~bits + (size == 0)) : (U)(top + size);
  return size > Infinity ? (U)~(U)0 : number;
}

// As NumPy: all numbers, those whose imaginary part is nan, whose real part is, and of which both are; each kind by what
// is a number.  The orders of floats leave the numbers just below that of nan free.
template <class U, class Part> KM_INL U complex_order(Part real, Part imaginary) {
  const Part nan = (Part)~(Part)0;
  const Part high = real == nan ? (Part)(imaginary == nan ? nan : nan - 1) : imaginary == nan ? (Part)(nan - 2) : real;
  const Part low = real != nan && imaginary == nan ? real : imaginary;
  return (U)high << (8 * sizeof(Part)) | low;
}

// order<T>::of(bits) - an integer that is smaller for what comes before.
template <class T> struct order {  // unsigned
  static KM_INL bits_of<T> of(bits_of<T> bits) { return bits; }
};
template <> struct order<bool> {  // a stored bool may hold any byte
  static KM_INL u8 of(u8 bits) { return bits != 0; }
};
#define KM_ORDER(T, expression) \
  template <> struct order<T> { \
    typedef bits_of<T> U;       \
    static KM_INL U of(U bits) { return expression; } \
  }
KM_ORDER(i8, signed_order<U>(bits));
KM_ORDER(i16, signed_order<U>(bits));
KM_ORDER(i32, signed_order<U>(bits));
KM_ORDER(i64, signed_order<U>(bits));
KM_ORDER(f16, (float_order<U, 0x7c00>(bits)));
KM_ORDER(bf16, (float_order<U, 0x7f80>(bits)));
KM_ORDER(f32, (float_order<U, 0x7f800000u>(bits)));
KM_ORDER(f64, (float_order<U, 0x7ff0000000000000u>(bits)));
KM_ORDER(c64, (complex_order<U, u32>(order<f32>::of((u32)bits), order<f32>::of((u32)(bits >> 32)))));
KM_ORDER(c128, (complex_order<U, u64>(order<f64>::of((u64)bits), order<f64>::of((u64)(bits >> 64)))));
#undef KM_ORDER

template <class T> KM_INL bits_of<T> order_of(const T& value) { return order<T>::of(bit_cast<bits_of<T>>(value)); }

// Whether the first comes before the second: elements in their own order, or by an operator of the user.
template <class T, bool Descending> struct own_less {
  KM_INL bool operator()(const T* a, const T* b) const {
    bits_of<T> x, y;
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
    return Descending ? order<T>::of(y) < order<T>::of(x) : order<T>::of(x) < order<T>::of(y);
  }
};
template <class Op, class T, bool Descending> struct op_less {
  const Op& op;
  KM_INL bool operator()(const T* a, const T* b) const {
    const T x = element<T>::load((const char*)a), y = element<T>::load((const char*)b);
    return Descending ? op(y, x) : op(x, y);
  }
};

// Pieces of a workspace, one after another.
struct Pieces {
  char* at;
  template <class T> KM_INL T* take(i64 count) {
    char* piece = at;
    at += (count * (i64)sizeof(T) + 63) & ~(i64)63;
    return (T*)piece;
  }
};

}  // namespace km
