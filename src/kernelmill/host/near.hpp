// near.hpp - the trigonometric functions without their reduction of huge arguments, and exp beside them without what
// its largest results need, for operators that are run twice where one was met.  The bits are those of vmath_trig.hpp
// and vmath_exp.hpp; who runs the operator again is in transform.hpp.
#pragma once
#include "vmath_exp.hpp"
#include "vmath_trig.hpp"

namespace km {

// Base of the quick form of an operator: `far()` tells afterwards whether an argument was too large for it.
// The greatest one is kept by its bits, which costs a vector one instruction.
struct near_functions {
  mutable u32 most_f32 = 0, most_exp_f32 = 0;
  mutable u64 most_f64 = 0, most_exp_f64 = 0;
  KM_INL bool far() const {
    return vm::trig_far(vm::as_f32(most_f32)) | vm::trig_far(vm::as_f64(most_f64)) |
           vm::exp_far(most_exp_f32) | vm::exp_far(most_exp_f64);
  }
  template <class U> static KM_INL void keep(U& most, U found) { most = found > most ? found : most; }
  KM_INL f32 seen(f32 x) const {
    keep(most_f32, vm::bits(fabs(x)));
    return x;
  }
  KM_INL f64 seen(f64 x) const {
    keep(most_f64, vm::bits(fabs(x)));
    return x;
  }
  KM_INL f32 sin_near(f32 x) const { return vm::sin_near(seen(x)); }
  KM_INL f64 sin_near(f64 x) const { return vm::sin_near(seen(x)); }
  KM_INL f32 cos_near(f32 x) const { return vm::cos_near(seen(x)); }
  KM_INL f64 cos_near(f64 x) const { return vm::cos_near(seen(x)); }
  KM_INL f32 tan_near(f32 x) const { return vm::tan_near(seen(x)); }
  KM_INL f64 tan_near(f64 x) const { return vm::tan_near(seen(x)); }
  KM_INL f32 exp_near(f32 x) const {
    keep(most_exp_f32, vm::bits(vm::near_shifted(x)));
    return vm::exp_near(x);
  }
  KM_INL f64 exp_near(f64 x) const {
    keep(most_exp_f64, vm::bits(vm::near_shifted(x)));
    return vm::exp_near(x);
  }
};

}  // namespace km
