// waits.hpp - what threads of a block wait for: barriers, warp operations, grid barriers and mbarriers.
#pragma once
#include "scheduler.hpp"

namespace km_emu {

inline void release(Block* b, Barrier& barrier) {
  const i32 result = barrier.accumulated;
  if (b->order == reversed) {
    u32 back = nobody;
    for (u32 at = barrier.first; at != nobody;) {
      const u32 next = b->threads[at].next;
      b->threads[at].next = back;
      back = at;
      at = next;
    }
    barrier.first = back;
  }
  for (u32 at = barrier.first; at != nobody; at = b->threads[at].next) {
    b->threads[at].result = result;
    wake(b, at);
  }
  barrier.first = nobody;
  barrier.arrived = barrier.accumulated = 0;
  b->spins = 0;
  b->progress++;
}

// The last lane computes for all; the lanes that wait can go on.
inline void complete(Block* b, u32 number, int which, int self) {
  Warp& warp = b->warps[number];
  const Group group = warp.groups[which];
  const u32 lanes = group.mask & warp.present & ~warp.exited;
  checks::run(b, nobody);  // what is done for the kernel is none of its accesses
  const bool inside = km_emu_here.inside;
  km_emu_here.inside = false;  // the function is compiled with the kernel, and may call `__sanitizer_cov_trace_pc`
  group.function(warp.value, warp.result, warp.extra, lanes);
  km_emu_here.inside = inside;
  checks::run(b, self < 0 ? nobody : number * warp_lanes + (u32)self);
  checks::combined(b, number, group, lanes, warp.extra[__builtin_ctz(lanes)] >= 0);
  warp.groups[which] = warp.groups[--warp.group_count];
  const bool backwards = b->order == reversed;
  for (u32 left = lanes; left;) {
    const int lane = backwards ? 31 - __builtin_clz(left) : __builtin_ctz(left);
    left &= ~(1u << lane);
    if (lane != self) wake(b, number * warp_lanes + (u32)lane);
  }
}

// A thread has returned from the kernel; those that wait for it no longer do.
inline void finish(Block* b, u32 rank) {
  b->threads[rank].state = done;
  b->finished++;
  b->spins = 0;
  b->progress++;
  const u32 number = rank / warp_lanes;
  Warp& warp = b->warps[number];
  warp.exited |= 1u << (rank % warp_lanes);
  for (int i = 0; i < warp.group_count; i++) {
    const u32 lanes = warp.groups[i].mask & warp.present & ~warp.exited;
    if (lanes && (warp.groups[i].arrived & lanes) == lanes) complete(b, number, i--, -1);
  }
  release_steps(b, number);
  Barrier& barrier = b->barriers[0];
  if (barrier.arrived && !barrier.wanted && barrier.arrived == (i32)(b->count - b->finished)) {
    checks::released(b, 0, barrier.first, nobody);
    release(b, barrier);
  }
}

enum Mode { synchronise, conjunction, disjunction, counting, arrive_only };

inline int arrive(Block* b, int id, int count, int mode, int test, const void* caller) {
  const u32 rank = km_emu_here.rank;
  ThreadState& thread = b->threads[rank];
  Barrier& barrier = b->barriers[id];
  thread.caller = caller;
  if (!barrier.arrived) {
    barrier.wanted = count;
    barrier.caller = caller;
    barrier.leader = rank;
    barrier.accumulated = mode == conjunction;
  } else if (!count) {
    checks::diverged(b, barrier, caller);
  }
  checks::arrived(b, rank, id);
  if (mode == conjunction) barrier.accumulated &= test != 0;
  if (mode == disjunction) barrier.accumulated |= test != 0;
  if (mode == counting) barrier.accumulated += test != 0;
  if (++barrier.arrived == (count ? count : (i32)(b->count - b->finished))) {
    const i32 result = barrier.accumulated;
    checks::released(b, id, barrier.first, mode == arrive_only ? nobody : rank);
    release(b, barrier);
    return result;
  }
  if (mode == arrive_only) return 0;
  thread.state = at_barrier;
  thread.result = id;
  thread.next = nobody;
  if (barrier.first == nobody) barrier.first = rank;
  else b->threads[barrier.last].next = rank;
  barrier.last = rank;
  wait(b, thread);
  return thread.result;
}

inline u64 join(Block* b, u32 mask, u64 value, int extra, WarpFunction function, const void* caller) {
  const u32 rank = km_emu_here.rank, number = rank / warp_lanes, lane = rank % warp_lanes;
  Warp& warp = b->warps[number];
  ThreadState& thread = b->threads[rank];
  thread.caller = caller;
  thread.mask = mask;
  if (!(mask >> lane & 1))
    fail(misused, caller, "lane %u calls a warp operation with mask 0x%08x, which does not name it", lane, mask);
  const u32 lanes = mask & warp.present & ~warp.exited;
  warp.value[lane] = value;
  warp.extra[lane] = extra;
  int which = 0;
  while (which < warp.group_count && warp.groups[which].mask != mask) which++;
  if (which == warp.group_count) {
    warp.groups[warp.group_count++] = Group{mask, 0, function, caller};
  } else if (warp.groups[which].function != function) {
    fail(misused, caller, "lane %u is in another warp operation than the lanes that wait with the same mask 0x%08x", lane,
         mask);
  }
  warp.groups[which].arrived |= 1u << lane;
  if ((warp.groups[which].arrived & lanes) == lanes) {
    complete(b, number, which, (int)lane);
    return warp.result[lane];
  }
  thread.state = in_warp_operation;
  wait(b, thread);
  return warp.result[lane];
}

// ---- mbarriers ------------------------------------------------------------------------------------------------------

// The word in shared memory; `bytes` counts what copies have still to deliver.
struct Transaction {
  u64 expected : 20, pending : 20, phase : 1;
  i64 bytes : 23;
};
static_assert(sizeof(Transaction) == 8, "an mbarrier is one word");

inline void turn_phase(u64* word) {
  Transaction& t = *(Transaction*)word;
  if (t.pending || t.bytes) return;
  t.phase ^= 1;
  t.pending = t.expected;
  checks::transaction_turns(word);
  Block* b = current;
  for (u32* link = &b->transaction_waiters; *link != nobody;) {
    ThreadState& thread = b->threads[*link];
    if (thread.address == word) {
      *link = thread.next;
      wake(b, thread.rank);
    } else {
      link = &thread.next;
    }
  }
  b->spins = 0;
  b->progress++;
}

inline void transact(u64* word, int op, u32 value, const void* caller) {
  Transaction& t = *(Transaction*)word;
  if ((usize)word & 7) fail(misused, caller, "an mbarrier lies at %p, which is no multiple of 8", (void*)word);
  if (op == 0) {
    t.expected = t.pending = value;
    t.phase = 0, t.bytes = 0;
    checks::transaction_begins(word, caller);
  } else if (op == 4) {
    *word = 0;
  } else {
    checks::transaction_used(word, caller, false);
    if (op >= 2) t.bytes += value;
    if (op <= 2) {
      if (!t.pending)
        fail(misused, caller, "an mbarrier gets more arrivals than the %u it expects", (unsigned)t.expected);
      t.pending--;
      checks::transaction_arrives(word);
      turn_phase(word);
    }
  }
}

}  // namespace km_emu
