// complex.hpp - arithmetic and order of complex numbers, as docs/reference/operator-language.md defines them; one value
// each.  The modulus is in complex_abs.hpp, because it needs hypot.
#pragma once
#include "scalar.hpp"

namespace km {

template <class To, class From> KM_INL complex<To> convert(complex<From> a) { return {To(a.re), To(a.im)}; }
template <class T> KM_INL T real(complex<T> a) { return a.re; }
template <class T> KM_INL T imag(complex<T> a) { return a.im; }
template <class T> KM_INL complex<T> conj(complex<T> a) { return {a.re, -a.im}; }
template <class T> KM_INL complex<T> neg(complex<T> a) { return {-a.re, -a.im}; }
template <class T> KM_INL complex<T> add(complex<T> a, complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> KM_INL complex<T> sub(complex<T> a, complex<T> b) { return {sub(a.re, b.re), sub(a.im, b.im)}; }
template <class T> KM_INL complex<T> mul(complex<T> a, complex<T> b) {
  return {sub(a.re * b.re, a.im * b.im), a.re * b.im + a.im * b.re};
}
template <class T> KM_INL complex<T> square(complex<T> a) { return mul(a, a); }

KM_INL f32 magnitude(f32 x) { return __builtin_fabsf(x); }
KM_INL f64 magnitude(f64 x) { return __builtin_fabs(x); }
template <class T> KM_INL complex<T> choose(bool c, complex<T> a, complex<T> b) {
  return {c ? a.re : b.re, c ? a.im : b.im};
}

// Smith's method, the larger part of the divisor first; both ways are one computation on exchanged parts.
template <class T> KM_INL complex<T> div(complex<T> a, complex<T> b) {
  const T size_re = magnitude(b.re), size_im = magnitude(b.im);
  const bool real_first = size_re >= size_im;
  const T large = real_first ? b.re : b.im, small = real_first ? b.im : b.re;
  const T r = small / large, s = T(1) / (large + small * r);
  const T near = real_first ? a.re : a.im, far = real_first ? a.im : a.re;
  const T re = (near + far * r) * s;
  const T im = (real_first ? sub(far, near * r) : sub(near * r, far)) * s;
  const bool zero = (size_re == T(0)) & (size_im == T(0));
  return {zero ? a.re / size_re : re, zero ? a.im / size_re : im};
}

template <class T> KM_INL bool has_nan(complex<T> a) { return (a.re != a.re) | (a.im != a.im); }
template <class T> KM_INL bool truth(complex<T> a) { return (a.re != T(0)) | (a.im != T(0)); }
template <class T> KM_INL bool equal(complex<T> a, complex<T> b) { return (a.re == b.re) & (a.im == b.im); }
// Lexicographic; a NaN in a second part makes the first part count for nothing.
template <class T> KM_INL bool less(complex<T> a, complex<T> b) {
  return ((a.re < b.re) & (a.im == a.im) & (b.im == b.im)) | ((a.re == b.re) & (a.im < b.im));
}
template <class T> KM_INL bool less_equal(complex<T> a, complex<T> b) {
  return ((a.re < b.re) & (a.im == a.im) & (b.im == b.im)) | ((a.re == b.re) & (a.im <= b.im));
}

template <class T> KM_INL complex<T> py_min(complex<T> a, complex<T> b) { return choose(less(b, a), b, a); }
template <class T> KM_INL complex<T> py_max(complex<T> a, complex<T> b) { return choose(less(a, b), b, a); }
template <class T> KM_INL complex<T> np_minimum(complex<T> a, complex<T> b) {
  return choose(less(a, b) | has_nan(a), a, b);
}
template <class T> KM_INL complex<T> np_maximum(complex<T> a, complex<T> b) {
  return choose(less(b, a) | has_nan(a), a, b);
}

}  // namespace km
