// The emulator's form of this header: complex numbers as pairs.
#pragma once
#include "emulator/device.hpp"

#define KM_EMU_COMPLEX(C, T, P, make, real, imag, add, sub, mul, div, abs, conj, fma)                     \
  typedef P C;                                                                                            \
  KM_EMU_INLINE C make(T x, T y) { return C{x, y}; }                                                      \
  KM_EMU_INLINE T real(C a) { return a.x; }                                                               \
  KM_EMU_INLINE T imag(C a) { return a.y; }                                                               \
  KM_EMU_INLINE C conj(C a) { return C{a.x, -a.y}; }                                                      \
  KM_EMU_INLINE C add(C a, C b) { return C{a.x + b.x, a.y + b.y}; }                                       \
  KM_EMU_INLINE C sub(C a, C b) { return C{a.x - b.x, a.y - b.y}; }                                       \
  KM_EMU_INLINE C mul(C a, C b) { return C{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }               \
  KM_EMU_INLINE C div(C a, C b) {                                                                         \
    const T by = (b.x < 0 ? -b.x : b.x) + (b.y < 0 ? -b.y : b.y), x = b.x / by, y = b.y / by;             \
    const T whole = (x * x + y * y) * by;                                                                 \
    return C{(a.x * x + a.y * y) / whole, (a.y * x - a.x * y) / whole};                                   \
  }                                                                                                       \
  KM_EMU_INLINE T abs(C a) { return (T)__builtin_hypot((double)a.x, (double)a.y); }                       \
  KM_EMU_INLINE C fma(C a, C b, C c) { return add(mul(a, b), c); }
KM_EMU_COMPLEX(cuFloatComplex, float, float2, make_cuFloatComplex, cuCrealf, cuCimagf, cuCaddf, cuCsubf, cuCmulf, cuCdivf,
               cuCabsf, cuConjf, cuCfmaf)
KM_EMU_COMPLEX(cuDoubleComplex, double, double2, make_cuDoubleComplex, cuCreal, cuCimag, cuCadd, cuCsub, cuCmul, cuCdiv, cuCabs,
               cuConj, cuCfma)
#undef KM_EMU_COMPLEX
typedef cuFloatComplex cuComplex;
KM_EMU_INLINE cuComplex make_cuComplex(float x, float y) { return cuComplex{x, y}; }
KM_EMU_INLINE cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex c) { return cuFloatComplex{(float)c.x, (float)c.y}; }
KM_EMU_INLINE cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex c) { return cuDoubleComplex{c.x, c.y}; }
