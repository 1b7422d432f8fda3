// scalar.hpp - what the operations of docs/reference/operator-language.md mean for integers, bool and floats; one value
// each.  Complex numbers are in complex.hpp, remainders of floats in remainder.hpp, rounding and transcendental functions in
// the vmath headers; float16 and bfloat16 have no overloads: generated code widens to f32, computes, and rounds.
// Every function is total, and branch-free unless it says so, so that loops around it vectorise.
#pragma once
#include "base.hpp"

namespace km {

// The unsigned type in which the bits of a T are computed: arithmetic wraps, and nothing is promoted to int.
template <int Bytes> struct ring_of { typedef u32 type; };
template <> struct ring_of<8> { typedef u64 type; };
template <class T> using ring = typename ring_of<sizeof(T)>::type;
template <class T> constexpr bool is_signed = T(-1) < T(0);
template <class T> constexpr int width = 8 * (int)sizeof(T);

// ---- floats: subtraction that stays one ------------------------------------------------------------------------------------

// g++ 12 and 13 turn neighbouring a * b - c and a * b + c into vfmaddsub, with one rounding less, whatever -ffp-contract
// says; they look for the product on the left of the subtraction.  Where values are stored side by side (complex numbers,
// structs, several results), subtractions are written as this.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define KM_ROUNDED(x) __builtin_assoc_barrier(x)
#else
#define KM_ROUNDED(x) (x)
#endif
KM_INL f32 sub(f32 a, f32 b) { return KM_ROUNDED(a) - b; }
KM_INL f64 sub(f64 a, f64 b) { return KM_ROUNDED(a) - b; }

// ---- integers: arithmetic modulo 2^width --------------------------------------------------------------------------------

// The ptxas of CUDA 12.9 and 13.0 takes a negative of 16 bits for one that does not overflow, whatever it was written as, and
// widens -32768 to 32768: it gets to see no such negative.
template <class T>
KM_INL T wrapped(ring<T> r) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2) asm("" : "+r"(r));
#endif
  return T(r);
}
template <class T> KM_INL T add(T a, T b) { return wrapped<T>(ring<T>(a) + ring<T>(b)); }
template <class T> KM_INL T sub(T a, T b) { return wrapped<T>(ring<T>(a) - ring<T>(b)); }
template <class T> KM_INL T mul(T a, T b) { return wrapped<T>(ring<T>(a) * ring<T>(b)); }
template <class T> KM_INL T neg(T a) { return wrapped<T>(ring<T>(0) - ring<T>(a)); }
template <class T> KM_INL T abs(T a) { return a < T(0) ? neg(a) : a; }
template <class T> KM_INL T square(T a) { return mul(a, a); }
KM_INL f32 square(f32 a) { return a * a; }
KM_INL f64 square(f64 a) { return a * a; }
template <class T> KM_INL T sign(T a) { return T((a > T(0)) - (a < T(0))); }
KM_INL f32 sign(f32 a) { return a > 0.0f ? 1.0f : (a < 0.0f ? -1.0f : (a != a ? a : 0.0f)); }
KM_INL f64 sign(f64 a) { return a > 0.0 ? 1.0 : (a < 0.0 ? -1.0 : (a != a ? a : 0.0)); }

// The divisor, where the quotient exists; else 1.  MIN / 1 is what MIN / -1 is when it wraps.
template <class T> KM_INL T safe_divisor(T a, T b) {
  if constexpr (is_signed<T>) return ((b == T(0)) | ((b == T(-1)) & (a == neg(a)))) ? T(1) : b;
  else return b == T(0) ? T(1) : b;
}
// a / d toward zero.  Up to 32 bits the floating quotient is exact enough, and vectorises.
template <class T> KM_INL T quotient(T a, T d) {
  if constexpr (sizeof(T) <= 2) return T(i32(f32(a) / f32(d)));
  else if constexpr (sizeof(T) == 4) return T(f64(a) / f64(d));
  else return T(a / d);
}
template <class T> KM_INL T remainder(T a, T d) { return sub(a, mul(quotient(a, d), d)); }
template <class T> KM_INL bool signs_differ(T a, T b) { return (a < T(0)) != (b < T(0)); }

template <class T> KM_INL T floordiv(T a, T b) {
  const T d = safe_divisor(a, b), q = quotient(a, d);
  T below = q;
  if constexpr (is_signed<T>) {
    const T r = sub(a, mul(q, d));
    below = sub(q, T((r != T(0)) & signs_differ(r, d)));
  }
  return b == T(0) ? T(0) : below;
}
template <class T> KM_INL T mod(T a, T b) {
  const T d = safe_divisor(a, b), r = remainder(a, d);
  if constexpr (is_signed<T>) return ((r != T(0)) & signs_differ(r, d)) ? add(r, d) : r;
  else return r;
}
template <class T> KM_INL T c_fmod(T a, T b) { return remainder(a, safe_divisor(a, b)); }

// By squaring; the number of turns depends on b, so this does not vectorise.
template <class T> KM_INL T pow_int(T a, T b) {
  if (b < T(0)) return T(0);
  ring<T> power = 1, base = ring<T>(a);
  for (ring<T> left = ring<T>(b); left != 0; left >>= 1) {
    power = left & 1 ? power * base : power;
    base *= base;
  }
  return T(power);
}

// ---- integers: bits -----------------------------------------------------------------------------------------------------

template <class T> KM_INL T bit_and(T a, T b) { return T(a & b); }
template <class T> KM_INL T bit_or(T a, T b) { return T(a | b); }
template <class T> KM_INL T bit_xor(T a, T b) { return T(a ^ b); }
template <class T> KM_INL T invert(T a) { return T(~ring<T>(a)); }
KM_INL bool invert(bool a) { return !a; }
// A negative count is a large one in the ring.
template <class T> KM_INL bool shifts_out(T count) { return ring<T>(count) >= ring<T>(width<T>); }
template <class T> KM_INL T lshift(T a, T b) {
  const bool out = shifts_out(b);
  return out ? T(0) : T(ring<T>(a) << (out ? ring<T>(0) : ring<T>(b)));
}
template <class T> KM_INL T rshift(T a, T b) {
  const bool out = shifts_out(b);
  if constexpr (is_signed<T>) return T(a >> (out ? ring<T>(width<T> - 1) : ring<T>(b)));
  else return out ? T(0) : T(a >> (out ? ring<T>(0) : ring<T>(b)));
}

// ---- comparison of integers of two types, as the mathematical values --------------------------------------------------------

// A negative number is below every unsigned one; behind that test both fit the larger type.
template <class A, class B> KM_INL bool less(A a, B b) {
  if constexpr (is_signed<A> == is_signed<B>) {
    if constexpr (sizeof(A) < sizeof(B)) return B(a) < b;
    else return a < A(b);
  } else if constexpr (is_signed<A>) {
    if constexpr (sizeof(A) > sizeof(B)) return a < A(b);
    else return (a < A(0)) | (B(a) < b);
  } else {
    if constexpr (sizeof(B) > sizeof(A)) return B(a) < b;
    else return (b >= B(0)) & (a < A(b));
  }
}
template <class A, class B> KM_INL bool equal(A a, B b) {
  if constexpr (sizeof(A) < sizeof(B)) return (B(a) == b) & ((a < A(0)) == (b < B(0)));
  else return (a == A(b)) & ((a < A(0)) == (b < B(0)));
}

// ---- choice, by the definitions of Python and NumPy: real types ----------------------------------------------------------

template <class T> KM_INL T py_min(T a, T b) { return b < a ? b : a; }
template <class T> KM_INL T py_max(T a, T b) { return b > a ? b : a; }
template <class T> KM_INL T np_minimum(T a, T b) { return ((a < b) | (a != a)) ? a : b; }
template <class T> KM_INL T np_maximum(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
template <class T> KM_INL T np_fmin(T a, T b) { return ((a <= b) | (b != b)) ? a : b; }
template <class T> KM_INL T np_fmax(T a, T b) { return ((a >= b) | (b != b)) ? a : b; }
// Both values at hand, so that the loop has no branch; each printed struct has its own, and complex.hpp.
template <class T> KM_INL T choose(bool c, T a, T b) { return c ? a : b; }
KM_INL f16 choose(bool c, f16 a, f16 b) { return f16::from_bits(c ? a.bits : b.bits); }
KM_INL bf16 choose(bool c, bf16 a, bf16 b) { return bf16::from_bits(c ? a.bits : b.bits); }

template <class A, class B> KM_INL tuple2<A, B> choose(bool c, tuple2<A, B> x, tuple2<A, B> y) {
  return {choose(c, x.f0, y.f0), choose(c, x.f1, y.f1)};
}
template <class A, class B, class C>
KM_INL tuple3<A, B, C> choose(bool c, tuple3<A, B, C> x, tuple3<A, B, C> y) {
  return {choose(c, x.f0, y.f0), choose(c, x.f1, y.f1), choose(c, x.f2, y.f2)};
}

// ---- float to integer -----------------------------------------------------------------------------------------------------

// GCC (12 and later) turns a float that becomes an integer and a float again into a truncation, which keeps the sign of
// zero: -0.25 must give 0.0, not -0.0.  So it may not see that a value is the integer part of another.
#if __GNUC__ >= 12 && !defined(__clang__) && !defined(__CUDACC__)
#define KM_INTEGER(x) __builtin_assoc_barrier(x)
#else
#define KM_INTEGER(x) (x)
#endif

// A value that the type cannot hold becomes its lowest value before the conversion, which is then defined.
KM_INL i32 to_i32(f32 x) { return KM_INTEGER(i32(((x >= -0x1p31f) & (x < 0x1p31f)) ? x : -0x1p31f)); }
KM_INL i32 to_i32(f64 x) { return KM_INTEGER(i32(((x >= -0x1p31) & (x < 0x1p31)) ? x : -0x1p31)); }
KM_INL i64 to_i64(f32 x) { return KM_INTEGER(i64(((x >= -0x1p63f) & (x < 0x1p63f)) ? x : -0x1p63f)); }
KM_INL i64 to_i64(f64 x) { return KM_INTEGER(i64(((x >= -0x1p63) & (x < 0x1p63)) ? x : -0x1p63)); }
template <class F> KM_INL u64 to_u64(F x) {
  const bool upper = (x >= F(0x1p63)) & (x < F(0x1p64));
  return u64(to_i64(upper ? x - F(0x1p63) : x)) ^ (u64(upper) << 63);
}

// The exponent of ldexp, held in 32 bits: beyond them every result is 0 or infinite.
template <class T> KM_INL i32 saturated(T n) {
  constexpr i32 most = 0x7fffffff;
  if constexpr (sizeof(T) < 4 || (sizeof(T) == 4 && is_signed<T>)) return i32(n);
  else if constexpr (is_signed<T>) return i32(n < T(-most) - 1 ? T(-most) - 1 : (n > T(most) ? T(most) : n));
  else return i32(n > T(most) ? T(most) : n);
}

// ---- range --------------------------------------------------------------------------------------------------------------------

// Turns of range(start, stop, step); a step of 0 makes none.
KM_INL u64 turns_of(i64 start, i64 stop, i64 step) {
  const u64 up = u64(stop) - u64(start), stride = step < 0 ? 0 - u64(step) : u64(step);
  const bool some = step > 0 ? start < stop : (step < 0) & (start > stop);
  return some ? ((step > 0 ? up : 0 - up) - 1) / (stride == 0 ? 1 : stride) + 1 : 0;
}

}  // namespace km
