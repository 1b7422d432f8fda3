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
// The order of an exchange that fails.
template <int Order>
constexpr int reading = Order == __ATOMIC_RELEASE ? __ATOMIC_RELAXED
                                                  : (Order == __ATOMIC_ACQ_REL ? __ATOMIC_ACQUIRE : Order);

// The orders are for the sanitizer; without it all are the strongest.
#ifdef KM_EMU_SANITIZER
#define KM_EMU_ORDER(order) (order)
#else
#define KM_EMU_ORDER(order) __ATOMIC_SEQ_CST
#endif

// *at = f(*at); what changes nothing counts as a poll.
template <int Order = __ATOMIC_RELAXED, class T, class F>
KM_EMU_INLINE T update(T* at, F f) {
  word<T>* whole = (word<T>*)at;
  word<T> seen = __atomic_load_n(whole, KM_EMU_ORDER(__ATOMIC_RELAXED)), made;
  do {
    T value;
    __builtin_memcpy(&value, &seen, sizeof value);
    value = f(value);
    __builtin_memcpy(&made, &value, sizeof made);
  } while (!__atomic_compare_exchange_n(whole, &seen, made, false, KM_EMU_ORDER(Order), KM_EMU_ORDER(__ATOMIC_RELAXED)));
  if (made == seen) poll(at);
  T old;
  __builtin_memcpy(&old, &seen, sizeof old);
  return old;
}
template <int Order = __ATOMIC_RELAXED, class T>
KM_EMU_INLINE bool exchange_if(T* at, T& expected, T value) {
  word<T> seen, made;
  __builtin_memcpy(&seen, &expected, sizeof seen);
  __builtin_memcpy(&made, &value, sizeof made);
  const bool done = __atomic_compare_exchange_n((word<T>*)at, &seen, made, false, KM_EMU_ORDER(Order),
                                                KM_EMU_ORDER(reading<Order>));
  if (!done) poll(at);
  __builtin_memcpy(&expected, &seen, sizeof expected);
  return done;
}
template <int Order = __ATOMIC_RELAXED, class T>
KM_EMU_INLINE T load(const T* from) {
  word<T> seen = __atomic_load_n((const word<T>*)from, KM_EMU_ORDER(Order));
  poll(from);
  T value;
  __builtin_memcpy(&value, &seen, sizeof value);
  return value;
}
template <int Order = __ATOMIC_RELAXED, class T>
KM_EMU_INLINE void store(T* to, T value) {
  word<T> made;
  __builtin_memcpy(&made, &value, sizeof made);
  __atomic_store_n((word<T>*)to, made, KM_EMU_ORDER(Order));
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
    return __atomic_fetch_add(at, v, KM_EMU_ORDER(__ATOMIC_RELAXED));
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

// ---- the built-ins of NVRTC; their orders count for the sanitizer ---------------------------------------------------

enum {
  __NV_ATOMIC_RELAXED,
  __NV_ATOMIC_CONSUME,
  __NV_ATOMIC_ACQUIRE,
  __NV_ATOMIC_RELEASE,
  __NV_ATOMIC_ACQ_REL,
  __NV_ATOMIC_SEQ_CST
};
enum {
  __NV_THREAD_SCOPE_THREAD,
  __NV_THREAD_SCOPE_BLOCK,
  __NV_THREAD_SCOPE_CLUSTER,
  __NV_THREAD_SCOPE_DEVICE,
  __NV_THREAD_SCOPE_SYSTEM
};
#define KM_EMU_ORDERED(order, call)                                                      \
  switch (order) {                                                                      \
    case __NV_ATOMIC_RELAXED: { constexpr int Order = __ATOMIC_RELAXED; return call; }  \
    case __NV_ATOMIC_ACQUIRE:                                                           \
    case __NV_ATOMIC_CONSUME: { constexpr int Order = __ATOMIC_ACQUIRE; return call; }  \
    case __NV_ATOMIC_RELEASE: { constexpr int Order = __ATOMIC_RELEASE; return call; }  \
    default: { constexpr int Order = __ATOMIC_ACQ_REL; return call; }                   \
  }
template <class T> KM_EMU_INLINE T __nv_atomic_load_n(const T* from, int order, int = 0) {
  if (order == __NV_ATOMIC_RELAXED) return km_emu::load<__ATOMIC_RELAXED>(from);
  return km_emu::load<__ATOMIC_ACQUIRE>(from);
}
template <class T> KM_EMU_INLINE void __nv_atomic_store_n(T* to, km_emu::exactly<T> value, int order, int = 0) {
  if (order == __NV_ATOMIC_RELAXED) return km_emu::store<__ATOMIC_RELAXED>(to, value);
  km_emu::store<__ATOMIC_RELEASE>(to, value);
}
template <class T> KM_EMU_INLINE T __nv_atomic_exchange_n(T* at, km_emu::exactly<T> value, int order, int = 0) {
  KM_EMU_ORDERED(order, km_emu::update<Order>(at, [=](T) { return value; }))
}
template <class T>
KM_EMU_INLINE bool __nv_atomic_compare_exchange_n(T* at, T* expected, km_emu::exactly<T> value, bool, int order, int, int = 0) {
  KM_EMU_ORDERED(order, km_emu::exchange_if<Order>(at, *expected, value))
}
#define KM_EMU_FETCH(name, expression)                                                                      \
  template <class T> KM_EMU_INLINE T name(T* at, km_emu::exactly<T> value, int order, int = 0) {            \
    KM_EMU_ORDERED(order, km_emu::update<Order>(at, [=](T old) { return T(expression); }))                  \
  }
KM_EMU_FETCH(__nv_atomic_fetch_add, old + value)
KM_EMU_FETCH(__nv_atomic_fetch_sub, old - value)
KM_EMU_FETCH(__nv_atomic_fetch_min, value < old ? value : old)
KM_EMU_FETCH(__nv_atomic_fetch_max, old < value ? value : old)
KM_EMU_FETCH(__nv_atomic_fetch_and, old & value)
KM_EMU_FETCH(__nv_atomic_fetch_or, old | value)
KM_EMU_FETCH(__nv_atomic_fetch_xor, old ^ value)
#undef KM_EMU_FETCH
#undef KM_EMU_ORDERED
KM_EMU_INLINE void __nv_atomic_thread_fence(int, int) { km_emu_fence(1); }
