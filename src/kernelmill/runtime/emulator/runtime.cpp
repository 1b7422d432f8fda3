// runtime.cpp - the emulator's runtime, compiled once: what thread.hpp declares, on fibres. It runs kernels that are
// compiled elsewhere, and knows nothing of them but their loop over threads.
#include <stddef.h>
#include <stdint.h>

#define KM_EMU_RUNTIME
#include "blocks.hpp"

using namespace km_emu;

#ifdef KM_EMU_SANITIZER
#include "instrumented.hpp"
#endif

#define KM_EMU_API extern "C" __attribute__((visibility("default")))

// The definitions say again how they are reached: by an offset, not by a call of the loader.
#define KM_EMU_DEFINE __attribute__((visibility("default"), tls_model("initial-exec"))) __thread
extern "C" {
KM_EMU_DEFINE Place km_emu_here = {};
}
KM_EMU_DEFINE uint3 threadIdx = {0, 0, 0};
KM_EMU_DEFINE uint3 blockIdx = {0, 0, 0};
KM_EMU_DEFINE dim3 blockDim = dim3(1, 1, 1);
KM_EMU_DEFINE dim3 gridDim = dim3(1, 1, 1);

namespace {

Launch defaults = {{1, 1, 1}, {1, 1, 1}, 0, 0, {in_order, 0, 1, 0, 10.0}, nullptr, fine, {}};

// Where shared memory is seen by instructions that take 32-bit addresses.
constexpr u32 static_window = 0x1000, dynamic_window = 0x1000000;

bool is_valid(Launch* launch) {
  const u64 threads = (u64)launch->block.x * launch->block.y * launch->block.z;
  const u64 blocks = (u64)launch->grid.x * launch->grid.y * launch->grid.z;
  char text[200];
  if (threads < 1 || threads > most_threads) {
    snprintf(text, sizeof text, "a block of %llu threads; accepted: 1 to %d", (unsigned long long)threads, most_threads);
    record(launch, misused, text);
    return false;
  }
  if (blocks < 1) record(launch, misused, "a grid of no blocks");
  return blocks >= 1;
}

// Threads of the host take turns where the sanitizer looks on: what it knows is one.
struct Turn {
  static inline i32 taken;
  const bool waits = checks::looks_on && !current;
  Turn() {
    if (waits) lock(&taken);
  }
  ~Turn() {
    if (waits) unlock(&taken);
  }
};

}  // namespace

KM_EMU_API Launch* km_emu_defaults() { return &defaults; }

KM_EMU_API void km_emu_launch(Launch* launch, const Body* body) {
  launch->status = fine;
  if (current) fail(unsupported, KM_EMU_CALLER, "a kernel is launched by a kernel");
  if (!is_valid(launch)) return;
  watch_divisions();
  const Turn turn;
  checks::begin_launch(launch, body);
  Work work = {launch, body, (i64)launch->grid.x * launch->grid.y * launch->grid.z, 0, 0, 0};
  const i64 asked = launch->cooperative ? work.blocks : launch->schedule.live;
  if (asked > 0) {
    work.workers = 1;
    run_crowd(&work, asked < work.blocks ? asked : work.blocks);
  } else {
    i64 threads = launch->schedule.threads > 0 ? launch->schedule.threads : most_at_once;
    if (threads > work.blocks) threads = work.blocks;
    if (threads > 1 && launch->parallel_for && !checks::looks_on) {
      launch->parallel_for(
          threads, (int)threads,
          [](void* given, i64 first, i64 last, int) {
            for (; first < last; first++) run_tickets((Work*)given);
          },
          &work);
    } else {
      run_tickets(&work);
    }
  }
  fflush(stdout);
}

KM_EMU_API bool km_emu_next() {
  Block* b = current;
  if (!km_emu_here.slow) {  // only where the sanitizer looks on: nobody has waited yet
    const u32 rank = km_emu_here.rank + 1;
    if (rank == b->count) return false;
    place(b, rank);
    return true;
  }
  finish(b, km_emu_here.rank);
  if (b->started >= b->count) return false;
  const u32 rank = start_next(b);
  place(b, rank);
  return true;
}

KM_EMU_API int km_emu_barrier(int id, int count, int mode, int test) {
  return arrive(entered(), id, count, mode, test, KM_EMU_CALLER);
}
KM_EMU_API u64 km_emu_warp(u32 mask, u64 value, int extra, WarpFunction function) {
  return join(entered(), mask, value, extra, function, KM_EMU_CALLER);
}
KM_EMU_API void km_emu_poll(const void* address) { poll_from(address, KM_EMU_CALLER); }
KM_EMU_API u32 km_emu_step() { return current ? step(entered(), KM_EMU_CALLER) : 1; }
KM_EMU_API bool km_emu_on_device() { return current != nullptr; }
KM_EMU_API u32 km_emu_rank() { return rank_here(); }
KM_EMU_API char* km_emu_dynamic() { return km_emu_here.dynamic; }
KM_EMU_API void km_emu_yield() { yield_from(KM_EMU_CALLER); }
KM_EMU_API void km_emu_progress() {
  if (Block* b = current) b->spins = 0, b->progress++;
}
KM_EMU_API void km_emu_fence(int) { checks::fence(); }
KM_EMU_API void km_emu_grid_sync() {
  Block* b = entered();
  if (!b->launch->cooperative) fail(misused, KM_EMU_CALLER, "a grid barrier in a launch that is not cooperative");
  ThreadState& thread = b->threads[km_emu_here.rank];
  thread.state = at_grid_sync;
  thread.caller = KM_EMU_CALLER;
  b->waiting_for_grid++;
  b->spins = 0;
  wait(b, thread);
}

KM_EMU_API void km_emu_transaction(u64* word, int op, u32 value) {
  entered();
  transact(word, op, value, KM_EMU_CALLER);
}
KM_EMU_API bool km_emu_transaction_test(u64* word, u32 parity) {
  const bool done = ((Transaction*)word)->phase != (parity & 1);
  checks::transaction_used(word, KM_EMU_CALLER, false);
  if (done) checks::transaction_seen(word);
  return done;
}
KM_EMU_API void km_emu_transaction_wait(u64* word, u32 parity) {
  checks::transaction_used(word, KM_EMU_CALLER, false);
  while (((Transaction*)word)->phase == (parity & 1)) {
    Block* b = entered();
    ThreadState& thread = b->threads[km_emu_here.rank];
    thread.state = at_transaction;
    thread.address = word;
    thread.caller = KM_EMU_CALLER;
    thread.next = b->transaction_waiters;
    b->transaction_waiters = thread.rank;
    wait(b, thread);
  }
  checks::transaction_seen(word);
}
// The copy is made at once; the sanitizer knows who waited for it.
KM_EMU_API void km_emu_bulk_copy(void* to, const void* from, u32 bytes, u64* word) {
  entered();
  if (((usize)to | (usize)from | bytes) & 15)
    fail(misused, KM_EMU_CALLER, "a bulk copy of %u bytes from %p to %p: all must be multiples of 16", bytes, from, to);
  checks::copied(to, from, bytes, word, KM_EMU_CALLER);
  __builtin_memcpy(to, from, bytes);
  if (!word) return km_emu_progress();
  ((Transaction*)word)->bytes -= bytes;
  turn_phase(word);
}
// `cp.async` of one thread; `zeros` bytes follow those that are copied.
KM_EMU_API void km_emu_small_copy(void* to, const void* from, u32 bytes, u32 zeros) {
  entered();
  checks::copied_small(to, from, bytes, zeros, KM_EMU_CALLER);
  __builtin_memcpy(to, from, bytes);
  __builtin_memset((char*)to + bytes, 0, zeros);
}
KM_EMU_API void km_emu_copies_commit(int kind) { checks::copies_committed(kind); }
KM_EMU_API void km_emu_copies_wait(int kind, u32 pending) { checks::copies_awaited(kind, pending); }
// What copies see: 0 of mbarriers that were made, 1 of shared memory, 2 of all.
KM_EMU_API void km_emu_fence_proxy(int what) { what ? checks::proxies_fenced(what > 1) : checks::mbarriers_fenced(); }

KM_EMU_API u32 km_emu_to_shared(const void* address) {
  Block* b = current;
  if (!b) not_on_device();
  const usize offset = (usize)((const char*)address - b->dynamic);
  if (offset <= b->dynamic_bytes) return dynamic_window + (u32)offset;
  const Image image = image_of(b->body);
  const usize local = (usize)((const char*)address - image.low);
  if (local >= image.size) fail(misused, KM_EMU_CALLER, "the address %p is not in shared memory", address);
  return static_window + (u32)local;
}
KM_EMU_API void* km_emu_from_shared(u32 address) {
  Block* b = current;
  if (address >= dynamic_window) return b->dynamic + (address - dynamic_window);
  static __thread const Body* known;
  static __thread char* low;
  if (known != b->body) low = image_of(b->body).low, known = b->body;
  return low + (address - static_window);
}

// Sixteen bytes as one: under a lock where the processor has no such access.
#if defined(__x86_64__)
static bool exchange_both(void* at, u64& low, u64& high, u64 new_low, u64 new_high) {
  bool done;
  __asm__ volatile("lock cmpxchg16b %2"
                   : "+a"(low), "+d"(high), "+m"(*(unsigned __int128*)at), "=@ccz"(done)
                   : "b"(new_low), "c"(new_high));
  return done;
}
#else
static i32 both_lock;
static bool exchange_both(void* at, u64& low, u64& high, u64 new_low, u64 new_high) {
  u64* words = (u64*)at;
  lock(&both_lock);
  const bool done = words[0] == low && words[1] == high;
  if (done) words[0] = new_low, words[1] = new_high;
  else low = words[0], high = words[1];
  unlock(&both_lock);
  return done;
}
#endif
KM_EMU_API void km_emu_load_both(const void* from, u64* words) {
  checks::loaded_both(from, KM_EMU_CALLER);
  words[0] = words[1] = 0;
  exchange_both((void*)from, words[0], words[1], 0, 0);  // writes back what is there
  poll_from(from, KM_EMU_CALLER);
}
KM_EMU_API void km_emu_store_both(void* to, u64 low, u64 high) {
  checks::stored_both(to, KM_EMU_CALLER);
  u64 old_low = 0, old_high = 0;
  while (!exchange_both(to, old_low, old_high, low, high)) {
  }
  km_emu_progress();
}

// Called at every branch of a text that says `volatile`.
KM_EMU_API void __sanitizer_cov_trace_pc() {
  static __thread u32 calls;
  if (++calls & 1023 || !current || !km_emu_here.inside) return;
  km_emu_here.inside = false;
  yield_from(KM_EMU_CALLER);
  km_emu_here.inside = true;
}

// Arrays that host code allocates and writes; only the sanitizer keeps a list of them.
KM_EMU_API void km_emu_register(void* at, usize bytes, const char* name) {
  const Turn turn;
  checks::allocated(at, bytes, name);
}
KM_EMU_API void km_emu_unregister(void* at) {
  const Turn turn;
  checks::freed(at);
}
KM_EMU_API void km_emu_written(const void* at, usize bytes) {
  const Turn turn;
  checks::written(at, bytes);
}

KM_EMU_API long long km_emu_clock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000000000ll + t.tv_nsec;
}
// What programs call `clock`: that of the device in kernels, that of the C library elsewhere.
KM_EMU_API clock_t __wrap_clock() { return current ? (clock_t)km_emu_clock() : clock(); }
// What a program finds in memory that it never wrote is what a fresh process has there: zeros.
#ifndef KM_EMU_SANITIZER
KM_EMU_API void* __wrap_malloc(usize n) { return calloc(1, n); }
#endif
KM_EMU_API unsigned long long km_emu_nanoseconds() { return (unsigned long long)km_emu_clock(); }

// The flag that sums of several words hand on, from one instruction of PTX to the next.
KM_EMU_API u32 km_emu_carry(int set) {
  static __thread u32 flag;
  if (set >= 0) flag = (u32)set;
  return flag;
}

KM_EMU_API void km_emu_trap(const char* what) {
  if (!current) not_on_device();
  fail(trapped, KM_EMU_CALLER, "%s", what);
}
KM_EMU_API void km_emu_assert(const char* test, const char* file, unsigned line, const char* function) {
  if (!current) {
    fprintf(stderr, "%s:%u: %s: assertion `%s` failed\n", file, line, function, test);
    abort();
  }
  fail(failed_assertion, KM_EMU_CALLER, "%s:%u: %s: assertion `%s` failed", file, line, function, test);
}
