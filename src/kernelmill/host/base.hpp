// base.hpp - the scalar storage types and the few macros every host kernel stands on; no
// arithmetic, no loops. The prelude of generated host code: nothing outside this directory is
// included, so a kernel compiles in hundredths of a second.  Arithmetic of the soft and complex
// types is in scalar.hpp, transcendentals are in vmath.hpp.
#pragma once

// Usable on free functions and on members alike; every operator must end up inside the loop that
// calls it.
#define KM_INL inline __attribute__((always_inline))
#define KM_HOT __attribute__((noinline, hot))
// Control flow around the loops: compiled for size, which is what keeps a kernel's compile time
// short.
#define KM_COLD __attribute__((noinline, cold))
#define KM_R __restrict__
#define KM_EXPORT extern "C" __attribute__((visibility("default")))
#define KM_LIKELY(x) __builtin_expect(!!(x), 1)
#define KM_UNLIKELY(x) __builtin_expect(!!(x), 0)

// "Iterations of the next loop are independent": true where every output of an element-wise loop is
// disjoint from each input or exactly the same array.  Never a statement about aliasing inside one
// iteration.
#if defined(__clang__)
#define KM_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#define KM_UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define KM_IVDEP _Pragma("GCC ivdep")
#define KM_UNROLL_ALL _Pragma("GCC unroll 64")
#endif

// Bytes of a register-wide generic vector.  Wider generic vectors are legal, but g++ lowers ?: on
// them lane by lane.
#if defined(__AVX512F__)
#define KM_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define KM_VECTOR_BYTES 32
#else
#define KM_VECTOR_BYTES 16
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // not every element type has a vector form
#else
#pragma GCC diagnostic ignored "-Wpacked-not-aligned"  // f16, bf16 in packed structs are meant
#endif

// Keeps a vector value as it is: the compiler does not look through it when it combines operations.
#if defined(__x86_64__) && defined(__AVX512F__)
#define KM_OPAQUE(x) __asm__("" : "+v"(x))
#elif defined(__x86_64__)
#define KM_OPAQUE(x) __asm__("" : "+x"(x))
#else
#define KM_OPAQUE(x) (void)(x)
#endif

namespace km {

typedef __INT8_TYPE__ i8;
typedef __UINT8_TYPE__ u8;
typedef __INT16_TYPE__ i16;
typedef __UINT16_TYPE__ u16;
typedef __INT32_TYPE__ i32;
typedef __UINT32_TYPE__ u32;
typedef __INT64_TYPE__ i64;
typedef __UINT64_TYPE__ u64;
typedef float f32;
typedef double f64;
typedef __SIZE_TYPE__ usize;
typedef __UINTPTR_TYPE__ uptr;

static_assert(sizeof(i64) == 8 && sizeof(f32) == 4 && sizeof(f64) == 8, "unsupported data model");

// The bits of one value seen as another type of the same size.
template <class To, class From> KM_INL To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To out;
  __builtin_memcpy(&out, &value, sizeof(To));
  return out;
}

// ---- half precision: 16 bits of storage and branch-free conversions --------------------------------

// float32 -> IEEE binary16, round to nearest even; a NaN keeps the top of its payload, overflow
// gives infinity.  Integer operations vectorise with every compiler and give the same bits on every
// instruction set; g++ converts _Float16 one element at a time.
KM_INL u16 f16_bits_of(f32 value) {
  u32 x = bit_cast<u32>(value);
  u32 sign = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
  u32 normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;          // exponent rebased, tie to even
  u32 tiny = bit_cast<u32>(bit_cast<f32>(a) + 0.5f) - 0x3f000000u;  // the adder does the rounding
  u32 payload = (a >> 13) & 0x3ffu;
  u32 special = 0x7c00u | (a > 0x7f800000u ? (payload == 0 ? 1u : payload) : 0u);
  u32 finite = a < 0x38800000u ? tiny : normal;
  return (u16)(sign | (a >= 0x47800000u ? special : finite));
}

// IEEE binary16 -> float32, exact.
KM_INL f32 f32_of_f16_bits(u16 half) {
  u32 h = half;
  u32 a = (h & 0x7fffu) << 13;
  u32 finite =
      bit_cast<u32>(bit_cast<f32>(a) * bit_cast<f32>(0x77800000u));  // * 2^112 rebases the exponent
  return bit_cast<f32>(((h & 0x8000u) << 16) | (a >= 0x0f800000u ? a | 0x7f800000u : finite));
}

// float64 -> float32 rounded to odd: a second rounding to a narrower type then gives the correctly
// rounded result.
KM_INL f32 f32_to_odd(f64 value) {
  f32 near = (f32)value;
  f64 back = (f64)near;
  u32 bits = bit_cast<u32>(near);
  f64 mag = __builtin_fabs(value), got = __builtin_fabs(back);
  u32 cut = bits - (got > mag ? 1u : 0u);  // toward zero
  u32 odd = cut | (((got > mag) | (got < mag)) ? 1u : 0u);
  return bit_cast<f32>(value != value ? bits : odd);
}

// Packed, so that a packed struct may hold one at an odd address (a type with constructors is not
// packed otherwise).
struct __attribute__((packed, aligned(2))) f16 {
  u16 bits;
  f16() = default;
  explicit KM_INL f16(f32 value) : bits(f16_bits_of(value)) {}
  explicit KM_INL f16(f64 value) : bits(f16_bits_of(f32_to_odd(value))) {}  // rounded once
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
  explicit KM_INL bf16(f32 value) {
    u32 x = bit_cast<u32>(value);
    u32 nearest = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
    bits = (u16)((x & 0x7fffffffu) > 0x7f800000u ? ((x >> 16) & 0x8000u) | 0x7fc0u : nearest);
  }
  explicit KM_INL bf16(f64 value) : bf16((f32)value) {}  // by way of float32, as the field does
  explicit KM_INL operator f32() const { return bit_cast<f32>((u32)bits << 16); }
  explicit KM_INL operator f64() const { return (f64)bit_cast<f32>((u32)bits << 16); }
  static KM_INL bf16 from_bits(u16 pattern) {
    bf16 out;
    out.bits = pattern;
    return out;
  }
};

// ---- complex numbers: storage only --------------------------------------------------------------

template <class T> struct complex {
  T re, im;
};
typedef complex<f32> c64;
typedef complex<f64> c128;

// ---- several results of one operator ------------------------------------------------------------

template <class A, class B> struct tuple2 {
  A f0;
  B f1;
};
template <class A, class B, class C> struct tuple3 {
  A f0;
  B f1;
  C f2;
};
template <class A, class B, class C, class D> struct tuple4 {
  A f0;
  B f1;
  C f2;
  D f3;
};
template <class A, class B, class C, class D, class E> struct tuple5 {
  A f0;
  B f1;
  C f2;
  D f3;
  E f4;
};
template <class A, class B, class C, class D, class E, class F> struct tuple6 {
  A f0;
  B f1;
  C f2;
  D f3;
  E f4;
  F f5;
};
template <class A, class B, class C, class D, class E, class F, class G> struct tuple7 {
  A f0;
  B f1;
  C f2;
  D f3;
  E f4;
  F f5;
  G f6;
};
template <class A, class B, class C, class D, class E, class F, class G, class H> struct tuple8 {
  A f0;
  B f1;
  C f2;
  D f3;
  E f4;
  F f5;
  G f6;
  H f7;
};

// Result K of an operator: a field of a tupleN, or the one value itself. Tuples of more than eight
// are printed (compiler/cpp_types.py) and hand out the rest themselves.
template <int K, int N, class R> KM_INL auto result(const R& r) {
  if constexpr (N == 1)
    return r;
  else if constexpr (K == 0)
    return r.f0;
  else if constexpr (K == 1)
    return r.f1;
  else if constexpr (K == 2)
    return r.f2;
  else if constexpr (K == 3)
    return r.f3;
  else if constexpr (K == 4)
    return r.f4;
  else if constexpr (K == 5)
    return r.f5;
  else if constexpr (K == 6)
    return r.f6;
  else if constexpr (K == 7)
    return r.f7;
  else
    return r.template at<K>();
}

// indices_of<3> is indices<0, 1, 2>.
template <int... K> struct indices {};
#if defined(__clang__)
template <class, int... K> using typed_indices = indices<K...>;
template <int N> using indices_of = __make_integer_seq<typed_indices, int, N>;
#else
template <int N> using indices_of = indices<__integer_pack(N)...>;
#endif

// ---- memory: any address, any trivially copyable type -------------------------------------------

// Member access through this type assumes no alignment, and unlike memcpy leaves the fields of a
// struct in registers.
template <class T> struct __attribute__((packed, may_alias)) unaligned {
  T value;
};

// An element of an array may lie at any address (packed structs) and a stored bool may hold any
// byte.
template <class T> struct element {
  static KM_INL T load(const char* from) { return ((const unaligned<T>*)from)->value; }
  static KM_INL void store(char* to, const T& value) { ((unaligned<T>*)to)->value = value; }
};
template <> struct element<bool> {
  static KM_INL bool load(const char* from) { return *(const u8*)from != 0; }
  static KM_INL void store(char* to, bool value) { *(u8*)to = value ? 1 : 0; }
};

template <class T> constexpr KM_INL T smaller(T a, T b) { return b < a ? b : a; }
template <class T> constexpr KM_INL T larger(T a, T b) { return a < b ? b : a; }
constexpr i64 clamp(i64 x, i64 low, i64 high) { return x < low ? low : (x > high ? high : x); }
KM_INL i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

}  // namespace km
