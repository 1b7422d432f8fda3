// near.hpp - the trigonometric functions without their reduction of huge arguments, for operators that are run twice where
// one was met.  The bits are those of sin, cos and tan in vmath_trig.hpp; who runs the operator again is in transform.hpp.
#pragma once
#include "vmath_trig.hpp"

namespace km {

// Base of the quick form of an operator: `far` tells afterwards that an argument was too large for it.
struct near_trigonometry {
  mutable u32 far = 0;
  KM_INL f32 sin_near(f32 x) const { return far |= vm::trig_far(x), vm::sin_near(x); }
  KM_INL f64 sin_near(f64 x) const { return far |= vm::trig_far(x), vm::sin_near(x); }
  KM_INL f32 cos_near(f32 x) const { return far |= vm::trig_far(x), vm::cos_near(x); }
  KM_INL f64 cos_near(f64 x) const { return far |= vm::trig_far(x), vm::cos_near(x); }
  KM_INL f32 tan_near(f32 x) const { return far |= vm::trig_far(x), vm::tan_near(x); }
  KM_INL f64 tan_near(f64 x) const { return far |= vm::trig_far(x), vm::tan_near(x); }
};

}  // namespace km
