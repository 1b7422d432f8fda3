// sanitizer.hpp - the runtime that looks on: what barriers, warp operations, copies and launches mean for orders of accesses.
// One OS thread. Accesses themselves are in accesses.hpp.
#pragma once
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include "accesses.hpp"

namespace km_emu::checks {

// ---- what the runtime tells -----------------------------------------------------------------------------------------

inline BlockRecord& own(Block* b) { return *(BlockRecord*)b->watched; }
inline void run(Block* b, u32 rank) {
  self = nullptr;
  if (!b || rank == nobody) return;
  BlockRecord& mine = own(b);
  self = &mine.records[rank];
  self->thread = mine.first_thread + rank, self->block_number = (u32)b->number;
}

inline void arrived(Block* b, u32 rank, int id) {
  Record& k = own(b).records[rank];
  own(b).met = true;
  take_pending(k);
  own(b).arrivals[id].push_back({rank, k.clock});
}
// Everybody at a barrier goes on; `self_rank` is the last to come, or nobody.
inline void released(Block* b, int id, u32 first_waiting, u32 self_rank) {
  BlockRecord& mine = own(b);
  auto& from = mine.arrivals[id];
  if (id == 0)
    for (u32 i = 0; i < b->count; i++)
      if (b->threads[i].state == done) from.push_back({i, mine.records[i].clock});
  if (from.empty()) return;
  std::vector<u32> to;
  for (u32 at = first_waiting; at != nobody; at = b->threads[at].next) to.push_back(at);
  if (self_rank != nobody) to.push_back(self_rank);
  meet(mine, from, to);
  from.clear();
}
inline void diverged(Block* b, const Barrier& barrier, const void* caller) {
  if (barrier.caller == caller || !is_new(offset_of(caller), offset_of(barrier.caller))) return;
  const Other other = {offset_of(barrier.caller), (u32)b->number, barrier.leader};
  write_line("barrier divergence", offset_of(caller), "", 0, 0, 0, other, "threads of a block wait at different barriers");
}
inline void combined(Block* b, u32 number, const Group& group, u32 lanes, bool permutes) {
  Warp& warp = b->warps[number];
  for (u32 left = permutes ? lanes : 0; left; left &= left - 1) {
    const u32 lane = (u32)__builtin_ctz(left);
    if (lanes >> warp.extra[lane] & 1) continue;
    const void* caller = b->threads[number * warp_lanes + lane].caller;
    if (!is_new(offset_of(caller), 1)) break;
    char text[160];
    snprintf(text, sizeof text, "lane %u reads lane %d, which takes no part (mask 0x%08x, taking part 0x%08x)", lane,
             warp.extra[lane], group.mask, lanes);
    write_line("mask mismatch", offset_of(caller), "", 0, 0, 0, Other(), text);
    break;
  }
  own(b).met = true;
  meet_in_warp(own(b), number, lanes);
}
inline void grid_opened(Block* const* live, i64 count) {
  KnowledgeRef all = std::make_shared<Knowledge>();
  for (i64 i = 0; i < count; i++) {
    BlockRecord& mine = own(live[i]);
    mine.met = true;
    std::vector<std::pair<u32, u32>> from;
    std::vector<u32> to;
    for (Record& k : mine.records) {
      take_pending(k);
      from.push_back({k.rank, k.clock});
      to.push_back(k.rank);
    }
    meet(mine, from, to);
    if (mine.records[0].others) join(*all, *mine.records[0].others);
    Knowledge one;
    one[mine.records[0].block_number] = mine.records[0].row;
    join(*all, one);
  }
  for (i64 i = 0; i < count; i++)
    for (Record& k : own(live[i]).records) k.others = all;
}

// An mbarrier publishes at its word what arrivals knew, and one byte further that of the phase that is complete. Copies that
// count on it are those of an agent of its own, whose clock is the number of the phase.
inline void transaction_begins(u64* word, const void* caller) {
  if (!self) return;
  published_at(word) = nullptr;
  MadeBarrier& made = self->own->mbarriers[word];
  self->own->met = true;
  made.made = {self->thread, self->clock, offset_of(caller)};
  made.fenced = false;
}
// Every use comes after what made it; copies know of that by a fence.
inline void transaction_used(u64* word, const void* caller, bool by_copy) {
  if (!self) return;
  const auto it = self->own->mbarriers.find(word);
  Region* r = region_at(*self, (char*)word);
  if (it == self->own->mbarriers.end() || !r) return;
  const MadeBarrier& found = it->second;
  const char* text = nullptr;
  if (!is_before(*self, found.made, true)) text = "use of an mbarrier, not in order with what made it";
  else if (by_copy && !found.fenced && !is_shown(*self, found.made, true))
    text = "a bulk copy counts on an mbarrier: no fence is between it and what made the mbarrier";
  if (text) race(*r, (char*)word, 8, caller, found.made, text);
}
inline void mbarriers_fenced() {
  if (!self) return;
  for (auto& [word, found] : self->own->mbarriers)
    if (found.made.thread == self->thread) found.fenced = true;
}
inline void transaction_arrives(u64* word) {
  if (!self) return;
  published_at(word) = joined(published_at(word), snapshot(*self));
  self->clock++;
  self->own->met = true;
  writes++;
}
inline void transaction_turns(u64* word) {
  if (!self) return;
  KnowledgeRef known = published_at(word);
  MadeBarrier& found = self->own->mbarriers[word];
  self->own->met = true;
  if (found.agent >= 0) {
    Agent& agent = agent_of(*self, found.agent);
    known = known ? std::make_shared<Knowledge>(*known) : std::make_shared<Knowledge>();
    RowRef& row = (*known)[self->block_number];
    row = row ? std::make_shared<Row>(*row) : std::make_shared<Row>(self->block->count, 0);
    know(*row, agent.place, agent.clock++);
  }
  published_at((char*)word + 1) = known;
  published_at(word) = nullptr;
}
inline void transaction_seen(u64* word) {
  if (!self) return;
  self->own->met = true;
  acquire(*self, published_at((char*)word + 1));
}
// A bulk copy that counts on an mbarrier, or is one of a group of its thread.
inline void copied(void* to, const void* from, u32 bytes, u64* word, const void* caller) {
  if (!self) return;
  if (word) transaction_used(word, caller, true);
  copier = &agent_of(*self, word ? self->own->mbarriers[word].agent : self->agents[store_reads]);
  access_range(from, bytes, reading | unchecked | copying | by_proxy, caller);
  if (!word) copier = &agent_of(*self, self->agents[store_writes]);
  access_range(to, bytes, writing | copying | by_proxy, caller);
}
// The copy of one thread, `cp.async`, which sees memory as the thread does.
inline void copied_small(void* to, const void* from, u32 bytes, u32 zeros, const void* caller) {
  if (!self) return;
  copier = &agent_of(*self, self->agents[small_copies]);
  if (bytes) access_range(from, bytes, reading | copying, caller);
  access_range(to, bytes + zeros, writing | copying, caller);
}
// The groups of copies of a thread: `pending` of them may still run. The number of a group is the clock of its agent.
inline void copies_committed(int kind) {
  if (self && self->agents[kind] >= 0) agent_of(*self, self->agents[kind]).clock++;
}
inline void copies_awaited(int kind, u32 pending) {
  if (!self || self->agents[kind] < 0) return;
  const Agent& agent = agent_of(*self, self->agents[kind]);
  if (agent.clock > pending + 1) know(*self, agent.place, agent.clock - 1 - pending);
}
inline void proxies_fenced(bool all) {
  if (!self) return;
  self->own->met = true;
  fence_proxies(*self, all);
}
inline void loaded_both(const void* p, const void* caller) {
  if (!self) return;
  access(p, 16, atomically, caller);
  synchronise(p, true, false, true, false);
}
inline void stored_both(void* p, const void* caller) {
  if (!self) return;
  access(p, 16, writing | atomically, caller);
  synchronise(p, false, true, false, true);
}

// A read of what may be a flag: it is news where the thread has not read it since something was written. Two that share a slot
// are news for ever; then the patience of the schedule ends the launch.
inline void polled(const void* p) {
  struct Slot {
    const void* address;
    u32 thread;
    u64 writes;
  };
  constexpr usize slots = 1 << 16;
  static Slot* seen = (Slot*)zero_pages(slots * sizeof(Slot));
  if (!self) return;
  const usize key = ((usize)p * 0x9e3779b97f4a7c15ull) ^ ((usize)self->thread * 0xc2b2ae3d27d4eb4full);
  Slot& slot = seen[key >> 40 & (slots - 1)];
  if (slot.address == p && slot.thread == self->thread && slot.writes == writes) return;
  slot = {p, self->thread, writes};
  news++;
}

// Nothing was written, or read for the first time, for many rounds in which all only spun.
inline bool is_endless() {
  static u64 before, news_before;
  static int rounds;
  if (writes != before || news != news_before) rounds = 0;
  before = writes, news_before = news;
  return ++rounds > quiet_rounds;
}

// ---- arrays, launches, blocks ---------------------------------------------------------------------------------------

inline void allocated(void* at, usize bytes, const char* name) {
  while (*name == '&' || *name == '(' || *name == ' ') name++;
  for (const char* p = name; *p; p++)
    if (*p == '&' || *p == ')') name = p + 1;
  while (*name == ' ') name++;
  arrays.add((char*)at, bytes, name, true);
}
inline void freed(void* at) {
  const auto it = arrays.regions.find((char*)at);
  if (it != arrays.regions.end()) it->second->freed = true;
  arrays.forget();
}
inline void written(const void* at, usize bytes) {
  auto it = arrays.regions.upper_bound((char*)at);
  if (it == arrays.regions.begin()) return;
  Region* r = (--it)->second;
  if (!r->contains((char*)at)) return;
  const usize offset = (usize)((char*)at - r->low), left = r->size() - offset;
  r->mark_written(offset, bytes < left ? bytes : left);
}

inline void crashed(int number, siginfo_t* info, void* context) {
#if defined(__x86_64__)
  const auto& registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  char* at = (char*)registers[REG_RIP];
  // A call to nowhere: where it came from is on the stack.
  const void* caller = at >= module_low && at < module_high ? at + 1 : *(void**)registers[REG_RSP];
#else
  const void* caller = module_low;
  (void)context;
#endif
  char text[100];
  snprintf(text, sizeof text, "signal %d at address %p", number, info->si_addr);
  if (current) write_line("crash", offset_of(caller), "", 0, 0, 0, Other(), text);
  _exit(66);
}
inline void watch_signals() {
  static char stack[65536];
  stack_t alternate = {};
  alternate.ss_sp = stack, alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(number, &action, nullptr);
}

void find_module(const void* code);  // below, where the loader's records are known

inline void begin_launch(Launch* launch, const Body* body) {
  closure = (char*)body->closure;
  launch_threads = launch->block.x * launch->block.y * launch->block.z;
  const u64 total = (u64)launch_threads * launch->grid.x * launch->grid.y * launch->grid.z;
  if (launch_next + total > 0xf0000000u || cells.next > 0xf0000000u) {
    launch_next = 1, cells.next = 1;
    arrays.forget_accesses();
  }
  deeds.clear(), cells.clear();
  forget_sites();
  launch_first = launch_next;
  launch_next += (u32)total;
  agent_first = launch_next;
  launch_agents.clear();
  published.clear();
  if (!module_low) {
    find_module((const void*)body->loop);
    watch_signals();
  }
  self = nullptr;
}
// Threads know nothing of each other, as at the start. Most blocks of kernels without barriers need not be told.
inline void forget_meetings(Block* b, BlockRecord& mine) {
  mine.met = false;
  mine.published.clear();
  mine.agents.clear();
  mine.mbarriers.clear();
  for (auto& arrivals : mine.arrivals) arrivals.clear();
  for (u32 i = 0; i < b->count; i++) {
    Record& k = mine.records[i];
    k.clock = 1, k.rank = i, k.block = b, k.own = &mine, k.knows_warp = false;
    for (i32& agent : k.agents) agent = -1;
    if (k.row != mine.start) k.row = mine.start;
    for (KnowledgeRef* known : {&k.others, &k.fenced, &k.pending, &k.recent})
      if (*known) *known = nullptr;
  }
}
inline void begin_block(Block* b, char* shared, usize shared_bytes) {
  if (!b->watched) {
    BlockRecord* made = new BlockRecord;
    made->records.resize(b->count);
    made->start = std::make_shared<Row>(b->count, 0);
    b->watched = made;
  }
  BlockRecord* mine = &own(b);
  if (mine->fixed.low != shared || mine->fixed.size() != shared_bytes)
    mine->fixed.cover(shared, shared_bytes, "static shared memory", static_shared, true), forget_sites();
  if (mine->dynamic.low != b->dynamic || mine->dynamic.size() != b->launch->shared)
    mine->dynamic.cover(b->dynamic, b->launch->shared, "dynamic shared memory", dynamic_shared, true), forget_sites();
  memset(mine->fixed.written, 0, shared_bytes / 4 + 1);
  memset(mine->dynamic.written, 0, b->launch->shared / 4 + 1);
  mine->first_thread = launch_first + (u32)b->number * b->count;
  if (mine->met) forget_meetings(b, *mine);
}
inline void drop_block(Block* b) {
  forget_sites();
  delete (BlockRecord*)b->watched;
  b->watched = nullptr;
}

}  // namespace km_emu::checks
