// atomics.hpp - atomic operations of every width; memory is sequentially consistent, so scopes do not differ here.
#pragma once
#include "thread.hpp"

namespace km_emu {

template <int Bytes> struct word_of;
template <> struct word_of<1> { typedef u8 type; };
template <> struct word_of<2> { typedef u16 type; };
template <> struct word_of<4> { typedef u32 type; };
template <> struct word_of<8> { typedef u64 type; };
template <class T> using word = typename word_of<(int)sizeof(T)>::type;
template <class T> struct same { typedef T type; };
template <class T> using exactly = typename same<T>::type;  // a parameter that takes no part in deduction
template <class T> constexpr bool is_float = T(0.5f) != T(0);

// *at = f(*at); what changes nothing counts as a poll.
template <class T, class F>
KM_EMU_INLINE T update(T* at, F f) {
  word<T>* whole = (word<T>*)at;
  word<T> seen = __atomic_load_n(whole, __ATOMIC_SEQ_CST), made;
  do {
    T value;
    __builtin_memcpy(&value, &seen, sizeof value);
    value = f(value);
    __builtin_memcpy(&made, &value, sizeof made);
  } while (!__atomic_compare_exchange_n(whole, &seen, made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  if (made == seen) poll(at);
  T old;
  __builtin_memcpy(&old, &seen, sizeof old);
  return old;
}
template <class T>
KM_EMU_INLINE bool exchange_if(T* at, T& expected, T value) {
  word<T> seen, made;
  __builtin_memcpy(&seen, &expected, sizeof seen);
  __builtin_memcpy(&made, &value, sizeof made);
  const bool done = __atomic_compare_exchange_n((word<T>*)at, &seen, made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!done) poll(at);
  __builtin_memcpy(&expected, &seen, sizeof expected);
  return done;
}
template <class T>
KM_EMU_INLINE T load(const T* from) {
  word<T> seen = __atomic_load_n((const word<T>*)from, __ATOMIC_SEQ_CST);
  poll(from);
  T value;
  __builtin_memcpy(&value, &seen, sizeof value);
  return value;
}
template <class T>
KM_EMU_INLINE void store(T* to, T value) {
  word<T> made;
  __builtin_memcpy(&made, &value, sizeof made);
  __atomic_store_n((word<T>*)to, made, __ATOMIC_SEQ_CST);
  km_emu_progress();
}

}  // namespace km_emu

#define KM_EMU_SCOPES(name)                                                                        \
  template <class T> KM_EMU_INLINE T name##_block(T* at, km_emu::exactly<T> v) { return name(at, v); } \
  template <class T> KM_EMU_INLINE T name##_system(T* at, km_emu::exactly<T> v) { return name(at, v); }
#define KM_EMU_ATOMIC(name, expression)                                                            \
  template <class T> KM_EMU_INLINE T name(T* at, km_emu::exactly<T> v) {                           \
    return km_emu::update(at, [&](T old) { return T(expression); });                               \
  }                                                                                                \
  KM_EMU_SCOPES(name)
KM_EMU_ATOMIC(atomicSub, old - v)
KM_EMU_ATOMIC(atomicExch, v)
KM_EMU_ATOMIC(atomicMin, v < old ? v : old)
KM_EMU_ATOMIC(atomicMax, old < v ? v : old)
KM_EMU_ATOMIC(atomicAnd, old & v)
KM_EMU_ATOMIC(atomicOr, old | v)
KM_EMU_ATOMIC(atomicXor, old ^ v)
KM_EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
KM_EMU_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
template <class T>
KM_EMU_INLINE T atomicAdd(T* at, km_emu::exactly<T> v) {
  if constexpr (!km_emu::is_float<T>) {
    if (v == T(0)) km_emu::poll(at);
    return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST);
  } else {
    return km_emu::update(at, [&](T old) { return T(old + v); });
  }
}
KM_EMU_SCOPES(atomicAdd)
#undef KM_EMU_ATOMIC
#undef KM_EMU_SCOPES
template <class T>
KM_EMU_INLINE T atomicCAS(T* at, km_emu::exactly<T> expected, km_emu::exactly<T> value) {
  km_emu::exchange_if(at, expected, value);
  return expected;
}
template <class T>
KM_EMU_INLINE T atomicCAS_block(T* at, km_emu::exactly<T> expected, km_emu::exactly<T> value) {
  return atomicCAS(at, expected, value);
}
template <class T>
KM_EMU_INLINE T atomicCAS_system(T* at, km_emu::exactly<T> expected, km_emu::exactly<T> value) {
  return atomicCAS(at, expected, value);
}

KM_EMU_INLINE void __threadfence_block() { km_emu_fence(0); }
KM_EMU_INLINE void __threadfence() { km_emu_fence(1); }
KM_EMU_INLINE void __threadfence_system() { km_emu_fence(2); }
KM_EMU_INLINE void __nanosleep(unsigned) { km_emu_yield(); }

// ---- the built-ins of NVRTC: order and scope are checked by no one here ------------------------------------------------------

enum { __NV_ATOMIC_RELAXED, __NV_ATOMIC_CONSUME, __NV_ATOMIC_ACQUIRE, __NV_ATOMIC_RELEASE, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_SEQ_CST };
enum {
  __NV_THREAD_SCOPE_THREAD,
  __NV_THREAD_SCOPE_BLOCK,
  __NV_THREAD_SCOPE_CLUSTER,
  __NV_THREAD_SCOPE_DEVICE,
  __NV_THREAD_SCOPE_SYSTEM
};
template <class T> KM_EMU_INLINE T __nv_atomic_load_n(const T* from, int, int = 0) { return km_emu::load(from); }
template <class T> KM_EMU_INLINE void __nv_atomic_store_n(T* to, km_emu::exactly<T> value, int, int = 0) {
  km_emu::store(to, value);
}
template <class T> KM_EMU_INLINE T __nv_atomic_exchange_n(T* at, km_emu::exactly<T> value, int, int = 0) {
  return atomicExch(at, value);
}
template <class T>
KM_EMU_INLINE bool __nv_atomic_compare_exchange_n(T* at, T* expected, km_emu::exactly<T> value, bool, int, int, int = 0) {
  return km_emu::exchange_if(at, *expected, value);
}
#define KM_EMU_FETCH(name, function) \
  template <class T> KM_EMU_INLINE T name(T* at, km_emu::exactly<T> value, int, int = 0) { return function(at, value); }
KM_EMU_FETCH(__nv_atomic_fetch_add, atomicAdd)
KM_EMU_FETCH(__nv_atomic_fetch_sub, atomicSub)
KM_EMU_FETCH(__nv_atomic_fetch_min, atomicMin)
KM_EMU_FETCH(__nv_atomic_fetch_max, atomicMax)
KM_EMU_FETCH(__nv_atomic_fetch_and, atomicAnd)
KM_EMU_FETCH(__nv_atomic_fetch_or, atomicOr)
KM_EMU_FETCH(__nv_atomic_fetch_xor, atomicXor)
#undef KM_EMU_FETCH
KM_EMU_INLINE void __nv_atomic_thread_fence(int, int) { km_emu_fence(1); }
