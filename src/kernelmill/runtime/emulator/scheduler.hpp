// scheduler.hpp - who runs next in a block, and how a block ends, early or not. What threads wait for is in waits.hpp.
//
// Every block begins on one stack that runs its threads one after another. Only when a thread waits does that stack become
// the thread's own; a fresh one then goes on with the next thread.
#pragma once
#include "faults.hpp"
#include "state.hpp"

#define KM_EMU_CALLER __builtin_return_address(0)

namespace km_emu {

// As much as a GPU gives a thread in local memory; an odd number of pages, so that tops do not share sets of caches. Only what
// is touched is there. Large frames touch each of their pages (-fstack-clash-protection): none steps over the guard below it.
constexpr usize stack_size = (512 << 10) + 4096;
constexpr u32 guarded_stacks = 2048;

inline void fibre_main();

inline Fibre* take_fibre(Block* b) {
  if (Fibre* idle = b->idle) {
    b->idle = idle->next;
    return idle;
  }
  char* low = b->stacks + stack_size * b->fibre_count;
  if (b->fibre_count < guarded_stacks) mprotect(low, 4096, PROT_NONE);
  Fibre* made = &b->fibres[b->fibre_count];
  // Tops are spread over the sets of the cache.
  made->pointer = first_pointer(low + 4096, low + stack_size - 64 - (b->fibre_count * 7 % 32) * 128, fibre_main);
  b->fibre_count++;
  return made;
}

inline void place(Block* b, u32 rank) {
  threadIdx = b->threads[rank].index;
  km_emu_here.rank = rank;
  km_emu_here.polled = nullptr;
  checks::run(b, rank);
}

// From here on the block has states of its threads: when the first one waits, or at once where the order is permuted.
inline void go_slow(Block* b, u32 started) {
  km_emu_here.slow = b->slow = true;
  b->started = started;
  b->finished = started ? started - 1 : 0;
  b->runnable.head = b->runnable.count = 0;
  b->waiting_for_grid = 0;
  b->transaction_waiters = nobody;
  b->stepping = 0;
  for (u32 i = 0; i < b->warp_count; i++) b->warps[i].group_count = 0, b->warps[i].exited = b->warps[i].stepping = 0;
  for (Barrier& barrier : b->barriers) barrier.arrived = barrier.accumulated = 0, barrier.first = nobody;
  for (u32 i = 0; i < b->count; i++) b->threads[i].state = ready, b->threads[i].gave_way = 0;
  for (u32 i = 0; i + 1 < started; i++) {
    b->threads[i].state = done;
    b->warps[i / warp_lanes].exited |= 1u << (i % warp_lanes);
  }
}

inline void note_waiting(Block* b) {
  if (__builtin_expect(km_emu_here.slow, 1)) return;
  km_emu_here.rank = rank_here();
  go_slow(b, km_emu_here.rank + 1);
}

inline Block* entered() {
  Block* b = current;
  if (__builtin_expect(!b, 0)) not_on_device();
  note_waiting(b);
  return b;
}

inline u32 start_next(Block* b) {
  const u32 rank = b->permuted ? b->sequence[b->started] : b->started;
  b->started++;
  return rank;
}

// Saves where we are and goes to a thread that has not started, to one that can run, or back to the main stack.
inline void schedule(Block* b, void** save) {
  const bool random = b->order == shuffled;
  if (b->started < b->count && !(random && b->runnable.count && b->pick(4) == 0)) {
    Fibre* fibre = take_fibre(b);
    const u32 rank = start_next(b);
    km_emu_here.inside = false;  // what begins a thread is not the kernel yet
    b->running = fibre;
    if (b->slow || checks::looks_on) {
      place(b, rank);
    } else {
      threadIdx = uint3{0, 0, 0};
    }
    switch_to(save, fibre->pointer);
    return;
  }
  if (b->runnable.count && b->spins <= 2 * b->count + 64) {
    const u32 rank = random ? b->runnable.pop_at(b->pick(b->runnable.count)) : b->runnable.pop();
    ThreadState& thread = b->threads[rank];
    place(b, rank);
    b->running = thread.fibre;
    if (save != &thread.pointer) switch_to(save, thread.pointer);
    return;
  }
  checks::run(b, nobody);
  if (save != &b->main_pointer) switch_to(save, b->main_pointer);
}

// No progress: a loop that looks back votes while it spins.
inline void wake(Block* b, u32 rank) {
  b->threads[rank].state = ready;
  b->threads[rank].gave_way = 0;
  b->runnable.push(rank);
}

// Lanes that wait for the others' step go on when no other lane runs. One that gives way once may do so between its step and
// its access; one that does so again and again waits for something.
inline void release_steps(Block* b, u32 number) {
  constexpr u32 spins = 3;
  if (!b->stepping) return;
  Warp& warp = b->warps[number];
  for (u32 left = warp.present & ~warp.exited & ~warp.stepping; left; left &= left - 1) {
    const ThreadState& other = b->threads[number * warp_lanes + (u32)__builtin_ctz(left)];
    if (other.state == ready && other.gave_way < spins) return;
  }
  const bool backwards = b->order == reversed;
  ThreadState* threads = b->threads + number * warp_lanes;
  const u32 lanes = warp.stepping;
  warp.stepping = 0;
  b->stepping -= (u32)__builtin_popcount(lanes);
  for (u32 left = lanes, same; left; left &= ~same) {
    const void* caller = threads[__builtin_ctz(left)].caller;
    same = 0;
    for (u32 rest = left; rest; rest &= rest - 1)
      if (threads[__builtin_ctz(rest)].caller == caller) same |= rest & -rest;
    for (u32 rest = same; rest; rest &= rest - 1) threads[__builtin_ctz(rest)].mask = same;
  }
  for (u32 left = lanes; left;) {
    const int lane = backwards ? 31 - __builtin_clz(left) : __builtin_ctz(left);
    left &= ~(1u << lane);
    wake(b, number * warp_lanes + (u32)lane);
  }
}

inline void wait(Block* b, ThreadState& thread) {
  release_steps(b, thread.rank / warp_lanes);
  thread.fibre = b->running;
  schedule(b, &thread.pointer);
  km_emu_here.inside = true;  // it is back in the kernel
}

inline u32 step(Block* b, const void* caller) {
  ThreadState& thread = b->threads[km_emu_here.rank];
  thread.state = at_step;
  thread.caller = caller;
  b->stepping++;
  b->warps[thread.rank / warp_lanes].stepping |= 1u << (thread.rank % warp_lanes);
  wait(b, thread);
  return thread.mask;
}

inline void fibre_main() {
  for (;;) {
    Block* b = current;
    b->body->loop(b->body->closure);
    if (!b->slow) b->finished = b->started = b->count;
    Fibre* fibre = b->running;
    fibre->next = b->idle;
    b->idle = fibre;
    schedule(b, &fibre->pointer);
  }
}

// Leaves the block as it is: its stacks are dropped, destructors do not run.
[[noreturn]] inline void abandon() {
  Block* b = current;
  b->abandoned = true;
  checks::run(b, nobody);
  void* dropped;
  switch_to(&dropped, b->main_pointer);
  __builtin_unreachable();
}

inline void yield_from(const void* caller) {
  Block* b = current;
  if (!b) return;
  note_waiting(b);
  ThreadState& thread = b->threads[km_emu_here.rank];
  thread.state = ready;
  thread.caller = caller;
  thread.gave_way++;
  b->spins++;
  b->runnable.push(thread.rank);
  wait(b, thread);
}

// A load, or an atomic that changed nothing: see `poll` in thread.hpp.
inline void poll_from(const void* address, const void* caller) {
  if (!current) return;
  checks::polled(address);
  if (km_emu_here.polled == address || ++km_emu_here.polls >= 8) {
    km_emu_here.polls = 0;
    yield_from(caller);
  }
  km_emu_here.polled = address;
}

}  // namespace km_emu
