// prims.hpp - the emulator's twin of device/prims.cuh, in whose place it is included: the same names and meanings, on what
// a host compiler has.
#pragma once
#include "device.hpp"
#include "half_bits.hpp"

#define KM_INL __device__ __forceinline__
#define KM_HOT __device__ __attribute__((noinline))
#define KM_COLD __device__ __attribute__((noinline))
#define KM_TABLE static constexpr
#define KM_R __restrict__
#define KM_EXPORT extern "C" __global__
#define KM_LIKELY(x) __builtin_expect(!!(x), 1)
#define KM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#if defined(__clang__)
#define KM_UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define KM_UNROLL_ALL _Pragma("GCC unroll 64")
#endif
#define KM_IVDEP

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#pragma GCC diagnostic ignored "-Wpacked-not-aligned"
#endif

namespace km {

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long i64;
typedef unsigned long u64;
typedef float f32;
typedef double f64;
typedef unsigned long usize;
typedef unsigned long uptr;

static_assert(sizeof(i64) == 8 && sizeof(void*) == 8, "unsupported data model");

template <class To, class From>
KM_INL To bit_cast(const From& value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  return __builtin_bit_cast(To, value);
}

// ---- half precision -------------------------------------------------------------------------------------------------

KM_INL u16 f16_bits_of(f32 value) { return km_emu::half_bits(value); }
KM_INL u16 f16_bits_of(f64 value) { return km_emu::half_bits(value); }
KM_INL f32 f32_of_f16_bits(u16 half) { return km_emu::float_of_half_bits(half); }
KM_INL u16 bf16_bits_of(f32 value) { return km_emu::brain_bits(value); }
KM_INL u32 bits_plus_zero(u32 bits) {
  const u32 size = bits & 0x7fffffffu;
  return size > 0x7f800000u ? 0x7fffffffu : size ? bits : 0u;
}
KM_INL u16 half_bits_plus_zero(u16 bits) {
  const u32 size = bits & 0x7fffu;
  return (u16)(size > 0x7c00u ? 0x7fffu : size ? bits : 0u);
}

// ---- where a thread is, barriers, votes -----------------------------------------------------------------------------

constexpr int warp_size = 32;
constexpr u32 full_warp = 0xffffffffu;

KM_INL u32 lane_id() { return (u32)KM_EMU_LANE; }
KM_INL u32 thread_rank() { return KM_EMU_RANK; }
KM_INL u32 block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
KM_INL void block_barrier() { __syncthreads(); }
KM_INL void warp_barrier(u32 lanes = full_warp) { __syncwarp(lanes); }
KM_INL void rest_for(u32) {}
KM_INL void take_turn() {}  // launches follow each other here
KM_INL void settle(u32&) {}
KM_INL void settle(u64&) {}
KM_INL bool vote_any(bool test, u32 lanes = full_warp) { return __any_sync(lanes, test) != 0; }
KM_INL bool vote_all(bool test, u32 lanes = full_warp) { return __all_sync(lanes, test) != 0; }
KM_INL u32 ballot(bool test, u32 lanes = full_warp) { return __ballot_sync(lanes, test); }
KM_INL u32 match_any(u32 value, u32 lanes = full_warp) { return __match_any_sync(lanes, value); }
KM_INL u32 match_any(u64 value, u32 lanes = full_warp) { return __match_any_sync(lanes, value); }
KM_INL u32 match_byte(u32 value) { return __match_any_sync(full_warp, value & 255u); }
KM_INL u32 active_lanes() { return __activemask(); }

// ---- 16-byte packets ------------------------------------------------------------------------------------------------

struct __align__(16) packet {
  u32 word[4];
};
KM_INL packet load_packet(const void* from) { return *(const packet*)from; }
KM_INL void store_packet(void* to, packet value) { *(packet*)to = value; }
KM_INL packet load_packet_once(const void* from) { return *(const packet*)from; }
KM_INL void store_packet_once(void* to, packet value) { *(packet*)to = value; }

template <class W> KM_INL W load_stream(const W* from) { return *from; }
template <class W> KM_INL W load_global(const W* from) { return *from; }
template <class W> KM_INL W load_volatile(const W* from) { return *(const volatile W*)from; }

// ---- atomics: their orders count for the sanitizer ------------------------------------------------------------------

enum order : int {
  relaxed = __ATOMIC_RELAXED,
  acquire = __ATOMIC_ACQUIRE,
  release = __ATOMIC_RELEASE,
  acquire_release = __ATOMIC_ACQ_REL,
  sequential = __ATOMIC_SEQ_CST,
};
enum scope : int { block_scope, device_scope, system_scope };

template <int Order>
constexpr int reading = Order == release ? int(relaxed) : (Order == acquire_release ? int(acquire) : Order);

template <int Bytes> struct word_of;
template <> struct word_of<1> { typedef unsigned char type; };
template <> struct word_of<2> { typedef unsigned short type; };
template <> struct word_of<4> { typedef unsigned int type; };
template <> struct word_of<8> { typedef unsigned long long type; };
template <class T> using word = typename word_of<sizeof(T)>::type;

template <int Order = acquire, int Scope = device_scope, class T>
KM_INL T atomic_load(const T* from) {
  return km_emu::load<Order>(from);
}
template <int Order = release, int Scope = device_scope, class T>
KM_INL void atomic_store(T* to, T value) {
  km_emu::store<Order>(to, value);
}
template <int Order = relaxed, int Scope = device_scope, int Failed = reading<Order>, class T>
KM_INL bool atomic_compare_exchange(T* at, T& expected, T value) {
  return km_emu::exchange_if<Order>(at, expected, value);
}
template <int Order = relaxed, int Scope = device_scope, class T, class F>
KM_INL T atomic_update(T* at, F f) {
  return km_emu::update<Order>(at, f);
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_exchange(T* at, T value) {
  return km_emu::update<Order>(at, [=](T) { return value; });
}

template <class T> struct native { static constexpr bool integer = false, sum = false; };
template <class Ordered> struct native_integer {
  static constexpr bool integer = true, sum = true;
  typedef Ordered ordered;
};
template <> struct native<i32> : native_integer<int> {};
template <> struct native<u32> : native_integer<unsigned int> {};
template <> struct native<i64> : native_integer<long long> {};
template <> struct native<u64> : native_integer<unsigned long long> {};
template <> struct native<f32> { static constexpr bool integer = false, sum = true; };
template <> struct native<f64> { static constexpr bool integer = false, sum = true; };

#define KM_EMU_UPDATE(name, expression)                              \
  template <int Order = relaxed, int Scope = device_scope, class T>  \
  KM_INL T name(T* at, T value) {                                    \
    return km_emu::update<Order>(at, [=](T old) { return T(expression); }); \
  }
KM_EMU_UPDATE(atomic_add, old + value)
KM_EMU_UPDATE(atomic_min, value < old ? value : old)
KM_EMU_UPDATE(atomic_max, old < value ? value : old)
KM_EMU_UPDATE(atomic_and, old & value)
KM_EMU_UPDATE(atomic_or, old | value)
KM_EMU_UPDATE(atomic_xor, old ^ value)
#undef KM_EMU_UPDATE
template <class T>
KM_INL void add_shared(T* at, T by) {
  atomic_add<relaxed, block_scope>(at, by);
}
KM_INL void or_shared(u32* at, u32 bits) { atomic_or<relaxed, block_scope>(at, bits); }
KM_INL u32 fetch_add_shared(u32* at, u32 by) { return atomic_add<relaxed, block_scope>(at, by); }
KM_INL u32 load_shared(const u32* from) { return atomic_load<relaxed, block_scope>(from); }
KM_INL void store_shared(u32* to, u32 word) { atomic_store<relaxed, block_scope>(to, word); }
template <int Order = acquire_release, int Scope = device_scope>
KM_INL void fence() {
  km_emu_fence(Scope);
}

KM_INL void load_both(const void* from, u64& a, u64& b) {
  km_emu::u64 words[2];
  km_emu_load_both(from, words);
  a = words[0], b = words[1];
}
KM_INL void store_both(void* to, u64 a, u64 b) { km_emu_store_both(to, a, b); }

// ---- barriers of some warps, and of copies --------------------------------------------------------------------------

KM_INL void part_barrier(int id, int threads) { km_emu_barrier(id, threads, 0, 0); }
KM_INL void copy_barrier_init(u64* word, u32 arrivals) { km_emu_transaction((km_emu::u64*)word, 0, arrivals); }
KM_INL void copy_barriers_made() { km_emu_fence_proxy(0); }
KM_INL void copy_barrier_arrive(u64* word) { km_emu_transaction((km_emu::u64*)word, 1, 1); }
KM_INL void copy_barrier_expect(u64* word, u32 bytes) { km_emu_transaction((km_emu::u64*)word, 2, bytes); }
KM_INL void copy_barrier_wait(u64* word, u32 parity) { km_emu_transaction_wait((km_emu::u64*)word, parity); }
KM_INL void bulk_load(void* to, const void* from, u32 bytes, u64* word) {
  km_emu_bulk_copy(to, from, bytes, (km_emu::u64*)word);
}
KM_INL void bulk_store(void* to, const void* from, u32 bytes) { km_emu_bulk_copy(to, from, bytes, nullptr); }
KM_INL void copies_grouped() { km_emu_copies_commit(0), km_emu_copies_commit(1); }
KM_INL void bulk_stores_read() { copies_grouped(), km_emu_copies_wait(0, 0); }
KM_INL void bulk_stores_before_read() { copies_grouped(), km_emu_copies_wait(0, 1); }
KM_INL void bulk_stores_done() { km_emu_copies_wait(0, 0), km_emu_copies_wait(1, 0); }
KM_INL void seen_by_copies() { km_emu_fence_proxy(1); }

}  // namespace km
