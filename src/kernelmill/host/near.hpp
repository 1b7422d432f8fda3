// near.hpp - the trigonometric functions without their reduction of huge arguments, for operators that are run twice where
// one was met.  The bits are those of sin, cos and tan in vmath_trig.hpp; who runs the operator again is in transform.hpp.
#pragma once
#include "vmath_trig.hpp"

namespace km {

// Base of the quick form of an operator: `far()` tells afterwards whether an argument was too large for it.
// The greatest one is kept by its bits, which costs a vector one instruction.
struct near_trigonometry {
  mutable u32 most_f32 = 0;
  mutable u64 most_f64 = 0;
  KM_INL bool far() const {
    return vm::trig_far(vm::as_f32(most_f32)) | vm::trig_far(vm::as_f64(most_f64));
  }
  KM_INL f32 seen(f32 x) const {
    const u32 size = vm::bits(fabs(x));
    most_f32 = size > most_f32 ? size : most_f32;
    return x;
  }
  KM_INL f64 seen(f64 x) const {
    const u64 size = vm::bits(fabs(x));
    most_f64 = size > most_f64 ? size : most_f64;
    return x;
  }
  KM_INL f32 sin_near(f32 x) const { return vm::sin_near(seen(x)); }
  KM_INL f64 sin_near(f64 x) const { return vm::sin_near(seen(x)); }
  KM_INL f32 cos_near(f32 x) const { return vm::cos_near(seen(x)); }
  KM_INL f64 cos_near(f64 x) const { return vm::cos_near(seen(x)); }
  KM_INL f32 tan_near(f32 x) const { return vm::tan_near(seen(x)); }
  KM_INL f64 tan_near(f64 x) const { return vm::tan_near(seen(x)); }
};

}  // namespace km
