// ptx.hpp - what stands for the inline PTX that the table of ptx.py knows. An address is shared where it has 32 bits.
#pragma once
#include "atomics.hpp"
#include "integers.hpp"

namespace km_emu::ptx {

KM_EMU_INLINE void* at(unsigned address) { return km_emu_from_shared(address); }
KM_EMU_INLINE void* at(int address) { return km_emu_from_shared((unsigned)address); }
KM_EMU_INLINE void* at(unsigned long address) { return (void*)address; }
KM_EMU_INLINE void* at(unsigned long long address) { return (void*)address; }
KM_EMU_INLINE void* at(long address) { return (void*)address; }
KM_EMU_INLINE void* at(const volatile void* address) { return (void*)address; }

template <class... A> KM_EMU_INLINE void nothing(A&&...) {}
KM_EMU_INLINE void trap() { km_emu_trap("trap"); }
KM_EMU_INLINE void sleep(unsigned) { km_emu_yield(); }
template <class T> KM_EMU_INLINE void lane(T& out) { out = (T)KM_EMU_LANE; }
template <class T> KM_EMU_INLINE void clock(T& out) { out = (T)km_emu_clock(); }
template <class T> KM_EMU_INLINE void policy(T& out) { out = 0; }
template <class T, class A> KM_EMU_INLINE void same_block(T& out, A address, unsigned) { out = (T)address; }
template <int Scope> KM_EMU_INLINE void fence() { km_emu_fence(Scope); }

KM_EMU_INLINE void barrier_sync(int id, int count = 0) { km_emu_barrier(id, count, 0, 0); }
KM_EMU_INLINE void barrier_arrive(int id, int count) { km_emu_barrier(id, count, 4, 0); }

// ---- mbarriers and copies -------------------------------------------------------------------------------------------

template <class A> KM_EMU_INLINE void transaction_init(A word, unsigned count) { km_emu_transaction((u64*)at(word), 0, count); }
template <class A> KM_EMU_INLINE void transaction_arrive(A word) { km_emu_transaction((u64*)at(word), 1, 1); }
template <class A> KM_EMU_INLINE void transaction_arrive_and_expect(A word, unsigned bytes) {
  km_emu_transaction((u64*)at(word), 2, bytes);
}
template <class A> KM_EMU_INLINE void transaction_expect(A word, unsigned bytes) {
  km_emu_transaction((u64*)at(word), 3, bytes);
}
template <class A> KM_EMU_INLINE void transaction_end(A word) { km_emu_transaction((u64*)at(word), 4, 0); }
template <class A, class... H> KM_EMU_INLINE void transaction_wait(A word, unsigned parity, H...) {
  km_emu_transaction_wait((u64*)at(word), parity);
}
template <class T, class A, class... H> KM_EMU_INLINE void transaction_try(T& done, A word, unsigned parity, H...) {
  done = km_emu_transaction_test((u64*)at(word), parity);
  if (!done) km_emu_yield();
}
template <class D, class S, class A, class... H>
KM_EMU_INLINE void bulk_to_shared(D to, S from, unsigned bytes, A word, H...) {
  km_emu_bulk_copy(at(to), at(from), bytes, (u64*)at(word));
}
template <class D, class S, class... H>
KM_EMU_INLINE void bulk_to_global(D to, S from, unsigned bytes, H...) {
  km_emu_bulk_copy(at(to), at(from), bytes, nullptr);
}
// The rest of `Bytes`, where fewer are taken, becomes zero.
template <int Bytes, class D, class S> KM_EMU_INLINE void copy(D to, S from, unsigned taken = Bytes) {
  const u32 bytes = taken < Bytes ? taken : Bytes;
  km_emu_small_copy(at(to), at(from), bytes, Bytes - bytes);
}
template <class D, class S> KM_EMU_INLINE void copy_sized(D to, S from, unsigned bytes, unsigned taken = 16) {
  km_emu_small_copy(at(to), at(from), taken < bytes ? taken : bytes, taken < bytes ? bytes - taken : 0);
}
KM_EMU_INLINE void commit_small() { km_emu_copies_commit(2); }
KM_EMU_INLINE void wait_small(unsigned pending) { km_emu_copies_wait(2, pending); }
KM_EMU_INLINE void wait_all_small() { commit_small(), wait_small(0); }
KM_EMU_INLINE void commit_bulk() { km_emu_copies_commit(0), km_emu_copies_commit(1); }
KM_EMU_INLINE void wait_bulk_read(unsigned pending) { km_emu_copies_wait(0, pending); }
KM_EMU_INLINE void wait_bulk(unsigned pending) { km_emu_copies_wait(0, pending), km_emu_copies_wait(1, pending); }
template <int What> KM_EMU_INLINE void fence_proxy() { km_emu_fence_proxy(What); }

// ---- loads and stores: plain, relaxed or volatile (1), acquire or release (2) ---------------------------------------

template <int Bits> using whole = typename word_of<Bits / 8>::type;
template <class R, class W> KM_EMU_INLINE void put(R& out, W word) {
  if constexpr (sizeof(R) == sizeof(W)) __builtin_memcpy((void*)&out, &word, sizeof word);
  else out = (R)word;
}
template <class W, class V> KM_EMU_INLINE W word_from(V value) {
  W word;
  if constexpr (sizeof(V) == sizeof(W)) __builtin_memcpy(&word, &value, sizeof word);
  else word = (W)value;
  return word;
}
template <int Bits, int Order, class R, class A> KM_EMU_INLINE void load(R& out, A address) {
  const whole<Bits>* from = (const whole<Bits>*)at(address);
  if constexpr (Order == 0) {
    put(out, *from);
  } else {
    put(out, __atomic_load_n(from, Order == 2 ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED));
    poll(from);
  }
}
template <int Bits, int Order, class A, class V> KM_EMU_INLINE void store(A address, V value) {
  whole<Bits>* to = (whole<Bits>*)at(address);
  if constexpr (Order == 0) {
    *to = word_from<whole<Bits>>(value);
  } else {
    __atomic_store_n(to, word_from<whole<Bits>>(value), Order == 2 ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
    km_emu_progress();
  }
}
template <int Order, class R, class A> KM_EMU_INLINE void load_both(R& low, R& high, A address) {
  u64 words[2];
  km_emu_load_both(at(address), words);
  low = (R)words[0], high = (R)words[1];
}
template <int Order, class A, class V> KM_EMU_INLINE void store_both(A address, V low, V high) {
  km_emu_store_both(at(address), (u64)low, (u64)high);
}
template <class T, int N> struct alignas(sizeof(T) * N) several { T item[N]; };
template <class R, class A> KM_EMU_INLINE void load_two(R& a, R& b, A address) {
  const several<R, 2> seen = *(const several<R, 2>*)at(address);
  a = seen.item[0], b = seen.item[1];
}
template <class A, class V> KM_EMU_INLINE void store_two(A address, V a, V b) {
  *(several<V, 2>*)at(address) = several<V, 2>{{a, b}};
}
template <class R, class A> KM_EMU_INLINE void load_four(R& a, R& b, R& c, R& d, A address) {
  const several<R, 4> seen = *(const several<R, 4>*)at(address);
  a = seen.item[0], b = seen.item[1], c = seen.item[2], d = seen.item[3];
}
template <class A, class V> KM_EMU_INLINE void store_four(A address, V a, V b, V c, V d) {
  *(several<V, 4>*)at(address) = several<V, 4>{{a, b, c, d}};
}

// ---- atomics --------------------------------------------------------------------------------------------------------

typedef u32 b32;
typedef i32 s32;
typedef u64 b64;
typedef i64 s64;
typedef float f32;
typedef double f64;
struct op_add { template <class T> static T apply(T a, T b) { return T(a + b); } };
struct op_min { template <class T> static T apply(T a, T b) { return b < a ? b : a; } };
struct op_max { template <class T> static T apply(T a, T b) { return a < b ? b : a; } };
struct op_and { template <class T> static T apply(T a, T b) { return a & b; } };
struct op_or { template <class T> static T apply(T a, T b) { return a | b; } };
struct op_xor { template <class T> static T apply(T a, T b) { return a ^ b; } };
struct op_inc { template <class T> static T apply(T a, T b) { return a >= b ? T(0) : T(a + 1); } };
struct op_dec { template <class T> static T apply(T a, T b) { return a == 0 || a > b ? b : T(a - 1); } };
struct op_exch { template <class T> static T apply(T, T b) { return b; } };
template <class T, class Op, class A, class V> KM_EMU_INLINE void update(A address, V value) {
  const T given = word_from<T>(value);
  km_emu::update((T*)at(address), [=](T old) { return Op::apply(old, given); });
}
template <class T, class Op, class R, class A, class V> KM_EMU_INLINE void fetch(R& out, A address, V value) {
  const T given = word_from<T>(value);
  put(out, km_emu::update((T*)at(address), [=](T old) { return Op::apply(old, given); }));
}
template <class T, class R, class A, class V> KM_EMU_INLINE void exchange_if(R& out, A address, V expected, V value) {
  T seen = word_from<T>(expected);
  km_emu::exchange_if((T*)at(address), seen, word_from<T>(value));
  put(out, seen);
}

}  // namespace km_emu::ptx
