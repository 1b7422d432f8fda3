// native.cuh - CUDA's own functions under the names that kernels are printed with; their bounds are those of CUDA's guide,
// not the bits of the CPU.  Functions that are equal to the bit on all devices are in vmath*.hpp.
#pragma once
#include "base.hpp"

namespace km {

KM_INL f32 native_exp(f32 x) { return ::expf(x); }
KM_INL f64 native_exp(f64 x) { return ::exp(x); }
KM_INL f32 native_exp2(f32 x) { return ::exp2f(x); }
KM_INL f64 native_exp2(f64 x) { return ::exp2(x); }
KM_INL f32 native_expm1(f32 x) { return ::expm1f(x); }
KM_INL f64 native_expm1(f64 x) { return ::expm1(x); }
KM_INL f32 native_log(f32 x) { return ::logf(x); }
KM_INL f64 native_log(f64 x) { return ::log(x); }
KM_INL f32 native_log2(f32 x) { return ::log2f(x); }
KM_INL f64 native_log2(f64 x) { return ::log2(x); }
KM_INL f32 native_log10(f32 x) { return ::log10f(x); }
KM_INL f64 native_log10(f64 x) { return ::log10(x); }
KM_INL f32 native_log1p(f32 x) { return ::log1pf(x); }
KM_INL f64 native_log1p(f64 x) { return ::log1p(x); }
KM_INL f32 native_sin(f32 x) { return ::sinf(x); }
KM_INL f64 native_sin(f64 x) { return ::sin(x); }
KM_INL f32 native_cos(f32 x) { return ::cosf(x); }
KM_INL f64 native_cos(f64 x) { return ::cos(x); }
KM_INL f32 native_tan(f32 x) { return ::tanf(x); }
KM_INL f64 native_tan(f64 x) { return ::tan(x); }
KM_INL f32 native_asin(f32 x) { return ::asinf(x); }
KM_INL f64 native_asin(f64 x) { return ::asin(x); }
KM_INL f32 native_acos(f32 x) { return ::acosf(x); }
KM_INL f64 native_acos(f64 x) { return ::acos(x); }
KM_INL f32 native_atan(f32 x) { return ::atanf(x); }
KM_INL f64 native_atan(f64 x) { return ::atan(x); }
KM_INL f32 native_sinh(f32 x) { return ::sinhf(x); }
KM_INL f64 native_sinh(f64 x) { return ::sinh(x); }
KM_INL f32 native_cosh(f32 x) { return ::coshf(x); }
KM_INL f64 native_cosh(f64 x) { return ::cosh(x); }
KM_INL f32 native_tanh(f32 x) { return ::tanhf(x); }
KM_INL f64 native_tanh(f64 x) { return ::tanh(x); }
KM_INL f32 native_asinh(f32 x) { return ::asinhf(x); }
KM_INL f64 native_asinh(f64 x) { return ::asinh(x); }
KM_INL f32 native_acosh(f32 x) { return ::acoshf(x); }
KM_INL f64 native_acosh(f64 x) { return ::acosh(x); }
KM_INL f32 native_atanh(f32 x) { return ::atanhf(x); }
KM_INL f64 native_atanh(f64 x) { return ::atanh(x); }
KM_INL f32 native_rsqrt(f32 x) { return ::rsqrtf(x); }
KM_INL f64 native_rsqrt(f64 x) { return ::rsqrt(x); }
KM_INL f32 native_cbrt(f32 x) { return ::cbrtf(x); }
KM_INL f64 native_cbrt(f64 x) { return ::cbrt(x); }
KM_INL f32 native_erf(f32 x) { return ::erff(x); }
KM_INL f64 native_erf(f64 x) { return ::erf(x); }
KM_INL f32 native_erfc(f32 x) { return ::erfcf(x); }
KM_INL f64 native_erfc(f64 x) { return ::erfc(x); }
KM_INL f32 native_tgamma(f32 x) { return ::tgammaf(x); }
KM_INL f64 native_tgamma(f64 x) { return ::tgamma(x); }
KM_INL f32 native_lgamma(f32 x) { return ::lgammaf(x); }
KM_INL f64 native_lgamma(f64 x) { return ::lgamma(x); }
KM_INL f32 native_atan2(f32 x, f32 y) { return ::atan2f(x, y); }
KM_INL f64 native_atan2(f64 x, f64 y) { return ::atan2(x, y); }
KM_INL f32 native_hypot(f32 x, f32 y) { return ::hypotf(x, y); }
KM_INL f64 native_hypot(f64 x, f64 y) { return ::hypot(x, y); }
KM_INL f32 native_pow(f32 x, f32 y) { return ::powf(x, y); }
KM_INL f64 native_pow(f64 x, f64 y) { return ::pow(x, y); }

}  // namespace km
