// cuda_atomics.hpp - the atomic functions of CUDA, for texts of users that run on the processor.  All threads are one scope
// here, and orders are relaxed, as CUDA has them.
#pragma once
#include "atomics.hpp"

namespace km {
namespace cuda_atomics {

template <class T> struct same { typedef T type; };
template <class T> using exactly = typename same<T>::type;  // a value that is converted to what the address says

#define KM_ATOMIC(name, made)                                                                 \
  template <class T> KM_INL T name(T* at, exactly<T> v) { return made; }                      \
  template <class T> KM_INL T name##_block(T* at, exactly<T> v) { return name(at, v); }       \
  template <class T> KM_INL T name##_system(T* at, exactly<T> v) { return name(at, v); }
KM_ATOMIC(atomicAdd, (fetch_add<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicSub, (fetch_add<relaxed, device_scope>(at, T(T(0) - v))))
KM_ATOMIC(atomicMin, (fetch_min<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicMax, (fetch_max<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicAnd, (fetch_and<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicOr, (fetch_or<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicXor, (fetch_xor<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicExch, (exchange_value<relaxed, device_scope>(at, v)))
KM_ATOMIC(atomicInc, (km::changed<relaxed>(at, [v](T old) { return old >= v ? T(0) : T(old + 1); })))
KM_ATOMIC(atomicDec, (km::changed<relaxed>(at, [v](T old) { return old == 0 || old > v ? v : T(old - 1); })))
#undef KM_ATOMIC

template <class T> KM_INL T atomicCAS(T* at, exactly<T> expected, exactly<T> value) {
  return compare_exchange<relaxed, device_scope>(at, expected, value);
}
template <class T> KM_INL T atomicCAS_block(T* at, exactly<T> expected, exactly<T> value) { return atomicCAS(at, expected, value); }
template <class T> KM_INL T atomicCAS_system(T* at, exactly<T> expected, exactly<T> value) { return atomicCAS(at, expected, value); }

}  // namespace cuda_atomics
}  // namespace km
