// base.cuh - the device twin of host/base.hpp, included as "base.hpp": the same types and names, so that scalar.hpp,
// complex.hpp and the vector math serve unchanged.  No arithmetic, and nothing that names the chip: see prims.cuh.
#pragma once
#include "prims.cuh"

// A template for signed and unsigned types compares with zero; NVRTC 13.0 warns of it where the type is unsigned.
#pragma nv_diag_suppress 186
// x / 0.0 has a value in operators.
#pragma nv_diag_suppress 39

// The shared files spell these as host compilers do.
#define __builtin_fabsf(x) ::fabsf(x)
#define __builtin_fabs(x) ::fabs(x)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000LL)

namespace km {

// ---- half precision: 16 bits of storage, explicit conversions ----------------------------------------------------------

// Packed, so that a packed struct may hold one at an odd address (a type with constructors is not packed otherwise).
struct __attribute__((packed, aligned(2))) f16 {
  u16 bits;
  f16() = default;
  explicit KM_INL f16(f32 value) : bits(f16_bits_of(value)) {}
  explicit KM_INL f16(f64 value) : bits(f16_bits_of(value)) {}
  explicit KM_INL operator f32() const { return f32_of_f16_bits(bits); }
  explicit KM_INL operator f64() const { return (f64)f32_of_f16_bits(bits); }
  static KM_INL f16 from_bits(u16 pattern) {
    f16 out;
    out.bits = pattern;
    return out;
  }
};

struct __attribute__((packed, aligned(2))) bf16 {
  u16 bits;
  bf16() = default;
  explicit KM_INL bf16(f32 value) : bits(bf16_bits_of(value)) {}
  explicit KM_INL bf16(f64 value) : bits(bf16_bits_of((f32)value)) {}  // by way of float32, as the field does
  explicit KM_INL operator f32() const { return bit_cast<f32>((u32)bits << 16); }
  explicit KM_INL operator f64() const { return (f64)bit_cast<f32>((u32)bits << 16); }
  static KM_INL bf16 from_bits(u16 pattern) {
    bf16 out;
    out.bits = pattern;
    return out;
  }
};

// ---- complex numbers and several results: storage only ---------------------------------------------------------------------

template <class T>
struct complex {
  T re, im;
};
typedef complex<f32> c64;
typedef complex<f64> c128;

template <class A, class B> struct tuple2 { A f0; B f1; };
template <class A, class B, class C> struct tuple3 { A f0; B f1; C f2; };
template <class A, class B, class C, class D> struct tuple4 { A f0; B f1; C f2; D f3; };
template <class A, class B, class C, class D, class E> struct tuple5 { A f0; B f1; C f2; D f3; E f4; };
template <class A, class B, class C, class D, class E, class F> struct tuple6 { A f0; B f1; C f2; D f3; E f4; F f5; };
template <class A, class B, class C, class D, class E, class F, class G>
struct tuple7 { A f0; B f1; C f2; D f3; E f4; F f5; G f6; };
template <class A, class B, class C, class D, class E, class F, class G, class H>
struct tuple8 { A f0; B f1; C f2; D f3; E f4; F f5; G f6; H f7; };

// Result K of an operator: a field of a tupleN, or the one value itself. Tuples of more than eight are printed and hand out the
// rest themselves.
template <int K, int N, class R>
KM_INL auto result(const R& r) {
  if constexpr (N == 1) return r;
  else if constexpr (K == 0) return r.f0;
  else if constexpr (K == 1) return r.f1;
  else if constexpr (K == 2) return r.f2;
  else if constexpr (K == 3) return r.f3;
  else if constexpr (K == 4) return r.f4;
  else if constexpr (K == 5) return r.f5;
  else if constexpr (K == 6) return r.f6;
  else if constexpr (K == 7) return r.f7;
  else return r.template at<K>();
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

// An element of an array that lies where a C compiler would put it: a packed struct anywhere, a float at a multiple of 4.
// A stored bool may hold any byte.
template <class T>
struct element {
  static KM_INL T load(const char* from) { return *(const T*)from; }
  static KM_INL void store(char* to, const T& value) { *(T*)to = value; }
};
template <>
struct element<bool> {
  static KM_INL bool load(const char* from) { return *(const u8*)from != 0; }
  static KM_INL void store(char* to, bool value) { *(u8*)to = value ? 1 : 0; }
};

// The same at any address, byte by byte: the chip refuses a float at an odd address.
template <class T>
struct unaligned_element {
  static KM_INL T load(const char* from) {
    struct bytes { u8 byte[sizeof(T)]; };
    return __builtin_bit_cast(T, *(const bytes*)from);
  }
  static KM_INL void store(char* to, const T& value) {
    struct bytes { u8 byte[sizeof(T)]; };
    *(bytes*)to = __builtin_bit_cast(bytes, value);
  }
};
template <>
struct unaligned_element<bool> : element<bool> {};

// For results, of which there are few: looks at the address.
template <class T>
KM_INL void store_anywhere(char* to, const T& value) {
  if ((uptr)to % alignof(T) == 0)
    element<T>::store(to, value);
  else
    unaligned_element<T>::store(to, value);
}

template <class T> KM_INL T smaller(T a, T b) { return b < a ? b : a; }
template <class T> KM_INL T larger(T a, T b) { return a < b ? b : a; }
KM_INL i64 clamp(i64 x, i64 low, i64 high) { return x < low ? low : (x > high ? high : x); }
KM_INL i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

}  // namespace km
