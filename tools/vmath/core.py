"""Writes vmath_core.hpp: bits, exact sums, rounding, signs, classes, minima, bit counts."""

from __future__ import annotations

import mpmath as mp

from vmath.kinds import KINDS, Kind, fill

PRIMITIVES = """\
// The only lines that name compiler built-ins; everything else is arithmetic on these.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#ifndef KM_TABLE
#define KM_TABLE static __device__ constexpr
#endif
namespace vm {
KM_INL u32 bits(f32 x) { return __float_as_uint(x); }
KM_INL u64 bits(f64 x) { return (u64)__double_as_longlong(x); }
KM_INL f32 as_f32(u32 u) { return __uint_as_float(u); }
KM_INL f64 as_f64(u64 u) { return __longlong_as_double((long long)u); }
KM_INL f32 product(f32 a, f32 b) { return __fmul_rn(a, b); }  // never contracted into an fma
KM_INL f64 product(f64 a, f64 b) { return __dmul_rn(a, b); }
}  // namespace vm
KM_INL f32 fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
KM_INL f64 fma(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }
KM_INL f32 sqrt(f32 x) { return __fsqrt_rn(x); }
KM_INL f64 sqrt(f64 x) { return __dsqrt_rn(x); }
KM_INL f32 floor(f32 x) { return ::floorf(x); }
KM_INL f64 floor(f64 x) { return ::floor(x); }
KM_INL f32 ceil(f32 x) { return ::ceilf(x); }
KM_INL f64 ceil(f64 x) { return ::ceil(x); }
KM_INL f32 trunc(f32 x) { return ::truncf(x); }
KM_INL f64 trunc(f64 x) { return ::trunc(x); }
KM_INL f32 rint(f32 x) { return ::rintf(x); }
KM_INL f64 rint(f64 x) { return ::rint(x); }
namespace vm {
KM_INL i32 ones32(u32 x) { return __popc(x); }
KM_INL i32 ones64(u64 x) { return __popcll(x); }
KM_INL i32 leading32(u32 x) { return __clz((int)x); }
KM_INL i32 leading64(u64 x) { return __clzll((long long)x); }
}  // namespace vm
#else
#ifndef KM_TABLE
#define KM_TABLE static constexpr
#endif
namespace vm {
KM_INL u32 bits(f32 x) { return __builtin_bit_cast(u32, x); }
KM_INL u64 bits(f64 x) { return __builtin_bit_cast(u64, x); }
KM_INL f32 as_f32(u32 u) { return __builtin_bit_cast(f32, u); }
KM_INL f64 as_f64(u64 u) { return __builtin_bit_cast(f64, u); }
KM_INL f32 product(f32 a, f32 b) { return a * b; }
KM_INL f64 product(f64 a, f64 b) { return a * b; }
}  // namespace vm
KM_INL f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
KM_INL f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
KM_INL f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
KM_INL f64 sqrt(f64 x) { return __builtin_sqrt(x); }
KM_INL f32 floor(f32 x) { return __builtin_floorf(x); }
KM_INL f64 floor(f64 x) { return __builtin_floor(x); }
KM_INL f32 ceil(f32 x) { return __builtin_ceilf(x); }
KM_INL f64 ceil(f64 x) { return __builtin_ceil(x); }
KM_INL f32 trunc(f32 x) { return __builtin_truncf(x); }
KM_INL f64 trunc(f64 x) { return __builtin_trunc(x); }
KM_INL f32 rint(f32 x) { return __builtin_rintf(x); }
KM_INL f64 rint(f64 x) { return __builtin_rint(x); }
namespace vm {
KM_INL i32 ones32(u32 x) { return __builtin_popcount(x); }
KM_INL i32 ones64(u64 x) { return __builtin_popcountll(x); }
KM_INL i32 leading32(u32 x) { return x == 0 ? 32 : __builtin_clz(x); }
KM_INL i32 leading64(u64 x) { return x == 0 ? 64 : __builtin_clzll(x); }
}  // namespace vm
#endif

namespace vm {
// hi + lo: a value in twice the precision
template <class F>
struct Pair {
  F hi, lo;
};
// a + b exactly, for any a and b
template <class F>
KM_INL Pair<F> two_sum(F a, F b) {
  const F s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
// a + b exactly, for |a| >= |b| or a == 0
template <class F>
KM_INL Pair<F> fast_sum(F a, F b) {
  const F s = a + b;
  return {s, (a - s) + b};
}
// a * b exactly
template <class F>
KM_INL Pair<F> two_product(F a, F b) {
  const F p = product(a, b);
  return {p, fma(a, b, -p)};
}
// (a + al) / (b + bl), about 2^-(2 digits - 4)
template <class F>
KM_INL Pair<F> quotient(F a, F al, F b, F bl) {
  const F inverse = F(1) / b, q = product(a, inverse);
  const F rest = fma(-q, b, a) + (al - product(q, bl));
  return fast_sum(q, product(rest, inverse));
}
}  // namespace vm
"""

SCALAR = """\

// ---------------------------------------------------------------- $F: signs, classes, minima
namespace vm {
KM_INL $F infinity($F) { return as_$F(@inf); }
KM_INL $F not_a_number($F) { return as_$F(@nan); }
// the integer that `shift` (1.5 * 2^@mantissa) moved into the low bits of t
KM_INL $I low_integer($F t) { return ($I)(bits(t) - @shift_bits); }
// c ? a : b without control flow, where g++ would turn a chain of ?: back into jumps
KM_INL $F choose(bool c, $F a, $F b) {
  const $U mask = ($U)0 - ($U)c;
  return as_$F((bits(a) & mask) | (bits(b) & ~mask));
}
// 2^n for a normal result
KM_INL $F power_of_two($I n) { return as_$F(($U)(n + @bias) << @mantissa); }
// p * 2^n, rounded once while p * 2^(n/2) is normal; overflow and subnormals come out right
KM_INL $F scale($F p, $I n) {
  const $U a = (($U)n + 4096u) >> 1, b = ($U)n + 2048u - a;  // a = n/2 + 2048: no signed shift
  return p * as_$F((a - @unscale) << @mantissa) * as_$F((b + @bias) << @mantissa);
}
@from_small}  // namespace vm
KM_INL $F fabs($F x) { return vm::as_$F(vm::bits(x) & @magnitude); }
KM_INL $F copysign($F x, $F s) {
  return vm::as_$F((vm::bits(x) & @magnitude) | (vm::bits(s) & ~@magnitude));
}
KM_INL bool isnan($F x) { return x != x; }
KM_INL bool isinf($F x) { return fabs(x) == vm::infinity(x); }
KM_INL bool isfinite($F x) { return fabs(x) < vm::infinity(x); }
KM_INL bool signbit($F x) { return (vm::bits(x) >> @top) != 0; }
// NaN wins
KM_INL $F minimum($F a, $F b) { return ((a < b) | (a != a)) ? a : b; }
KM_INL $F maximum($F a, $F b) { return ((a > b) | (a != a)) ? a : b; }
// NaN loses
KM_INL $F fmin($F a, $F b) { return ((a <= b) | (b != b)) ? a : b; }
KM_INL $F fmax($F a, $F b) { return ((a >= b) | (b != b)) ? a : b; }
KM_INL $F degrees($F x) { return x * $degrees; }
KM_INL $F radians($F x) { return x * $radians; }
// x * 2^n, rounded once
KM_INL $F ldexp($F x, i32 n) {
  const $I first = n < @emin ? @step : n > @bias ? @bias : n, rest = n - first;
  const $I second = rest < @emin ? @step : rest > @bias ? @bias : rest, last = rest - second;
  const $I third = last < @emin ? @emin : last > @bias ? @bias : last;
  return x * vm::power_of_two(first) * vm::power_of_two(second) * vm::power_of_two(third);
}
// x = frexp_mantissa(x) * 2^frexp_exponent(x), 0.5 <= |mantissa| < 1; zeros, inf, NaN: x and 0
KM_INL $F frexp_mantissa($F x) {
  const $F scaled = fabs(x) < $tiny ? x * $lift : x;
  const $F m = vm::as_$F((vm::bits(scaled) & @significand) | @half);
  return ((x == $zero) | !(fabs(x) < vm::infinity(x))) ? x : m;
}
KM_INL i32 frexp_exponent($F x) {
  const bool small = fabs(x) < $tiny;
  const $U u = vm::bits(small ? x * $lift : x) & @magnitude;
  const i32 e = (i32)(u >> @mantissa) - (small ? @bias - 1 + @lift_by : @bias - 1);
  return ((x == $zero) | !(fabs(x) < vm::infinity(x))) ? 0 : e;
}
// the next number after x towards y
KM_INL $F nextafter($F x, $F y) {
  const $U u = vm::bits(x), moved = (x < y) == (x > $zero) ? u + 1 : u - 1;
  const $U least = (vm::bits(y) & ~@magnitude) | 1u;
  const $F step = vm::as_$F(x == $zero ? least : moved);
  return ((x != x) | (y != y)) ? x + y : x == y ? y : step;
}
"""

FROM_SMALL_SINGLE = """\
KM_INL f32 from_small(u32 x) { return (f32)(i32)x; }  // x < 2^24
"""

FROM_SMALL_DOUBLE = """\
// x < 2^32; AVX2 converts no 64-bit integers
KM_INL f64 from_small(u64 x) { return as_f64(0x4330000000000000ull | x) - 0x1p52; }
"""

INTEGERS = """\

// ---------------------------------------------------------------- integers: counting bits
namespace vm {
KM_INL i32 trailing32(u32 x) { return ones32(~x & (x - 1u)); }  // all ones below the lowest one
KM_INL i32 trailing64(u64 x) { return ones64(~x & (x - 1u)); }
}  // namespace vm
"""


def scalar(kind: Kind) -> str:
    """Return the section of one floating-point kind."""
    sign = 1 << (kind.width - 1)
    exponent = (2 * kind.bias + 1) << kind.mantissa
    lift = 25 if kind.single else 54
    return fill(
        SCALAR,
        kind,
        {
            "inf": kind.word(exponent),
            "nan": kind.word(exponent | 1 << (kind.mantissa - 1)),
            "shift_bits": kind.pattern(3 << (kind.mantissa - 1)),
            "magnitude": kind.word(sign - 1),
            "significand": kind.word(sign | ((1 << kind.mantissa) - 1)),
            "half": kind.pattern(0.5),
            "bias": kind.bias,
            "mantissa": kind.mantissa,
            "top": kind.width - 1,
            "unscale": f"{2048 - kind.bias}u",
            "from_small": FROM_SMALL_SINGLE if kind.single else FROM_SMALL_DOUBLE,
            "emin": 1 - kind.bias,
            "step": 1 - kind.bias + kind.digits,
            "tiny": 2.0 ** (1 - kind.bias),
            "lift": 2.0**lift,
            "lift_by": lift,
            "zero": 0,
            "degrees": degrees(kind),
            "radians": radians(kind),
        },
    )


def degrees(kind: Kind) -> float:
    """180 / pi, divided in the kind's own precision (as NumPy does)."""
    return kind.round(180 / mp.mpf(kind.round(mp.pi)))


def radians(kind: Kind) -> float:
    """Pi / 180, divided in the kind's own precision (as NumPy does)."""
    return kind.round(mp.mpf(kind.round(mp.pi)) / 180)


def integers() -> str:
    """Return popcount, clz and ctz of the eight integer types; an i32 each."""
    text = INTEGERS
    for bits in (8, 16, 32, 64):
        wide = 64 if bits == 64 else 32
        for name, unsigned in ((f"u{bits}", True), (f"i{bits}", False)):
            value = "x" if unsigned else f"(u{bits})x"
            text += f"KM_INL i32 popcount({name} x) {{ return vm::ones{wide}({value}); }}\n"
            less = f" - {wide - bits}" if wide != bits else ""
            text += f"KM_INL i32 clz({name} x) {{ return vm::leading{wide}({value}){less}; }}\n"
            guard = f"(u32){value} | {1 << bits:#x}u" if wide != bits else value
            text += f"KM_INL i32 ctz({name} x) {{ return vm::trailing{wide}({guard}); }}\n"
    return text


def emit() -> str:
    """Return the body of the file."""
    return PRIMITIVES + "".join(scalar(kind) for kind in KINDS) + integers()
