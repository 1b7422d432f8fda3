// atomics.hpp - atomic changes of single elements, for operators that write to captured arrays; the
// names and values are those of device/atomics.cuh, whose scopes are one here: all threads.
#pragma once
#include "base.hpp"

namespace km {

enum order : int {
  relaxed = __ATOMIC_RELAXED,
  acquire = __ATOMIC_ACQUIRE,
  release = __ATOMIC_RELEASE,
  acquire_release = __ATOMIC_ACQ_REL,
  sequential = __ATOMIC_SEQ_CST,
};
enum scope : int { block_scope, device_scope, system_scope };

template <class T> constexpr bool is_half = false;
template <> constexpr bool is_half<f16> = true;
template <> constexpr bool is_half<bf16> = true;
template <class T> constexpr bool is_real = is_half<T>;
template <> constexpr bool is_real<f32> = true;
template <> constexpr bool is_real<f64> = true;

template <int Bytes> struct atomic_size;
template <> struct atomic_size<1> { typedef u8 type; };
template <> struct atomic_size<2> { typedef u16 type; };
template <> struct atomic_size<4> { typedef u32 type; };
template <> struct atomic_size<8> { typedef u64 type; };
template <class T> using atomic_word = typename atomic_size<sizeof(T)>::type;

template <int Order, int Scope, class T> KM_INL T atomic_load(const T* from) {
  return bit_cast<T>(__atomic_load_n((const atomic_word<T>*)from, Order));
}
template <int Order, int Scope, class T> KM_INL void atomic_store(T* to, T value) {
  __atomic_store_n((atomic_word<T>*)to, bit_cast<atomic_word<T>>(value), Order);
}
template <int Order, int Scope, class T> KM_INL T exchange_value(T* at, T value) {
  return bit_cast<T>(__atomic_exchange_n((atomic_word<T>*)at, bit_cast<atomic_word<T>>(value), Order));
}
// Puts `value` where `expected` is; returns what was there.
template <int Order, int Scope, class T> KM_INL T compare_exchange(T* at, T expected, T value) {
  atomic_word<T> seen = bit_cast<atomic_word<T>>(expected);
  __atomic_compare_exchange_n((atomic_word<T>*)at, &seen, bit_cast<atomic_word<T>>(value), false, Order, __ATOMIC_RELAXED);
  return bit_cast<T>(seen);
}

// Puts f(old) in the place of what is there; returns that.
template <int Order, class T, class F> KM_INL T changed(T* at, F f) {
  atomic_word<T> seen = __atomic_load_n((atomic_word<T>*)at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n((atomic_word<T>*)at, &seen, bit_cast<atomic_word<T>>(T(f(bit_cast<T>(seen)))), true, Order,
                                      __ATOMIC_RELAXED)) {
  }
  return bit_cast<T>(seen);
}

template <int Order, int Scope, class T> KM_INL T fetch_add(T* at, T value) {
  if constexpr (!is_real<T>) return T(__atomic_fetch_add((atomic_word<T>*)at, (atomic_word<T>)value, Order));
  else if constexpr (is_half<T>) return changed<Order>(at, [value](T old) { return T(f32(old) + f32(value)); });
  else return changed<Order>(at, [value](T old) { return T(old + value); });
}
template <int Order, int Scope, class T> KM_INL T fetch_min(T* at, T value) {
  if constexpr (is_half<T>) return changed<Order>(at, [value](T old) { return f32(value) < f32(old) ? value : old; });
  else return changed<Order>(at, [value](T old) { return value < old ? value : old; });
}
template <int Order, int Scope, class T> KM_INL T fetch_max(T* at, T value) {
  if constexpr (is_half<T>) return changed<Order>(at, [value](T old) { return f32(old) < f32(value) ? value : old; });
  else return changed<Order>(at, [value](T old) { return old < value ? value : old; });
}
template <int Order, int Scope, class T> KM_INL T fetch_and(T* at, T value) {
  return T(__atomic_fetch_and((atomic_word<T>*)at, (atomic_word<T>)value, Order));
}
template <int Order, int Scope, class T> KM_INL T fetch_or(T* at, T value) {
  return T(__atomic_fetch_or((atomic_word<T>*)at, (atomic_word<T>)value, Order));
}
template <int Order, int Scope, class T> KM_INL T fetch_xor(T* at, T value) {
  return T(__atomic_fetch_xor((atomic_word<T>*)at, (atomic_word<T>)value, Order));
}

}  // namespace km
