// atomics.cuh - atomics of every element type, in kernels written in Python and in operators that write to captured arrays.
#pragma once
#include "base.hpp"

namespace km {

template <class T> constexpr bool is_half = false;
template <> constexpr bool is_half<f16> = true;
template <> constexpr bool is_half<bf16> = true;

// Relaxed operations on words of 4 and 8 bytes are CUDA's own functions: they are placed in the instructions of shared or of
// global memory, where the built-ins of prims.cuh address both alike.
template <int Bytes, bool Signed> struct plain_word { static constexpr bool known = false; };
template <> struct plain_word<4, true> { static constexpr bool known = true; typedef int type; };
template <> struct plain_word<4, false> { static constexpr bool known = true; typedef unsigned int type; };
template <> struct plain_word<8, true> { static constexpr bool known = true; typedef long long type; };
template <> struct plain_word<8, false> { static constexpr bool known = true; typedef unsigned long long type; };
template <class T> constexpr bool is_integer = false;
template <> constexpr bool is_integer<i32> = true;
template <> constexpr bool is_integer<u32> = true;
template <> constexpr bool is_integer<i64> = true;
template <> constexpr bool is_integer<u64> = true;
template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<f32> = true;
template <> constexpr bool is_float<f64> = true;
template <class T> using ordered_word = typename plain_word<sizeof(T), T(-1) < T(0)>::type;
template <class T> using bits_word = typename plain_word<sizeof(T), false>::type;

#define KM_RELAXED(function)                                                    \
  template <int Scope, class T>                                                 \
  KM_INL T relaxed_##function(T* at, T value) {                                 \
    if constexpr (Scope == block_scope) return atomic##function##_block(at, value);        \
    else if constexpr (Scope == system_scope) return atomic##function##_system(at, value); \
    else return atomic##function(at, value);                                    \
  }
KM_RELAXED(Add)
KM_RELAXED(Min)
KM_RELAXED(Max)
KM_RELAXED(And)
KM_RELAXED(Or)
KM_RELAXED(Xor)
KM_RELAXED(Exch)
#undef KM_RELAXED
template <int Scope, class T>
KM_INL T relaxed_CAS(T* at, T expected, T value) {
  if constexpr (Scope == block_scope) return atomicCAS_block(at, expected, value);
  else if constexpr (Scope == system_scope) return atomicCAS_system(at, expected, value);
  else return atomicCAS(at, expected, value);
}

template <int Order, int Scope, class T>
KM_INL T fetch_add(T* at, T value) {
  if constexpr (is_half<T>) return atomic_update<Order, Scope>(at, [value](T old) { return T(f32(old) + f32(value)); });
  else if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_Add<Scope>((bits_word<T>*)at, (bits_word<T>)value));
  else if constexpr (Order == relaxed && is_float<T>) return relaxed_Add<Scope>(at, value);
  else return atomic_add<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T fetch_min(T* at, T value) {
  if constexpr (is_half<T>) return atomic_update<Order, Scope>(at, [value](T old) { return f32(value) < f32(old) ? value : old; });
  else if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_Min<Scope>((ordered_word<T>*)at, (ordered_word<T>)value));
  else return atomic_min<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T fetch_max(T* at, T value) {
  if constexpr (is_half<T>) return atomic_update<Order, Scope>(at, [value](T old) { return f32(old) < f32(value) ? value : old; });
  else if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_Max<Scope>((ordered_word<T>*)at, (ordered_word<T>)value));
  else return atomic_max<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T fetch_and(T* at, T value) {
  if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_And<Scope>((bits_word<T>*)at, (bits_word<T>)value));
  else return atomic_and<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T fetch_or(T* at, T value) {
  if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_Or<Scope>((bits_word<T>*)at, (bits_word<T>)value));
  else return atomic_or<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T fetch_xor(T* at, T value) {
  if constexpr (Order == relaxed && is_integer<T>) return T(relaxed_Xor<Scope>((bits_word<T>*)at, (bits_word<T>)value));
  else return atomic_xor<Order, Scope>(at, value);
}
template <int Order, int Scope, class T>
KM_INL T exchange_value(T* at, T value) {
  if constexpr (Order == relaxed && plain_word<sizeof(T), false>::known)
    return bit_cast<T>(relaxed_Exch<Scope>((bits_word<T>*)at, bit_cast<bits_word<T>>(value)));
  else return atomic_exchange<Order, Scope>(at, value);
}
// Puts `value` where `expected` is; returns what was there.
template <int Order, int Scope, class T>
KM_INL T compare_exchange(T* at, T expected, T value) {
  if constexpr (Order == relaxed && plain_word<sizeof(T), false>::known) {
    typedef bits_word<T> word;
    return bit_cast<T>(relaxed_CAS<Scope>((word*)at, bit_cast<word>(expected), bit_cast<word>(value)));
  } else {
    atomic_compare_exchange<Order, Scope>(at, expected, value);
    return expected;
  }
}

}  // namespace km
