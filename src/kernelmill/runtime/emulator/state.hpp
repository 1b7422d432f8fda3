// state.hpp - what the runtime knows of a block and its threads; no rules.
#pragma once
#include "fibre.hpp"
#include "thread.hpp"

namespace km_emu {

enum State : u8 { ready, at_barrier, in_warp_operation, at_grid_sync, at_transaction, at_step, done, state_count };

constexpr u32 nobody = ~0u;
// 0 is the block's, 1 to 15 have names, the others are those of tiles of several warps.
constexpr int barrier_count = 48, warp_lanes = 32, most_threads = 1024;

struct alignas(64) ThreadState {
  uint3 index;
  u32 rank;
  void* pointer;  // its stack, while it waits
  Fibre* fibre;
  State state;
  i32 result;  // of the barrier that it waited at
  u32 mask;    // of the warp operation that it waits in, or of the lanes that went on with it
  u32 next;    // in the list of those that wait for the same thing
  const void *caller, *address;
  u32 gave_way;  // how often in a row, while it spins
};

struct Group {
  u32 mask, arrived;
  WarpFunction function;
  const void* caller;
};
struct Warp {
  u64 value[warp_lanes], result[warp_lanes];
  i32 extra[warp_lanes];
  Group groups[warp_lanes];
  i32 group_count;
  u32 present, exited, stepping;  // lanes: those there are, those that have ended, those that wait for the others' step
};

struct Barrier {
  i32 arrived, wanted, accumulated;
  u32 first, last, leader;
  const void* caller;
};

// Threads that can go on, first in, first out; `capacity` is a power of two.
struct Ring {
  u32* items;
  u32 mask, head, count;
  void push(u32 x) { items[(head + count++) & mask] = x; }
  u32 pop() {
    const u32 x = items[head++ & mask];
    count--;
    return x;
  }
  u32 pop_at(u32 i) {
    const u32 at = (head + i) & mask, x = items[at];
    items[at] = items[head & mask];
    head++, count--;
    return x;
  }
};

struct Block {
  Launch* launch;
  const Body* body;
  u32 count, started, finished, spins, waiting_for_grid, transaction_waiters, stepping;
  u64 progress;  // barriers passed, threads finished, phases, stores that others may wait for
  bool slow, at_grid, abandoned;
  i32 order;
  i64 number;
  uint3 index;
  ThreadState* threads;
  Warp* warps;
  u32 warp_count;
  Barrier barriers[barrier_count];
  Ring runnable;
  u32* sequence;  // the order of starting, where it is not the plain one
  bool permuted;
  Fibre *idle, *running;
  Fibre* fibres;
  u32 fibre_count;
  char *stacks, *dynamic;
  usize stack_bytes, dynamic_bytes;
  void* main_pointer;
  char* local;  // the thread-local variables of the kernel's module, while another block runs
  Place place;
  u64 random;
  Block* next;    // in the list of spare blocks
  void* watched;  // what the sanitizer knows of it

  u32 pick(u32 below) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return (u32)((random >> 11) % below);
  }
};

// The block that runs on this OS thread.
inline __thread Block* current __attribute__((tls_model("initial-exec")));

// Ends the launch with a text, to which the place of the running thread is added; `caller` is where the kernel was.
[[noreturn]] inline void fail(i32 status, const void* caller, const char* format, ...);

}  // namespace km_emu
