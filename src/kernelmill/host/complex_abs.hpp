// complex_abs.hpp - the modulus of a complex number; everything else about complex numbers is in complex.hpp.
#pragma once
#include "complex.hpp"
#include "vmath_power.hpp"

namespace km {

template <class T> KM_INL T abs(complex<T> a) { return hypot(a.re, a.im); }

}  // namespace km
