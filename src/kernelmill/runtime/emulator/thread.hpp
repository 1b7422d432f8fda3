// thread.hpp - where a CUDA thread is, and how a kernel is started: what kernels and the runtime (runtime.cpp) agree on.
// What threads do together is in warp.hpp.
#pragma once
#include "vectors.hpp"

// Thin wrappers must vanish: the address that the runtime is called from is then in the kernel.
#define KM_EMU_INLINE inline __attribute__((always_inline))
#define KM_EMU_EXPORT extern "C" __attribute__((visibility("default")))

namespace km_emu {

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __INT32_TYPE__ i32;
typedef __UINT32_TYPE__ u32;
typedef __INT64_TYPE__ i64;
typedef __UINT64_TYPE__ u64;
typedef __SIZE_TYPE__ usize;

// The "registers" of the CUDA thread that runs on an OS thread; refreshed whenever another thread takes its place.
struct Place {
  u32 rank;              // threadIdx as one number, x fastest; set where `slow` is
  u32 count;             // threads of the block
  bool slow;             // a thread has waited, or the order is not the plain one: the runtime names the next thread
  char* dynamic;         // dynamic shared memory, and its size
  u32 dynamic_bytes;
  u32 polls;             // how often a thread read what may be a flag, and where last
  const void* polled;
  volatile bool inside;  // in the kernel, not in what starts it
};

enum Order : i32 { in_order, reversed, shuffled };

// How threads and blocks take turns; `live` blocks share one OS thread where it is not 0.
struct Schedule {
  i32 order, threads;
  u64 seed;
  i64 live;
  double patience;  // seconds of spinning without progress
};

typedef void (*ParallelFor)(i64 tasks, int threads, void (*task)(void*, i64, i64, int), void* context);

// One launch, and what became of it.
struct Launch {
  uint3 grid, block;
  u32 shared;
  i32 cooperative;
  Schedule schedule;
  ParallelFor parallel_for;  // null: on the caller's thread alone
  i32 status;                // 0, or that of `Fault`
  char message[2000];
};
enum Fault : i32 { fine, trapped, failed_assertion, stuck, misused, unsupported };

// Computes the results of a warp operation for all its lanes at once.
typedef void (*WarpFunction)(const u64* values, u64* results, const i32* extra, u32 lanes);

// A kernel as the runtime sees it: `loop` runs threads one after another as long as `next` names one; `anchor` returns an
// address among the thread-local variables of the kernel's module, where `__shared__` lies.
struct Body {
  void (*loop)(void* closure);
  void* closure;
  void* (*anchor)();
};

}  // namespace km_emu

// Where the running thread is. Variables, not macros: host code may have its own of these names. To read what is `const` calls
// no sanitizer, and a kernel under one is a function of its own (device.hpp), so that it reads them anew for each thread.
#if defined(KM_EMU_SANITIZER) && !defined(KM_EMU_RUNTIME)
#define KM_EMU_CONST const
namespace km_emu {
struct Extent : uint3 {};  // what has no constructor is constant to the compiler; converts to dim3
}
#else
#define KM_EMU_CONST
namespace km_emu {
typedef dim3 Extent;
}
#endif
#define KM_EMU_VARIABLE(T, name, symbol) \
  extern KM_EMU_CONST __thread T name __asm__(symbol) __attribute__((tls_model("initial-exec")))
KM_EMU_VARIABLE(uint3, threadIdx, "km_emu_thread");
KM_EMU_VARIABLE(uint3, blockIdx, "km_emu_block");
KM_EMU_VARIABLE(km_emu::Extent, blockDim, "km_emu_threads");
KM_EMU_VARIABLE(km_emu::Extent, gridDim, "km_emu_blocks");
#undef KM_EMU_VARIABLE

extern "C" {
extern __thread km_emu::Place km_emu_here __attribute__((tls_model("initial-exec")));
void km_emu_launch(km_emu::Launch*, const km_emu::Body*);
km_emu::Launch* km_emu_defaults();  // what launches from host code start with
bool km_emu_next();
int km_emu_barrier(int id, int count, int mode, int test);  // modes: sync, and, or, count, arrive
km_emu::u64 km_emu_warp(km_emu::u32 mask, km_emu::u64 value, int extra, km_emu::WarpFunction);
void km_emu_yield();
void km_emu_poll(const void*);
km_emu::u32 km_emu_step();  // the lanes that went on together from here
km_emu::u32 km_emu_rank();
char* km_emu_dynamic();
void km_emu_progress();
void km_emu_fence(int scope);
void km_emu_grid_sync();
km_emu::u32 km_emu_to_shared(const void*);
void* km_emu_from_shared(km_emu::u32);
// Of mbarriers: init, arrive, arrive and expect, expect, invalidate.
void km_emu_transaction(km_emu::u64* word, int op, km_emu::u32 value);
bool km_emu_transaction_test(km_emu::u64* word, km_emu::u32 parity);
void km_emu_transaction_wait(km_emu::u64* word, km_emu::u32 parity);
void km_emu_bulk_copy(void* to, const void* from, km_emu::u32 bytes, km_emu::u64* word);
void km_emu_small_copy(void* to, const void* from, km_emu::u32 bytes, km_emu::u32 zeros);
// Groups of copies: 0 reading what bulk stores take, 1 bulk stores whole, 2 `cp.async`.
void km_emu_copies_commit(int kind);
void km_emu_copies_wait(int kind, km_emu::u32 pending);
void km_emu_fence_proxy(int what);  // 0 of mbarriers, 1 of shared memory, 2 of all memory
void km_emu_load_both(const void* from, km_emu::u64* words);
void km_emu_store_both(void* to, km_emu::u64 low, km_emu::u64 high);
[[noreturn]] void km_emu_trap(const char* what);
[[noreturn]] void km_emu_assert(const char* test, const char* file, unsigned line, const char* function);
}

namespace km_emu {

// The rank of the running thread, which `Place` holds only once a thread has waited.
KM_EMU_INLINE u32 rank_here() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

// Runs threads one after another on one stack, from the one whose place is set: a kernel that never waits is a plain loop.
// Its counters are registers, which are stored and not read again; as soon as a thread has waited, the runtime counts.
template <class F>
KM_EMU_INLINE void run_threads(F& mine) {
#ifdef KM_EMU_SANITIZER
  do mine();
  while (km_emu_next());
#else
  Place& here = km_emu_here;
  const dim3 size = blockDim;
  uint3 at = threadIdx;
  for (;;) {
    mine();
    if (__builtin_expect(here.slow, 0)) {
      if (!km_emu_next()) return;
      continue;
    }
    if (__builtin_expect(++at.x == size.x, 0)) {
      at.x = 0;
      if (++at.y == size.y) {
        at.y = 0;
        if (++at.z == size.z) return;
        threadIdx.z = at.z;
      }
      threadIdx.y = at.y;
    }
    threadIdx.x = at.x;
  }
#endif
}

// The threads of a block in a loop of plain counters, which a compiler can vectorise: for kernels whose threads have nothing to
// do with each other, in a form that is told where it is.
template <class F>
KM_EMU_INLINE void run_plain(const F& mine) {
  const uint3 block = blockIdx;
  const dim3 size = blockDim, grid = gridDim;
  for (u32 z = 0; z < size.z; z++)
    for (u32 y = 0; y < size.y; y++)
      for (u32 x = 0; x < size.x; x++) mine(uint3{x, y, z}, block, size, grid);
}

inline void* anchor() {
  static thread_local u64 place;
  return &place;
}

struct NoPlainForm {};
template <class F, bool copied> struct Own { typedef F type; };
template <class F> struct Own<F, false> { typedef F& type; };

// Starts a kernel by a closure that is what one thread does; `P` is its plain form, if it has one.
template <class F, class P = NoPlainForm>
void start(Launch& launch, F call, P plain = P()) {
  struct Both {
    F call;
    P plain;
  } both = {call, plain};
  Body body;
  body.closure = &both;
  body.anchor = anchor;
  body.loop = [](void* closure) {
#if !defined(KM_EMU_SPIN) && !defined(KM_EMU_SANITIZER)
    if constexpr (!__is_same(P, NoPlainForm)) {
      if (!km_emu_here.slow) {
        const P mine(((Both*)closure)->plain);
        return run_plain(mine);
      }
    }
#endif
    // A copy that nothing can alias, so that arguments stay in registers: unless copies call functions of the host.
    typename Own<F, __has_trivial_copy(F) && __has_trivial_destructor(F)>::type mine(((Both*)closure)->call);
#ifdef KM_EMU_SPIN
    // The text says `volatile`, so it may spin on plain memory: it gives way now and then, but only inside the kernel.
    auto watched = [&mine] {
      km_emu_here.inside = true;
      mine();
      km_emu_here.inside = false;
    };
    run_threads(watched);
#else
    run_threads(mine);
#endif
  };
  km_emu_launch(&launch, &body);
}

// A load, or an atomic that changed nothing, may be a spin: give way when the address repeats, or every eighth time.
#ifdef KM_EMU_SANITIZER
KM_EMU_INLINE void poll(const void* address) { km_emu_poll(address); }
#else
inline void poll(const void* address) {
  Place& here = km_emu_here;
  if (here.polled == address || ++here.polls >= 8) {
    here.polls = 0;
    km_emu_yield();
  }
  km_emu_here.polled = address;
}
#endif

// Whether what is read or written by `array[...]` is `volatile`.
template <class T> struct is_volatile { static constexpr bool value = false; };
template <class T> struct is_volatile<volatile T> { static constexpr bool value = true; };
template <class T> struct is_volatile<const volatile T> { static constexpr bool value = true; };
template <class T> struct has_volatile { static constexpr bool value = false; };
template <class T> struct has_volatile<T&> : has_volatile<T> {};
template <class T> struct has_volatile<T* const> : has_volatile<T*> {};
template <class T> struct has_volatile<T*> : is_volatile<T> {};
template <class T, __SIZE_TYPE__ N> struct has_volatile<T (*)[N]> : has_volatile<T*> {};
template <class T, __SIZE_TYPE__ N> struct has_volatile<T[N]> : has_volatile<T*> {};
template <class T> struct Dynamic;
template <class T> struct has_volatile<Dynamic<T>> : is_volatile<T> {};

// Lanes of a warp access arrays through `volatile` in step: none goes on before all others have come to such an access too,
// wait for something else, or have ended.
template <class T>
KM_EMU_INLINE T& stepped(T& array) {
  if constexpr (has_volatile<T>::value) km_emu_step();
  return array;
}

// ---- kernels that Python calls --------------------------------------------------------------------------------------

// What a parameter is: kind, size, and for a pointer the same of what it points to.
enum Kind : i32 { opaque, boolean, signed_integer, unsigned_integer, floating, pointer };
struct Parameter {
  i32 kind, size, pointee, pointee_size, constant;
};
template <class T> struct kind_of { static constexpr i32 value = opaque; };
template <> struct kind_of<bool> { static constexpr i32 value = boolean; };
template <> struct kind_of<char> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<signed char> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<short> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<int> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<long> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<long long> { static constexpr i32 value = signed_integer; };
template <> struct kind_of<unsigned char> { static constexpr i32 value = unsigned_integer; };
template <> struct kind_of<unsigned short> { static constexpr i32 value = unsigned_integer; };
template <> struct kind_of<unsigned int> { static constexpr i32 value = unsigned_integer; };
template <> struct kind_of<unsigned long> { static constexpr i32 value = unsigned_integer; };
template <> struct kind_of<unsigned long long> { static constexpr i32 value = unsigned_integer; };
template <> struct kind_of<float> { static constexpr i32 value = floating; };
template <> struct kind_of<double> { static constexpr i32 value = floating; };

template <class T> struct bare { typedef T type; static constexpr i32 constant = 0; };
template <class T> struct bare<const T> { typedef T type; static constexpr i32 constant = 1; };
template <class T> struct bare<volatile T> { typedef T type; static constexpr i32 constant = 0; };
template <class T> struct bare<const volatile T> { typedef T type; static constexpr i32 constant = 1; };
template <class T> struct size_of { static constexpr i32 value = (i32)sizeof(T); };
template <> struct size_of<void> { static constexpr i32 value = 0; };

template <class T> struct described {
  typedef typename bare<T>::type type;
  static constexpr Parameter value = {kind_of<type>::value, (i32)sizeof(T), 0, 0, 0};
};
template <class T> struct described<T*> {
  typedef typename bare<T>::type type;
  static constexpr Parameter value = {pointer, 8, kind_of<type>::value, size_of<type>::value, bare<T>::constant};
};

// `plain` is the kernel in its plain form, or null.
template <auto kernel, auto plain = nullptr> struct Entry;
template <class... P, void (*kernel)(P...), auto plain>
struct Entry<kernel, plain> {
  static constexpr int count = (int)sizeof...(P);
  static constexpr Parameter parameters[count + 1] = {described<typename bare<P>::type>::value..., {0, 0, 0, 0, 0}};
  template <int... I> struct Indices {};
  template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
  template <int... I> struct Count<0, I...> { typedef Indices<I...> type; };
  template <int... I>
  static void run(Launch* launch, void** arguments, Indices<I...>) {
    run_with(launch, *(typename bare<P>::type*)arguments[I]...);
  }
  static void run_with(Launch* launch, const P&... values) {
    auto call = [values...]() { kernel(values...); };
    if constexpr (__is_same(decltype(plain), decltype(nullptr))) {
      start(*launch, call);
    } else {
      start(*launch, call, [values...](const uint3& thread, const uint3& block, const dim3& size, const dim3& grid) {
        plain(thread, block, size, grid, values...);
      });
    }
  }
  static void run(Launch* launch, void** arguments) { run(launch, arguments, typename Count<count>::type()); }
};

}  // namespace km_emu

#define KM_EMU_KERNEL(number, ...)  /* a kernel, and its plain form if it has one */                     \
  KM_EMU_EXPORT void km_emu_kernel_##number(km_emu::Launch* launch, void** arguments) {                  \
    km_emu::Entry<__VA_ARGS__>::run(launch, arguments);                                                  \
  }                                                                                                      \
  KM_EMU_EXPORT const km_emu::Parameter* km_emu_parameters_##number(int* count) {                        \
    *count = km_emu::Entry<__VA_ARGS__>::count;                                                          \
    return km_emu::Entry<__VA_ARGS__>::parameters;                                                       \
  }

#ifdef KM_EMU_SANITIZER  // by value from the runtime: to read them is no access of the kernel
#define KM_EMU_RANK (km_emu_rank())
#define KM_EMU_DYNAMIC (km_emu_dynamic())
#else
#define KM_EMU_RANK (km_emu::rank_here())
#define KM_EMU_DYNAMIC (km_emu_here.dynamic)
#endif
#define KM_EMU_LANE ((int)(KM_EMU_RANK & 31))
constexpr int warpSize = 32;
