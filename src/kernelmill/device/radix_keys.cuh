// radix_keys.cuh - what a radix sort looks at: the order of elements as unsigned integers of their size, as host/sort_keys.hpp
// has it (-0 and 0 are equal, every NaN is one number behind all others), and the digits of these.  No loops.
#pragma once
#include "warp.cuh"

namespace km {

constexpr int radix_digits = 256;  // a digit has 8 bits

template <int Bytes> struct key_bits;
template <> struct key_bits<1> { typedef u8 type; };
template <> struct key_bits<2> { typedef u16 type; };
template <> struct key_bits<4> { typedef u32 type; };
template <> struct key_bits<8> { typedef u64 type; };

template <class U> KM_INL U order_of_signed(U bits) { return (U)(bits ^ (U)((U)1 << (8 * sizeof(U) - 1))); }
// As CUB: all bits of a negative number are turned over, the sign of others, and both zeros are the middle.
template <class U, U Infinity> KM_INL U order_of_float(U bits) {
  constexpr U top = (U)((U)1 << (8 * sizeof(U) - 1));
  if constexpr (sizeof(U) == 4) {
    const u32 one = bits_plus_zero(bits);
    return one ^ ((u32)((i32)one >> 31) | top);
  } else if constexpr (sizeof(U) == 8) {
    const f64 one = bit_cast<f64>(bits) + 0.0;
    const u64 number = bit_cast<u64>(one) ^ ((u64)((i64)bit_cast<u64>(one) >> 63) | top);
    return one != one ? ~(u64)0 : number;
  } else if constexpr (Infinity == 0x7f80) {
    return (U)(order_of_float<u32, 0x7f800000u>((u32)bits << 16) >> 16);
  } else {
    const u32 one = half_bits_plus_zero(bits);
    return (U)(one ^ (one >> 15 ? 0xffffu : 0x8000u));
  }
}

// By the real part first; numbers with a NaN are behind all others, those with one only in the imaginary part first.
KM_INL u64 order_of_complex(u32 real, u32 imaginary) {
  const u32 nan = 0xffffffffu;
  if (real == nan) return (u64)(imaginary == nan ? nan : nan - 1) << 32 | imaginary;
  return imaginary == nan ? (u64)(nan - 2) << 32 | real : (u64)real << 32 | imaginary;
}

// Smaller for what comes before; elements are moved as the bits that they are.  `turns` says that all that is done to bits is
// to turn over those that 0 has not.  `last` and `first` are what is at the ends.  Where there is more than one pass of
// floats downwards, `low` has the bits 0 in all digits but the highest one: no element has a greater digit there.
template <class T> struct key_order {  // unsigned
  typedef typename key_bits<sizeof(T)>::type U;
  static constexpr bool turns = true;
  static constexpr U last = (U)~(U)0, first = 0;
  static KM_INL U of(U bits) { return bits; }
  static KM_INL U low(int) { return 0; }
};
template <> struct key_order<bool> {  // a stored bool may hold any byte
  typedef u8 U;
  static constexpr bool turns = false;
  static constexpr U last = 1, first = 0;
  static KM_INL U of(U bits) { return bits != 0; }
  static KM_INL U low(int) { return 0; }
};
#define KM_KEY_ORDER(T, Bits, First, Turns, expression)                   \
  template <> struct key_order<T> {                                       \
    typedef Bits U;                                                       \
    static constexpr bool turns = Turns;                                  \
    static constexpr U last = (U)((U)~(U)0 >> 1), first = (U)(First);     \
    static KM_INL U of(U bits) { return expression; }                     \
    static KM_INL U low(int) { return Turns ? first : (U)0; }             \
  }
KM_KEY_ORDER(i8, u8, 0x80, true, order_of_signed(bits));
KM_KEY_ORDER(i16, u16, 0x8000, true, order_of_signed(bits));
KM_KEY_ORDER(i32, u32, 0x80000000u, true, order_of_signed(bits));
KM_KEY_ORDER(i64, u64, 0x8000000000000000ul, true, order_of_signed(bits));
KM_KEY_ORDER(f16, u16, 0xfc00, false, (order_of_float<u16, 0x7c00>(bits)));
KM_KEY_ORDER(bf16, u16, 0xff80, false, (order_of_float<u16, 0x7f80>(bits)));
KM_KEY_ORDER(f32, u32, 0xff800000u, false, (order_of_float<u32, 0x7f800000u>(bits)));
KM_KEY_ORDER(f64, u64, 0xfff0000000000000ul, false, (order_of_float<u64, 0x7ff0000000000000ul>(bits)));
// Stored is the real part, then the imaginary one, which is the lower half of the order.
template <> struct key_order<c64> {
  typedef u64 U;
  static constexpr bool turns = false;
  static constexpr U last = 0x7fffffff7ffffffful, first = 0xff800000ff800000ul;
  static KM_INL U of(U bits) {
    return order_of_complex(key_order<f32>::of((u32)bits), key_order<f32>::of((u32)(bits >> 32)));
  }
  static KM_INL U low(int shift) { return shift < 24 || shift >= 32 ? (U)0 : (U)key_order<f32>::first << 32; }
};
#undef KM_KEY_ORDER

// Bits `first` to `end` of the order, of which digit number d is the d-th from below; the last may be narrower, and is 0 where
// there are no bits.
template <class T, int First, int End, bool Descending>
struct radix_order {
  typedef typename key_order<T>::U U;
  static constexpr int passes = End > First ? (End - First + 7) / 8 : 1;
  static constexpr U flip = Descending ? (U)~(U)0 : (U)0;
  static KM_INL U of(U bits) { return (U)(key_order<T>::of(bits) ^ flip); }
  static KM_INL int shift(int pass) { return First + 8 * pass; }
  static KM_INL u32 mask(int pass) {
    if constexpr (End > First && (End - First) % 8 == 0) return radix_digits - 1;
    else return (1u << smaller(8, End - shift(pass))) - 1;
  }
  static KM_INL u32 digit(U bits, int shift, u32 mask) {
    if constexpr (key_order<T>::turns) return ((u32)(bits >> shift) ^ (u32)(of(0) >> shift)) & mask;
    else return (u32)(of(bits) >> shift) & mask;
  }
  // The same by other instructions, so that the compiler of NVRTC 13.0 keeps no digits of many keys for later.
  static KM_INL u32 digit_apart(U bits, int shift, u32 mask) {
    if constexpr (sizeof(U) == 8 && First % 8 == 0 && key_order<T>::turns) {
      const u32 half = shift < 32 ? (u32)bits : (u32)(bits >> 32);
      return (half >> (shift & 31) ^ (u32)(of(0) >> shift)) & mask;
    } else {
      return digit(bits, shift, mask);
    }
  }
  // Bits that no element has a greater digit than in this pass, to fill up a tile with.
  static KM_INL U filling(int pass) {
    if constexpr (!Descending) return key_order<T>::last;
    else return End == 8 * (int)sizeof(T) && pass == passes - 1 ? key_order<T>::first : key_order<T>::low(shift(pass));
  }
};

// Lanes of the warp whose digit is that of this one, by a table of words for its digits that is 0 before and after.
KM_INL u32 match_by_table(u32* table, u32 digit, int lane) {
  or_shared(table + digit, 1u << lane);
  warp_barrier();
  const u32 found = load_shared(table + digit);
  warp_barrier();
  store_shared(table + digit, 0);
  warp_barrier();
  return found;
}

}  // namespace km
