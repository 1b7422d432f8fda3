// half_bits.hpp - float16 and bfloat16 as bits, converted as the chip does it: rounded once to nearest even, every NaN the
// same one. The types are in half.hpp, and in the device templates.
#pragma once
#include "thread.hpp"

namespace km_emu {

KM_EMU_INLINE u16 half_bits(float value) {
  const u32 x = __builtin_bit_cast(u32, value), sign = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
  const u32 normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;  // exponent rebased, ties to even
  const u32 tiny = __builtin_bit_cast(u32, __builtin_bit_cast(float, a) + 0.5f) - 0x3f000000u;  // the adder rounds
  const u32 finite = a < 0x38800000u ? tiny : normal;
  if (a > 0x7f800000u) return 0x7fff;
  return (u16)(sign | (a >= 0x47800000u ? 0x7c00u : finite));
}
// By way of float32 rounded to odd, after which a second rounding gives the nearest.
KM_EMU_INLINE u16 half_bits(double value) {
  if (value != value) return 0x7fff;
  const float near = (float)value;
  const double got = near < 0 ? -(double)near : (double)near, size = value < 0 ? -value : value;
  const u32 cut = __builtin_bit_cast(u32, near) - (got > size ? 1u : 0u);
  return half_bits(__builtin_bit_cast(float, cut | (got != size ? 1u : 0u)));
}
KM_EMU_INLINE float float_of_half_bits(u16 half) {
  const u32 a = (half & 0x7fffu) << 13;
  const u32 finite = __builtin_bit_cast(u32, __builtin_bit_cast(float, a) * __builtin_bit_cast(float, 0x77800000u));
  const u32 magnitude = a >= 0x0f800000u ? (a > 0x0f800000u ? 0x7fffffffu : 0x7f800000u) : finite;
  return __builtin_bit_cast(float, (u32)(half & 0x8000u) << 16 | magnitude);
}
KM_EMU_INLINE u16 brain_bits(float value) {
  const u32 x = __builtin_bit_cast(u32, value), nearest = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
  return (u16)((x & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : nearest);
}
KM_EMU_INLINE float float_of_brain_bits(u16 brain) { return __builtin_bit_cast(float, (u32)brain << 16); }

}  // namespace km_emu
