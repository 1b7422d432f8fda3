// prims.cuh - what device code takes from the compiler and the chip: integer types, function attributes, conversions of
// half precision, 16-byte packets, atomics with order and scope, and votes.  The only file with assembly or atomic
// built-ins; header-free, for NVRTC 12.8 and later, sm_75 and later.  What is built on it: base.cuh, warp.cuh, block.cuh.
#pragma once

#if !defined(__CUDACC_RTC__)
#error "prims.cuh is written for NVRTC"
#endif

// On free functions and on members alike; an operator must end up inside the loop that calls it.
#define KM_INL __device__ __forceinline__
#define KM_HOT __device__ __noinline__
#define KM_COLD __device__ __noinline__
#define KM_TABLE static __device__ constexpr
#define KM_R __restrict__
#define KM_EXPORT extern "C" __global__
#define KM_LIKELY(x) __builtin_expect(!!(x), 1)
#define KM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KM_UNROLL_ALL _Pragma("unroll")
#define KM_IVDEP

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

// The bits of one value seen as another type of the same size.
template <class To, class From>
KM_INL To bit_cast(const From& value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  return __builtin_bit_cast(To, value);
}

// ---- half precision: the chip's conversions, rounded once to nearest even --------------------------------------------------

KM_INL u16 f16_bits_of(f32 value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
KM_INL u16 f16_bits_of(f64 value) {
  u16 bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
  return bits;
}
// The instruction makes every NaN the same one; its sign is put back, so that signbit and copysign see what was stored.
KM_INL f32 f32_of_f16_bits(u16 bits) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return bit_cast<f32>((bit_cast<u32>(value) & 0x7fffffffu) | ((u32)(bits & 0x8000u) << 16));
}
// The bits of value + 0, where the chip makes one of both zeros, and of every NaN.
KM_INL u32 bits_plus_zero(u32 bits) {
  asm("{ .reg .f32 v; mov.b32 v, %0; add.rn.f32 v, v, 0f00000000; mov.b32 %0, v; }" : "+r"(bits));
  return bits;
}
KM_INL u16 half_bits_plus_zero(u16 bits) {
  asm("{ .reg .f16 v, z; .reg .b16 n; mov.b16 v, %0; mov.b16 n, 0; mov.b16 z, n; add.rn.f16 v, v, z; mov.b16 %0, v; }"
      : "+h"(bits));
  return bits;
}
KM_INL u16 bf16_bits_of(f32 value) {
#if __CUDA_ARCH__ >= 800
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const u32 x = bit_cast<u32>(value), nearest = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
  return (u16)((x & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : nearest);
#endif
}

// ---- where a thread is -------------------------------------------------------------------------------------------------

constexpr int warp_size = 32;
constexpr u32 full_warp = 0xffffffffu;

KM_INL u32 lane_id() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
// Position in the block, x fastest.
KM_INL u32 thread_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
KM_INL u32 block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
KM_INL void block_barrier() { __syncthreads(); }
KM_INL void warp_barrier(u32 lanes = full_warp) { __syncwarp(lanes); }
// Lets others have the multiprocessor for about so long; for who waits.
KM_INL void rest_for(u32 nanoseconds) { __nanosleep(nanoseconds); }
// The first thing of a kernel that may begin before launches in front of it end, as those may whose text has this call
// (runtime/cuda/backend.py): waits until they have ended and what they wrote is seen, and lets the next launch get as far.
KM_INL void take_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Has a word in its register here: the compiler of NVRTC 13.0 runs out of registers for tests where it may gather many.
KM_INL void settle(u32& word) { asm volatile("" : "+r"(word)); }
KM_INL void settle(u64& word) { asm volatile("" : "+l"(word)); }

// ---- votes --------------------------------------------------------------------------------------------------------------

KM_INL bool vote_any(bool test, u32 lanes = full_warp) { return __any_sync(lanes, test) != 0; }
KM_INL bool vote_all(bool test, u32 lanes = full_warp) { return __all_sync(lanes, test) != 0; }
KM_INL u32 ballot(bool test, u32 lanes = full_warp) { return __ballot_sync(lanes, test); }
// The lanes that hold the same value as this one.
KM_INL u32 match_any(u32 value, u32 lanes = full_warp) { return __match_any_sync(lanes, value); }
KM_INL u32 match_any(u64 value, u32 lanes = full_warp) { return __match_any_sync(lanes, (unsigned long long)value); }
// The same for values below 256, by a vote on each bit, which is quicker.
KM_INL u32 match_byte(u32 value) {
  u32 alike = full_warp;
  KM_UNROLL_ALL for (int bit = 0; bit < 8; bit++)
    asm volatile(
        "{ .reg .pred p; .reg .b32 t, v, s; and.b32 t, %1, %2; setp.ne.u32 p, t, 0; vote.sync.ballot.b32 v, p, 0xffffffff; "
        "selp.b32 s, 0, 0xffffffff, p; xor.b32 v, v, s; and.b32 %0, %0, v; }"
        : "+r"(alike)
        : "r"(value), "r"(1u << bit));
  return alike;
}
KM_INL u32 active_lanes() { return __activemask(); }

// ---- 16-byte packets ------------------------------------------------------------------------------------------------------

struct __align__(16) packet {
  u32 word[4];
};

// Plain access; `from` and `to` are multiples of 16.
KM_INL packet load_packet(const void* from) { return *(const packet*)from; }
KM_INL void store_packet(void* to, packet value) { *(packet*)to = value; }
// Read once, written by nobody while the kernel runs: past L1, through the read-only path.
KM_INL packet load_packet_once(const void* from) {
  packet p;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from));
  return p;
}
// Written once, not read again soon.
KM_INL void store_packet_once(void* to, packet p) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.word[0]), "r"(p.word[1]), "r"(p.word[2]),
               "r"(p.word[3])
               : "memory");
}

// Loads past a cache: of what is read once, past the first level, and each time from memory.
#define KM_HINTED(name, spelled)                                            \
  KM_INL u32 name(const u32* from) {                                        \
    u32 word;                                                               \
    asm volatile("ld." spelled ".b32 %0, [%1];" : "=r"(word) : "l"(from));  \
    return word;                                                            \
  }                                                                         \
  KM_INL u64 name(const u64* from) {                                        \
    u64 word;                                                               \
    asm volatile("ld." spelled ".b64 %0, [%1];" : "=l"(word) : "l"(from));  \
    return word;                                                            \
  }
KM_HINTED(load_stream, "global.cs")
KM_HINTED(load_global, "global.cg")
KM_HINTED(load_volatile, "volatile.global")
#undef KM_HINTED

// ---- atomics ----------------------------------------------------------------------------------------------------------------

// Order and scope are template arguments: the built-ins take constants.
enum order : int {
  relaxed = __NV_ATOMIC_RELAXED,
  acquire = __NV_ATOMIC_ACQUIRE,
  release = __NV_ATOMIC_RELEASE,
  acquire_release = __NV_ATOMIC_ACQ_REL,
  sequential = __NV_ATOMIC_SEQ_CST,
};
enum scope : int {
  block_scope = __NV_THREAD_SCOPE_BLOCK,
  device_scope = __NV_THREAD_SCOPE_DEVICE,
  system_scope = __NV_THREAD_SCOPE_SYSTEM,
};

// The order of the read half of an operation: what a failed exchange may have.
template <int Order>
constexpr int reading = Order == release ? int(relaxed) : (Order == acquire_release ? int(acquire) : Order);

// The type of so many bytes that the built-ins take: they know `long long`, and NVRTC 12.8 does not know `long` as the same.
template <int Bytes> struct word_of;
template <> struct word_of<1> { typedef unsigned char type; };
template <> struct word_of<2> { typedef unsigned short type; };
template <> struct word_of<4> { typedef unsigned int type; };
template <> struct word_of<8> { typedef unsigned long long type; };
template <class T> using word = typename word_of<sizeof(T)>::type;

template <int Order = acquire, int Scope = device_scope, class T>
KM_INL T atomic_load(const T* from) {
  return bit_cast<T>(__nv_atomic_load_n((word<T>*)from, Order, Scope));
}
template <int Order = release, int Scope = device_scope, class T>
KM_INL void atomic_store(T* to, T value) {
  __nv_atomic_store_n((word<T>*)to, bit_cast<word<T>>(value), Order, Scope);
}
// NVRTC 12.8 looks at the sizes before it knows template arguments, so the words are spelled out for it; 12.9 and 13.0 look at
// order and scope before, unless the type of the object is a template argument.
#define KM_EXCHANGE_IF(type)                                                             \
  KM_INL bool exchange_if(type* at, type* seen, type value) {                            \
    return __nv_atomic_compare_exchange_n(at, seen, value, false, Order, Failed, Scope); \
  }
#define KM_EXCHANGE(type) \
  KM_INL type exchange(type* at, type value) { return __nv_atomic_exchange_n(at, value, Order, Scope); }
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ > 8
template <int Order, int Scope, int Failed, class Word> KM_EXCHANGE_IF(Word)
template <int Order, int Scope, class Word> KM_EXCHANGE(Word)
#else
template <int Order, int Scope, int Failed> KM_EXCHANGE_IF(unsigned short)
template <int Order, int Scope, int Failed> KM_EXCHANGE_IF(unsigned int)
template <int Order, int Scope, int Failed> KM_EXCHANGE_IF(unsigned long long)
template <int Order, int Scope> KM_EXCHANGE(unsigned int)
template <int Order, int Scope> KM_EXCHANGE(unsigned long long)
#endif
#undef KM_EXCHANGE
#undef KM_EXCHANGE_IF

// Replaces `expected` by `value`, of 2, 4 or 8 bytes; on failure `expected` becomes what was found.
template <int Order = relaxed, int Scope = device_scope, int Failed = reading<Order>, class T>
KM_INL bool atomic_compare_exchange(T* at, T& expected, T value) {
  word<T> seen = bit_cast<word<T>>(expected);
  const bool done = exchange_if<Order, Scope, Failed>((word<T>*)at, &seen, bit_cast<word<T>>(value));
  expected = bit_cast<T>(seen);
  return done;
}

// at = f(at), for any function and any type of 2, 4 or 8 bytes, and for one byte inside its word; returns the old value.
template <int Order = relaxed, int Scope = device_scope, class T, class F>
KM_INL T atomic_update(T* at, F f) {
  if constexpr (sizeof(T) == 1) {
    u32* whole = (u32*)((uptr)at & ~uptr(3));
    const u32 shift = 8 * (u32)((uptr)at & 3);
    u32 seen = atomic_load<relaxed, Scope>(whole), next;
    do {
      const T made = f(bit_cast<T>((u8)(seen >> shift)));
      next = (seen & ~(0xffu << shift)) | ((u32)bit_cast<u8>(made) << shift);
    } while (!atomic_compare_exchange<Order, Scope>(whole, seen, next));
    return bit_cast<T>((u8)(seen >> shift));
  } else {
    word<T> seen = atomic_load<relaxed, Scope>((word<T>*)at);
    while (!atomic_compare_exchange<Order, Scope>((word<T>*)at, seen, bit_cast<word<T>>(T(f(bit_cast<T>(seen)))))) {
    }
    return bit_cast<T>(seen);
  }
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_exchange(T* at, T value) {
  if constexpr (sizeof(T) >= 4) {
    return bit_cast<T>(exchange<Order, Scope>((word<T>*)at, bit_cast<word<T>>(value)));
  } else {
    return atomic_update<Order, Scope>(at, [value](T) { return value; });
  }
}

// What the chip computes by itself: on integers of 4 and 8 bytes everything, on floats of that size sums.
template <class T> struct native { static constexpr bool integer = false, sum = false; };
template <class Ordered> struct native_integer {
  static constexpr bool integer = true, sum = true;
  typedef Ordered ordered;  // in which the built-ins compare
};
template <> struct native<i32> : native_integer<int> {};
template <> struct native<u32> : native_integer<unsigned int> {};
template <> struct native<i64> : native_integer<long long> {};
template <> struct native<u64> : native_integer<unsigned long long> {};
template <> struct native<f32> { static constexpr bool integer = false, sum = true; };
template <> struct native<f64> { static constexpr bool integer = false, sum = true; };

// Integers wrap, so a signed sum is the unsigned one.
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_add(T* at, T value) {
  if constexpr (native<T>::integer) return T(__nv_atomic_fetch_add((word<T>*)at, (word<T>)value, Order, Scope));
  else if constexpr (native<T>::sum) return __nv_atomic_fetch_add(at, value, Order, Scope);
  else return atomic_update<Order, Scope>(at, [value](T old) { return T(old + value); });
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_min(T* at, T value) {
  if constexpr (native<T>::integer) {
    typedef typename native<T>::ordered ordered;
    return T(__nv_atomic_fetch_min((ordered*)at, (ordered)value, Order, Scope));
  } else {
    return atomic_update<Order, Scope>(at, [value](T old) { return value < old ? value : old; });
  }
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_max(T* at, T value) {
  if constexpr (native<T>::integer) {
    typedef typename native<T>::ordered ordered;
    return T(__nv_atomic_fetch_max((ordered*)at, (ordered)value, Order, Scope));
  } else {
    return atomic_update<Order, Scope>(at, [value](T old) { return old < value ? value : old; });
  }
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_and(T* at, T value) {
  if constexpr (native<T>::integer) return T(__nv_atomic_fetch_and((word<T>*)at, (word<T>)value, Order, Scope));
  else return atomic_update<Order, Scope>(at, [value](T old) { return T(old & value); });
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_or(T* at, T value) {
  if constexpr (native<T>::integer) return T(__nv_atomic_fetch_or((word<T>*)at, (word<T>)value, Order, Scope));
  else return atomic_update<Order, Scope>(at, [value](T old) { return T(old | value); });
}
template <int Order = relaxed, int Scope = device_scope, class T>
KM_INL T atomic_xor(T* at, T value) {
  if constexpr (native<T>::integer) return T(__nv_atomic_fetch_xor((word<T>*)at, (word<T>)value, Order, Scope));
  else return atomic_update<Order, Scope>(at, [value](T old) { return T(old ^ value); });
}
// Adds to a word in shared memory, of which nothing is returned.
KM_INL void add_shared(u32* at, u32 by) {
  asm volatile("red.relaxed.cta.shared.add.u32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(at)), "r"(by) : "memory");
}
KM_INL void add_shared(i64* at, i64 by) {
  asm volatile("red.relaxed.cta.shared.add.u64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(at)), "l"(by) : "memory");
}
// Words in shared memory that lanes of a warp hand each other between warp barriers.
KM_INL void or_shared(u32* at, u32 bits) {
  asm volatile("red.relaxed.cta.shared.or.b32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(at)), "r"(bits) : "memory");
}
KM_INL u32 fetch_add_shared(u32* at, u32 by) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"((u32)__cvta_generic_to_shared(at)), "r"(by)
               : "memory");
  return old;
}
KM_INL u32 load_shared(const u32* from) {
  u32 word;
  asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(word) : "r"((u32)__cvta_generic_to_shared(from)) : "memory");
  return word;
}
KM_INL void store_shared(u32* to, u32 word) {
  asm volatile("st.volatile.shared.b32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(to)), "r"(word) : "memory");
}
// Orders what stands before it against what stands behind it; every order but `sequential` is acquire and release.  The
// built-in of NVRTC 13.0 takes no template arguments.
template <int Order = acquire_release, int Scope = device_scope>
KM_INL void fence() {
  if constexpr (Order == sequential) {
    if constexpr (Scope == block_scope) asm volatile("fence.sc.cta;" ::: "memory");
    else if constexpr (Scope == device_scope) asm volatile("fence.sc.gpu;" ::: "memory");
    else asm volatile("fence.sc.sys;" ::: "memory");
  } else {
    if constexpr (Scope == block_scope) asm volatile("fence.acq_rel.cta;" ::: "memory");
    else if constexpr (Scope == device_scope) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    else asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
}

// 16 bytes as one: what is read was written together.  Relaxed, device scope; both are multiples of 16.
KM_INL void load_both(const void* from, u64& a, u64& b) {
  asm volatile("{ .reg .b128 r; ld.relaxed.gpu.global.b128 r, [%2]; mov.b128 {%0, %1}, r; }"
               : "=l"(a), "=l"(b)
               : "l"(from)
               : "memory");
}
KM_INL void store_both(void* to, u64 a, u64 b) {
  asm volatile("{ .reg .b128 r; mov.b128 r, {%1, %2}; st.relaxed.gpu.global.b128 [%0], r; }" ::"l"(to), "l"(a), "l"(b)
               : "memory");
}

// ---- barriers of some warps, and of copies: sm_90 and later ------------------------------------------------------------------

// Barrier `id` (1 to 15) of so many threads, whole warps; 0 is the one of the block.
KM_INL void part_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

KM_INL u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// A copy barrier is a word in shared memory.  A phase ends when `arrivals` threads have arrived and all bytes that were
// announced are there; the first phase has parity 0.  What was written before an arrival is seen after the wait.
KM_INL void copy_barrier_init(u64* word, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(word)), "r"(arrivals) : "memory");
}
// After the last of them, by the thread that made them; then a barrier of the block.
KM_INL void copy_barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
KM_INL void copy_barrier_arrive(u64* word) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(word)) : "memory");
}
// Arrives, and announces that many bytes of copies.
KM_INL void copy_barrier_expect(u64* word, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(word)), "r"(bytes) : "memory");
}
// Waits until the phase of this parity is over.
KM_INL void copy_barrier_wait(u64* word, u32 parity) {
  asm volatile(
      "{ .reg .pred p; W_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D_%=; bra W_%=; D_%=: }" ::"r"(
          shared_address(word)),
      "r"(parity)
      : "memory");
}

// The copy engine moves bytes while threads go on: addresses and size are multiples of 16.  Into shared memory, counted by a
// copy barrier; out of it, in groups of the thread that asks: it waits until the source has been read, or all is written.
KM_INL void bulk_load(void* to, const void* from, u32 bytes, u64* word) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(word))
               : "memory");
}
KM_INL void bulk_store(void* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
KM_INL void bulk_stores_read() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// The same for the groups before this one, which may go on.
KM_INL void bulk_stores_before_read() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}
KM_INL void bulk_stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Orders writes of threads to shared memory before what the copy engine does next: by each of them, before they meet.
KM_INL void seen_by_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace km
