// ptx_numbers.hpp - what stands for single instructions of PTX on registers: arithmetic, bits, predicates, conversions, and
// operations of a warp. The table is in ptx_lines.py. Registers hold bits; each function says of what type they are.
#pragma once
#include "half_bits.hpp"
#include "integers.hpp"
#include "math.hpp"
#include "ptx.hpp"
#include "warp.hpp"

extern "C" km_emu::u32 km_emu_carry(int set);  // the flag of the OS thread; -1 leaves it as it is

namespace km_emu::ptx {

using km_emu::u16;
using km_emu::u32;
using km_emu::u64;
using km_emu::u8;
typedef signed char s8;
typedef short s16;
// Numbers of 16 bits, whose registers are integers, and two of them in a word.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f16x2 { f16 low, high; };
struct bf16x2 { bf16 low, high; };

template <class T> constexpr int bits_of = 8 * (int)sizeof(T);
template <class T> constexpr bool is_minus = T(-1) < T(0);
template <class T> using unsigned_of = typename word_of<(int)sizeof(T)>::type;

// ---- numbers: those of 16 bits are computed in float64 and rounded once ---------------------------------------------

template <class T> KM_EMU_INLINE T number(T x) { return x; }
KM_EMU_INLINE double number(f16 x) { return (double)float_of_half_bits(x.bits); }
KM_EMU_INLINE double number(bf16 x) { return (double)float_of_brain_bits(x.bits); }
template <class T> struct made_of {
  template <class N> static KM_EMU_INLINE T from(N x) { return T(x); }
};
template <> struct made_of<f16> {
  template <class N> static KM_EMU_INLINE f16 from(N x) { return {half_bits((double)x)}; }
};
// By way of a float that is rounded to odd, as in half_bits.hpp.
template <> struct made_of<bf16> {
  template <class N> static KM_EMU_INLINE bf16 from(N x) {
    const double value = (double)x, size = __builtin_fabs(value);
    const float near = (float)value;
    const double got = __builtin_fabs((double)near);
    u32 cut = __builtin_bit_cast(u32, near);
    if (got != size && value == value) cut = (cut - (got > size ? 1u : 0u)) | 1u;
    return {brain_bits(__builtin_bit_cast(float, cut))};
  }
};

// ---- what an instruction computes -----------------------------------------------------------------------------------

#define KM_EMU_DO(name, parameters, expression) \
  struct name { template <class T> static KM_EMU_INLINE T of parameters { return T(expression); } };
KM_EMU_DO(do_add, (T a, T b), a + b)
KM_EMU_DO(do_sub, (T a, T b), a - b)
KM_EMU_DO(do_mul, (T a, T b), a * b)
KM_EMU_DO(do_div, (T a, T b), a / b)
KM_EMU_DO(do_rem, (T a, T b), a % b)
KM_EMU_DO(do_mul_lo, (T a, T b), (unsigned_of<T>)a * (u64)(unsigned_of<T>)b)
KM_EMU_DO(do_mad_lo, (T a, T b, T c), do_mul_lo::of(a, b) + c)
KM_EMU_DO(do_mul24, (T a, T b), (is_minus<T> ? (T)__mul24((int)a, (int)b) : (T)__umul24((unsigned)a, (unsigned)b)))
KM_EMU_DO(do_mad24, (T a, T b, T c), do_mul24::of(a, b) + c)
KM_EMU_DO(do_sad, (T a, T b, T c), c + (a < b ? b - a : a - b))
KM_EMU_DO(do_and, (T a, T b), a & b)
KM_EMU_DO(do_or, (T a, T b), a | b)
KM_EMU_DO(do_xor, (T a, T b), a ^ b)
KM_EMU_DO(do_not, (T a), ~a)
KM_EMU_DO(do_cnot, (T a), a == 0)
KM_EMU_DO(do_neg, (T a), -a)
KM_EMU_DO(do_shl, (T a, u32 by), by >= (u32)bits_of<T> ? T(0) : T(a << by))
KM_EMU_DO(do_shr, (T a, u32 by), by >= (u32)bits_of<T> ? T(a < T(0) ? -1 : 0) : T(a >> by))
KM_EMU_DO(do_brev, (T a), (sizeof(T) == 8 ? (T)__brevll((u64)a) : (T)__brev((u32)a)))
KM_EMU_DO(do_rcp, (T a), T(1) / a)
KM_EMU_DO(do_sqrt, (T a), __builtin_sqrt((double)a))
KM_EMU_DO(do_rsqrt, (T a), 1.0 / __builtin_sqrt((double)a))
KM_EMU_DO(do_ex2, (T a), __builtin_exp2((double)a))
KM_EMU_DO(do_lg2, (T a), __builtin_log2((double)a))
KM_EMU_DO(do_sin, (T a), __builtin_sin((double)a))
KM_EMU_DO(do_cos, (T a), __builtin_cos((double)a))
KM_EMU_DO(do_tanh, (T a), __builtin_tanh((double)a))
KM_EMU_DO(do_copysign, (T sign, T a), __builtin_copysign((double)a, (double)sign))
#undef KM_EMU_DO
template <class T> constexpr bool is_real = kind_of<T>::value == floating;
struct do_mul_hi {
  template <class T> static KM_EMU_INLINE T of(T a, T b) {
    if constexpr (sizeof(T) < 8 && is_minus<T>) return T((i64)a * b >> bits_of<T>);
    else if constexpr (sizeof(T) < 8) return T((u64)a * b >> bits_of<T>);
    else return is_minus<T> ? (T)__mul64hi((long long)a, (long long)b) : (T)__umul64hi((u64)a, (u64)b);
  }
};
struct do_mad_hi { template <class T> static KM_EMU_INLINE T of(T a, T b, T c) { return T(do_mul_hi::of(a, b) + c); } };
struct do_fma {
  template <class T> static KM_EMU_INLINE T of(T a, T b, T c) {
    if constexpr (sizeof(T) == 4) return __builtin_fmaf(a, b, c);
    else return __builtin_fma(a, b, c);
  }
};
struct do_abs {
  template <class T> static KM_EMU_INLINE T of(T a) {
    if constexpr (is_real<T>) return (T)__builtin_fabs((double)a);
    else return a < T(0) ? T(-a) : a;
  }
};
// The number of two, where one is none.
struct do_min {
  template <class T> static KM_EMU_INLINE T of(T a, T b) {
    if constexpr (is_real<T>) return (T)__builtin_fmin((double)a, (double)b);
    else return b < a ? b : a;
  }
};
struct do_max {
  template <class T> static KM_EMU_INLINE T of(T a, T b) {
    if constexpr (is_real<T>) return (T)__builtin_fmax((double)a, (double)b);
    else return a < b ? b : a;
  }
};
template <class Op> struct or_nan { template <class T> static KM_EMU_INLINE T of(T a, T b) { return a != a ? a : b != b ? b : Op::of(a, b); } };
typedef or_nan<do_min> do_min_nan;
typedef or_nan<do_max> do_max_nan;
template <class Op> struct held_in_one {
  template <class... T> static KM_EMU_INLINE auto of(T... values) {
    const auto made = Op::of(values...);
    return made > 0 ? made < 1 ? made : decltype(made)(1) : decltype(made)(0);
  }
};
template <class Op> struct held_in_int {
  static KM_EMU_INLINE s32 of(s32 a, s32 b) { return saturated<s32>((double)Op::of((i64)a, (i64)b)); }
};
struct do_add_sat { template <class T> static KM_EMU_INLINE T of(T a, T b) {
  if constexpr (is_real<T>) return (T)held_in_one<do_add>::of(a, b);
  else return held_in_int<do_add>::of(a, b);
} };
struct do_sub_sat { template <class T> static KM_EMU_INLINE T of(T a, T b) {
  if constexpr (is_real<T>) return (T)held_in_one<do_sub>::of(a, b);
  else return held_in_int<do_sub>::of(a, b);
} };
typedef held_in_one<do_mul> do_mul_sat;
typedef held_in_one<do_fma> do_fma_sat;

template <class Op, class T, class... A> KM_EMU_INLINE T computed(A... a) { return made_of<T>::from(Op::of(number(a)...)); }
template <class Op, class T, class D, class... A> KM_EMU_INLINE void compute(D& d, A... a) {
  if constexpr (__is_same(T, f16x2)) put(d, f16x2{computed<Op, f16>(word_from<T>(a).low...), computed<Op, f16>(word_from<T>(a).high...)});
  else if constexpr (__is_same(T, bf16x2)) put(d, bf16x2{computed<Op, bf16>(word_from<T>(a).low...), computed<Op, bf16>(word_from<T>(a).high...)});
  else put(d, computed<Op, T>(word_from<T>(a)...));
}
template <class Op, class T, class D, class A, class N> KM_EMU_INLINE void shift(D& d, A a, N by) {
  put(d, Op::of(word_from<T>(a), word_from<u32>(by)));
}
template <class T> struct twice;
template <> struct twice<u16> { typedef u32 type; };
template <> struct twice<s16> { typedef s32 type; };
template <> struct twice<u32> { typedef u64 type; };
template <> struct twice<s32> { typedef s64 type; };
template <class Op, class T, class D, class A, class B> KM_EMU_INLINE void compute_wide(D& d, A a, B b) {
  typedef typename twice<T>::type W;
  put(d, Op::of((W)word_from<T>(a), (W)word_from<T>(b)));
}
template <class T, class D, class A, class B, class C> KM_EMU_INLINE void mad_wide(D& d, A a, B b, C c) {
  typedef typename twice<T>::type W;
  put(d, do_mad_lo::of((W)word_from<T>(a), (W)word_from<T>(b), word_from<W>(c)));
}

// ---- sums of several words: the flag is a carry of additions, a borrow of subtractions ------------------------------

template <class T, int takes, int gives, class D> KM_EMU_INLINE void add_flagged(D& d, unsigned_of<T> a, unsigned_of<T> b) {
  typedef unsigned_of<T> U;
  const U in = takes ? (U)km_emu_carry(-1) : U(0), sum = U(a + b), whole = U(sum + in);
  if (gives) km_emu_carry(sum < a || whole < sum);
  put(d, whole);
}
template <class T, int takes, int gives, class D, class A, class B> KM_EMU_INLINE void add_carry(D& d, A a, B b) {
  add_flagged<T, takes, gives>(d, word_from<unsigned_of<T>>(a), word_from<unsigned_of<T>>(b));
}
template <class T, int takes, int gives, class D, class A, class B> KM_EMU_INLINE void sub_carry(D& d, A a, B b) {
  typedef unsigned_of<T> U;
  const U x = word_from<U>(a), y = word_from<U>(b), in = takes ? (U)km_emu_carry(-1) : U(0);
  if (gives) km_emu_carry(x < y || U(x - y) < in);
  put(d, U(x - y - in));
}
typedef do_mul_lo lo_part;
typedef do_mul_hi hi_part;
template <class T, class Part, int takes, int gives, class D, class A, class B, class C>
KM_EMU_INLINE void mad_carry(D& d, A a, B b, C c) {
  const T product = Part::of(word_from<T>(a), word_from<T>(b));
  add_flagged<T, takes, gives>(d, (unsigned_of<T>)product, word_from<unsigned_of<T>>(c));
}

// ---- bits -----------------------------------------------------------------------------------------------------------

struct do_popc { template <class T> static KM_EMU_INLINE u32 of(T a) { return (u32)__builtin_popcountll((u64)a); } };
struct do_clz { template <class T> static KM_EMU_INLINE u32 of(T a) { return a ? (u32)__builtin_clzll((u64)a) - (64 - bits_of<T>) : bits_of<T>; } };
struct do_bfind {
  template <class T> static KM_EMU_INLINE u32 of(T a) {
    const unsigned_of<T> x = (unsigned_of<T>)(a < T(0) ? T(~a) : a);
    return x ? 63u - (u32)__builtin_clzll((u64)x) : ~0u;
  }
};
struct do_bfind_shift {
  template <class T> static KM_EMU_INLINE u32 of(T a) {
    const u32 found = do_bfind::of(a);
    return found == ~0u ? found : bits_of<T> - 1 - found;
  }
};
template <class Op, class T, class D, class A> KM_EMU_INLINE void counted(D& d, A a) { put(d, Op::of(word_from<T>(a))); }
// Bits from a place on; beyond the word, and where there are none, those of the sign.
template <class T, class D, class A, class P, class N> KM_EMU_INLINE void field(D& d, A a, P place, N length) {
  const T x = word_from<T>(a);
  const int at = (int)(word_from<u32>(place) & 255), n = (int)(word_from<u32>(length) & 255);
  const int last = at + n - 1 < bits_of<T> - 1 ? at + n - 1 : bits_of<T> - 1;
  const bool sign = is_minus<T> && n && ((u64)x >> last & 1);
  u64 made = sign ? ~0ull : 0;
  for (int i = 0; i < n && i < bits_of<T> && at + i < bits_of<T>; i++)
    made = (made & ~(1ull << i)) | (((u64)x >> (at + i) & 1) << i);
  put(d, (T)made);
}
template <class T, class D, class A, class B, class P, class N> KM_EMU_INLINE void insert(D& d, A a, B b, P place, N length) {
  const u64 x = word_from<T>(a);
  u64 made = word_from<T>(b);
  const int at = (int)(word_from<u32>(place) & 255), n = (int)(word_from<u32>(length) & 255);
  for (int i = 0; i < n && at + i < bits_of<T>; i++) made = (made & ~(1ull << (at + i))) | ((x >> i & 1) << (at + i));
  put(d, (T)made);
}
struct wrap { static KM_EMU_INLINE u32 of(u32 by) { return by & 31; } };
struct clamp { static KM_EMU_INLINE u32 of(u32 by) { return by < 32 ? by : 32; } };
template <class How, class D, class A, class B> KM_EMU_INLINE void bit_mask(D& d, A place, B length) {
  const u32 at = How::of(word_from<u32>(place)), n = How::of(word_from<u32>(length));
  put(d, (u32)(((1ull << n) - 1) << at));
}
template <class How, class D, class A, class B, class C> KM_EMU_INLINE void funnel_l(D& d, A low, B high, C by) {
  const u64 whole = (u64)word_from<u32>(high) << 32 | word_from<u32>(low);
  put(d, (u32)(whole << How::of(word_from<u32>(by)) >> 32));
}
template <class How, class D, class A, class B, class C> KM_EMU_INLINE void funnel_r(D& d, A low, B high, C by) {
  const u64 whole = (u64)word_from<u32>(high) << 32 | word_from<u32>(low);
  put(d, (u32)(whole >> How::of(word_from<u32>(by))));
}
template <class D, class A, class B, class C> KM_EMU_INLINE void logic3(D& d, A a, B b, C c, int table) {
  const u32 x = word_from<u32>(a), y = word_from<u32>(b), z = word_from<u32>(c);
  u32 made = 0;
  for (int i = 0; i < 8; i++)
    if (table >> i & 1) made |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
  put(d, made);
}
template <class D, class A, class B, class C> KM_EMU_INLINE void permute_bytes(D& d, A a, B b, C selector) {
  put(d, (u32)__byte_perm(word_from<u32>(a), word_from<u32>(b), word_from<u32>(selector)));
}
template <class T, class O, class D, class A, class B, class C> KM_EMU_INLINE void dot4(D& d, A a, B b, C c) {
  const u32 x = word_from<u32>(a), y = word_from<u32>(b);
  i64 sum = (i64)word_from<T>(c);
  for (int i = 0; i < 32; i += 8)
    sum += (is_minus<T> ? (i64)(s8)(x >> i) : (i64)(u8)(x >> i)) * (is_minus<O> ? (i64)(s8)(y >> i) : (i64)(u8)(y >> i));
  put(d, (u32)sum);
}
// The parts of a word, the lowest first.
template <class D, class A, class... M> KM_EMU_INLINE void join(D& d, A first, M... more) {
  constexpr int part = 8 * (int)(sizeof(D) / (1 + sizeof...(M)));
  typedef typename word_of<part / 8>::type W;
  u64 made = word_from<W>(first);
  int at = 0;
  ((made |= (u64)word_from<W>(more) << (at += part)), ...);
  put(d, word_from<unsigned_of<D>>((unsigned_of<D>)made));
}
template <class S, class... D> KM_EMU_INLINE void cut(S source, D&... d) {
  constexpr int part = 8 * (int)(sizeof(S) / sizeof...(D));
  const u64 whole = word_from<unsigned_of<S>>(source);
  int at = -part;
  (put(d, (typename word_of<part / 8>::type)(whole >> (at += part))), ...);
}
template <class D, class A> KM_EMU_INLINE void move(D& d, A a) { put(d, word_from<unsigned_of<D>>(a)); }
template <class D> KM_EMU_INLINE void move(D& d, const void* a) { put(d, (u64)a); }
template <class A> KM_EMU_INLINE void* beyond(A address, long by) { return (char*)at(address) + by; }
template <class D, class A> KM_EMU_INLINE void to_shared(D& d, A a) { put(d, (u64)km_emu_to_shared(at(a))); }
template <class D, class A> KM_EMU_INLINE void from_shared(D& d, A a) { put(d, (u64)km_emu_from_shared((u32)a)); }

// ---- predicates -----------------------------------------------------------------------------------------------------

#define KM_EMU_TEST(name, test) \
  struct do_##name { template <class T> static KM_EMU_INLINE bool of(T a, T b) { return test; } };
KM_EMU_TEST(eq, a == b) KM_EMU_TEST(ne, a < b || a > b) KM_EMU_TEST(lt, a < b) KM_EMU_TEST(le, a <= b)
KM_EMU_TEST(gt, a > b) KM_EMU_TEST(ge, a >= b) KM_EMU_TEST(equ, !(a < b || a > b)) KM_EMU_TEST(neu, a != b)
KM_EMU_TEST(ltu, !(a >= b)) KM_EMU_TEST(leu, !(a > b)) KM_EMU_TEST(gtu, !(a <= b)) KM_EMU_TEST(geu, !(a < b))
KM_EMU_TEST(num, a == a && b == b) KM_EMU_TEST(nan, a != a || b != b) KM_EMU_TEST(lo, a < b) KM_EMU_TEST(ls, a <= b)
KM_EMU_TEST(hi, a > b) KM_EMU_TEST(hs, a >= b)
#undef KM_EMU_TEST
template <class Op, class T, class D, class A, class B> KM_EMU_INLINE void compare(D& d, A a, B b) {
  d = (D)Op::of(word_from<T>(a), word_from<T>(b));
}
template <class Op, class T, class D, class E, class A, class B> KM_EMU_INLINE void compare_two(D& d, E& other, A a, B b) {
  compare<Op, T>(d, a, b), other = (E)!d;
}
template <class Op, class T, class Both, class D, class A, class B> KM_EMU_INLINE void compare_and(D& d, A a, B b, bool c) {
  d = (D)Both::of((int)Op::of(word_from<T>(a), word_from<T>(b)), (int)c);
}
template <class Op, class T, class To, class D, class A, class B> KM_EMU_INLINE void compare_to(D& d, A a, B b) {
  const bool is = Op::of(word_from<T>(a), word_from<T>(b));
  put(d, is_real<To> ? word_from<u32>(is ? 1.0f : 0.0f) : is ? ~0u : 0u);
}
template <class D, class A, class B> KM_EMU_INLINE void select(D& d, A a, B b, bool first) { first ? move(d, a) : move(d, b); }
template <class By, class D, class A, class B, class C> KM_EMU_INLINE void select_by(D& d, A a, B b, C c) {
  select(d, a, b, word_from<By>(c) >= By(0));
}
KM_EMU_INLINE void predicate_and(bool& d, bool a, bool b) { d = a && b; }
KM_EMU_INLINE void predicate_or(bool& d, bool a, bool b) { d = a || b; }
KM_EMU_INLINE void predicate_xor(bool& d, bool a, bool b) { d = a != b; }
KM_EMU_INLINE void predicate_not(bool& d, bool a) { d = !a; }
KM_EMU_INLINE void predicate_mov(bool& d, bool a) { d = a; }

// ---- conversions ----------------------------------------------------------------------------------------------------

// A register that is wider than the number holds it extended by its sign.
template <class D, class T> KM_EMU_INLINE void put_extended(D& d, T x) {
  if constexpr (sizeof(D) >= sizeof(T) && !is_real<D>) d = (D)x;
  else put(d, x);
}
enum Rounding { by_, by_rn, by_rni, by_rzi, by_rmi, by_rpi };
template <class To, class T, Rounding how, bool held, class D, class A> KM_EMU_INLINE void convert(D& d, A a) {
  auto x = number(word_from<T>(a));
  if constexpr (is_real<decltype(x)>) {
    if (how == by_rni) x = (decltype(x))__builtin_rint((double)x);
    if (how == by_rzi) x = (decltype(x))__builtin_trunc((double)x);
    if (how == by_rmi) x = (decltype(x))__builtin_floor((double)x);
    if (how == by_rpi) x = (decltype(x))__builtin_ceil((double)x);
  }
  constexpr bool whole = kind_of<To>::value == signed_integer || kind_of<To>::value == unsigned_integer;
  if constexpr (whole && (is_real<decltype(x)> || held)) {
    put_extended(d, saturated<To>((double)x));
  } else if constexpr (whole) {
    put_extended(d, (To)x);
  } else {
    if (held) x = x > 0 ? x < 1 ? x : decltype(x)(1) : decltype(x)(0);
    put(d, made_of<To>::from(x));
  }
}
template <class To, class D, class A, class B> KM_EMU_INLINE void convert_two(D& d, A high, B low) {
  const u32 upper = made_of<To>::from(word_from<f32>(high)).bits, lower = made_of<To>::from(word_from<f32>(low)).bits;
  put(d, upper << 16 | lower);
}

// ---- lanes ----------------------------------------------------------------------------------------------------------

KM_EMU_INLINE u32 lane_here() { return (u32)KM_EMU_LANE; }
// Where a lane reads from, and whether that is in range: `limits` holds the last lane, and above it the mask of segments.
struct Source { int lane; bool within; };
enum Shuffle { shuffle_up, shuffle_down, shuffle_bfly, shuffle_idx };
template <Shuffle how> KM_EMU_INLINE Source source_of(u32 by, u32 limits) {
  const int lane = KM_EMU_LANE, segments = (int)(limits >> 8 & 31), n = (int)(by & 31);
  const int most = (lane & segments) | ((int)(limits & 31) & ~segments);
  const int from = how == shuffle_up ? lane - n : how == shuffle_down ? lane + n : how == shuffle_bfly ? lane ^ n : (lane & segments) | (n & ~segments);
  const bool within = how == shuffle_up ? from >= most : from <= most;
  return {within ? from : lane, within};
}
template <Shuffle how, class D, class A, class B, class C, class M>
KM_EMU_INLINE void shuffle(D& d, A a, B by, C limits, M mask) {
  put(d, take(word_from<u32>(mask), word_from<u32>(a), source_of<how>(word_from<u32>(by), word_from<u32>(limits)).lane));
}
template <Shuffle how, class D, class A, class B, class C, class M>
KM_EMU_INLINE void shuffle_two(D& d, bool& within, A a, B by, C limits, M mask) {
  const Source from = source_of<how>(word_from<u32>(by), word_from<u32>(limits));
  put(d, take(word_from<u32>(mask), word_from<u32>(a), from.lane)), within = from.within;
}
template <class D, class M> KM_EMU_INLINE void vote_all(D& d, bool test, M mask) { d = (D)__all_sync(word_from<u32>(mask), test); }
template <class D, class M> KM_EMU_INLINE void vote_any(D& d, bool test, M mask) { d = (D)__any_sync(word_from<u32>(mask), test); }
template <class D, class M> KM_EMU_INLINE void vote_ballot(D& d, bool test, M mask) { put(d, (u32)__ballot_sync(word_from<u32>(mask), test)); }
template <class D, class M> KM_EMU_INLINE void vote_uni(D& d, bool test, M mask) {
  int alike;
  __match_all_sync(word_from<u32>(mask), (int)test, &alike);
  d = (D)(alike != 0);
}
template <class T, class D, class A, class M> KM_EMU_INLINE void match_any(D& d, A a, M mask) { put(d, (u32)__match_any_sync(word_from<u32>(mask), word_from<T>(a))); }
template <class T, class D, class A, class M> KM_EMU_INLINE void match_all_two(D& d, bool& alike, A a, M mask) {
  int all;
  put(d, (u32)__match_all_sync(word_from<u32>(mask), word_from<T>(a), &all)), alike = all != 0;
}
struct lanes_of { template <class Op> struct by { template <class T> static T apply(T a, T b) { return Op::of(a, b); } }; };
template <class Op, class T, class D, class A, class M> KM_EMU_INLINE void reduce_lanes(D& d, A a, M mask) {
  put(d, reduce<lanes_of::by<Op>>(word_from<u32>(mask), word_from<T>(a)));
}
template <class D, class M> KM_EMU_INLINE void elect_two(D& d, bool& is, M mask) {
  const u32 lanes = (u32)__ballot_sync(word_from<u32>(mask), 1);
  const int first = __builtin_ctz(lanes);
  put(d, (u32)first), is = first == KM_EMU_LANE;
}
template <class D> KM_EMU_INLINE void active_lanes(D& d) { put(d, (u32)__activemask()); }

}  // namespace km_emu::ptx
