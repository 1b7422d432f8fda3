// sanitizer.hpp - the runtime that looks on: each access of a kernel is compared with the arrays, with what was written, and
// with the accesses of other threads. One OS thread; what is found goes to a file, a line each, for sanitizer.py to read.
#pragma once
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "clocks.hpp"

namespace km_emu::checks {

constexpr bool always_slow = true;
constexpr int most_reports = 20, quiet_rounds = 300;

inline Record* self;  // of the thread that runs; null while the runtime works
inline Arrays arrays;
inline FILE* output;
inline int reports;
inline bool strict;
inline int initcheck = 2;  // uninitialised reads: 0 none, 1 of global memory, 2 all
inline u64 writes;  // accesses that may end a spin
inline std::map<std::pair<u32, u32>, int> seen;
// The kernel's module, and the record that holds the arguments.
inline char *module_low, *module_high, *closure;

inline u32 offset_of(const void* caller) { return (u32)((const char*)caller - module_low); }
inline bool is_new(u32 a, u32 b) { return seen[{a, b}]++ == 0; }

// ---- reports --------------------------------------------------------------------------------------------------------

// The place of the other thread of a race.
struct Other {
  u32 caller = 0, block = 0, thread = 0;
};

// A line: kind, caller, block, thread, array, byte, size, elements of the array in bytes, the other access, text.
inline void write_line(const char* kind, u32 caller, const char* array, i64 byte, u32 bytes, usize whole, const Other& other,
                       const char* text) {
  if (!output) return;
  fprintf(output, "%s\t%u\t%u %u %u\t%u %u %u\t%s\t%lld\t%u\t%llu\t%u %u %u\t%s\n", kind, caller, blockIdx.x, blockIdx.y,
          blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, array, (long long)byte, bytes,
          (unsigned long long)whole, other.caller, other.block, other.thread, text);
  fflush(output);
  reports++;
}

struct Named {
  const char* name;
  i64 byte;
  usize whole;
};
inline Named named(const Region& r, const char* p) {
  const usize at = (usize)(p - r.low);
  if (r.space == static_shared) {
    const Symbol* s = Arrays::symbol_at(arrays.shared_symbols, at);
    if (s) return {s->name.c_str(), (i64)(at - s->at), s->bytes};
  }
  if (r.space == module_memory) {
    const Symbol* s = Arrays::symbol_at(arrays.module_symbols, (usize)(p - module_low));
    if (s) return {s->name.c_str(), (i64)((usize)(p - module_low) - s->at), s->bytes};
  }
  return {r.name.c_str(), p - r.low, r.size()};
}
inline void report_at(const char* kind, const void* caller, const Region* r, const char* p, u32 bytes, const Other& other,
                      const char* text) {
  const Named place = r ? named(*r, p) : Named{"", 0, 0};
  write_line(kind, offset_of(caller), place.name, place.byte, bytes, place.whole, other, text);
  if (reports >= most_reports) fail(misused, nullptr, "%d reports, no more are made", most_reports);
}

// What ends the launch, from `fail`.
inline void report_failure(i32 status, const void* caller, const char* text) {
  if (!caller) return;
  const char* kind = status == trapped ? "trap" : status == failed_assertion ? "assertion" : status == stuck ? "deadlock" : "";
  if (*kind) write_line(kind, offset_of(caller), "", 0, 0, 0, Other(), text);
  else if (status == misused) write_line("misuse", offset_of(caller), "", 0, 0, 0, Other(), text);
}

// Nobody can go on; `what` says whether they wait or spin.
inline void report_standstill(Block* b, const char* what, const void* caller, const char* text) {
  const char* kind = strncmp(what, "deadlock", 8) ? "infinite spin" : "deadlock";
  for (u32 i = 0; *kind == 'd' && i < b->count; i++)
    if (b->threads[i].state == at_barrier) kind = "barrier divergence";
  for (u32 w = 0; w < b->warp_count; w++)
    for (int i = 0; i < b->warps[w].group_count; i++)
      for (int j = 0; j < i; j++)
        if (b->warps[w].groups[i].mask & b->warps[w].groups[j].mask) kind = "mask mismatch";
  write_line(kind, caller ? offset_of(caller) : 0, "", 0, 0, 0, Other(), text);
}

// ---- accesses -------------------------------------------------------------------------------------------------------

enum How { reading = 0, writing = 1, atomically = 2, unchecked = 4, updating = 8 };  // the last reads before it writes

inline Region* region_at(Record& k, char* p) {
  if (k.own->fixed.contains(p)) return &k.own->fixed;
  if (k.own->dynamic.contains(p)) return &k.own->dynamic;
  return arrays.at(p);
}

[[noreturn]] inline void outside(Record& k, char* p, u32 bytes, int how, const void* caller) {
  const Region* best = nullptr;
  usize nearest = ~(usize)0;
  const auto look = [&](const Region* r) {
    if (r->low == r->high) return;
    const usize away = p < r->low ? (usize)(r->low - p) : p >= r->high ? (usize)(p - r->high + 1) : 0;
    if (away < nearest) nearest = away, best = r;
  };
  for (const auto& [low, r] : arrays.regions) look(r);
  look(&k.own->dynamic);
  const char* kind = best && best->freed && nearest == 0 ? "use after free" : "out of bounds";
  char text[200];
  snprintf(text, sizeof text, "%s of %u bytes%s", how & writing ? "write" : "read", bytes,
           nearest > 65536 ? ", far from every array" : "");
  report_at(kind, caller, best, p, bytes, Other(), text);
  fail(misused, nullptr, "%s: %s", kind, text);
}

[[noreturn]] inline void end_at(const char* kind, const Region& r, char* p, u32 bytes, const void* caller, const char* text) {
  report_at(kind, caller, &r, p, bytes, Other(), text);
  fail(misused, nullptr, "%s: %s", kind, text);
}

inline void race(Region& r, char* p, u32 bytes, const void* caller, const Access& other, const char* text) {
  if (!is_new(offset_of(caller), other.caller)) return;
  const u32 offset = other.thread - launch_first;
  report_at("race", caller, &r, p, bytes, Other{other.caller, offset / launch_threads, offset % launch_threads}, text);
}

inline void check_written(Region& r, char* p, usize at, u32 bytes, int how, const void* caller) {
  const bool asked = initcheck == 2 || (initcheck == 1 && !r.is_shared());
  const bool reads = asked && ((how & updating) || !(how & (writing | unchecked)));
  if (reads && !r.is_written(at, bytes) && is_new(offset_of(caller), 0))
    report_at("uninitialised read", caller, &r, p, bytes, Other(), "read before anything was written there");
  if (how & writing) r.mark_written(at, bytes);
}

// A plain read beside atomic writes is what compare-and-swap loops begin with: it is a race in the strict mode only.
inline bool is_tolerated(int how, bool by_atomic, bool they_write) {
  if ((how & atomically) && by_atomic) return true;
  if (strict) return false;
  if (they_write) return !(how & writing) && by_atomic;
  return (how & atomically) && (how & writing);
}

inline void check_order(Record& k, Region& r, char* p, usize at, u32 bytes, int how, const void* caller) {
  if (r.shift == 2 && ((bytes | at) & 3)) r.narrow();
  const bool shared = r.is_shared(), atomic = how & atomically;
  const Access mine = {k.thread, k.clock, offset_of(caller)};
  for (usize c = at >> r.shift, last = (at + bytes - 1) >> r.shift; c <= last; c++) {
    Cell& cell = r.cells[c];
    if (cell.write.thread && !is_tolerated(how, cell.atomic_write, true) && !is_before(k, cell.write, shared))
      race(r, p, bytes, caller, cell.write,
           how & writing ? "write, not in order with a write" : "read, not in order with a write");
    if (how & writing) {
      for (int i = 0; i < 2; i++) {
        if (cell.reads[i].thread && !is_tolerated(how, cell.atomic_reads[i], false) && !is_before(k, cell.reads[i], shared))
          race(r, p, bytes, caller, cell.reads[i], "write, not in order with a read");
        cell.reads[i].thread = 0;
      }
      cell.write = mine, cell.atomic_write = atomic;
    } else {
      const auto is_free = [&](int i) { return cell.reads[i].thread == mine.thread || !cell.reads[i].thread; };
      const int i = is_free(0) ? 0 : is_free(1) ? 1 : is_before(k, cell.reads[0], shared) ? 0 : 1;
      cell.reads[i] = mine, cell.atomic_reads[i] = atomic;
    }
  }
}

// The runtime's own variables that a kernel reads.
inline bool is_place(const char* p) {
  return (usize)(p - (char*)&threadIdx) < sizeof threadIdx || (usize)(p - (char*)&blockIdx) < sizeof blockIdx ||
         (usize)(p - (char*)&blockDim) < sizeof blockDim || (usize)(p - (char*)&gridDim) < sizeof gridDim;
}

inline void access(const void* address, u32 bytes, int how, const void* caller) {
  Record* k = self;
  char* p = (char*)address;
  if (is_place(p)) return;
  if (!k || (usize)(p - k->block->stacks) < k->block->stack_bytes) return;
  Region* r = region_at(*k, p);
  if (__builtin_expect(!r, 0)) {
    if ((p >= module_low && p < module_high) || (usize)(p - (closure - 4096)) < 8192) return;
    outside(*k, p, bytes, how, caller);
  }
  if (__builtin_expect(p + bytes > r->high, 0)) outside(*k, p, bytes, how, caller);
  const usize at = (usize)(p - r->low);
  const bool nameless =
      (r->space == static_shared && !Arrays::symbol_at(arrays.shared_symbols, at)) ||
      (r->space == module_memory && !Arrays::symbol_at(arrays.module_symbols, (usize)(p - module_low)));
  if (nameless)
    end_at("out of bounds", *r, p, bytes, caller,
           how & writing ? "write outside every array" : "read outside every array");
  if (((usize)p & (bytes - 1)) && !(bytes & (bytes - 1)))
    end_at("misaligned access", *r, p, bytes, caller, how & writing ? "write" : "read");
  if (r->tracks_writes) check_written(*r, p, at, bytes, how, caller);
  if (how & writing) writes++;
  check_order(*k, *r, p, at, bytes, how, caller);
}
inline void access_range(const void* from, usize bytes, int how, const void* caller) {
  for (char* p = (char*)from; bytes;) {
    const u32 step = !((usize)p & 7) && bytes >= 8 ? 8 : !((usize)p & 3) && bytes >= 4 ? 4 : 1;
    access(p, step, how, caller);
    p += step, bytes -= step;
  }
}

// ---- atomics and fences ---------------------------------------------------------------------------------------------

inline KnowledgeRef& published_at(const void* p) {
  char* at = (char*)p;
  const bool shared = self && (self->own->fixed.contains(at) || self->own->dynamic.contains(at));
  return (shared ? self->own->published : published)[p];
}
// What an atomic passes on: its writer's knowledge where it releases, that of the writer's last fence where it does not.
inline void synchronise(const void* p, bool loads, bool stores, bool acquires, bool releases) {
  Record& k = *self;
  KnowledgeRef& there = published_at(p);
  if (loads && there) {
    if (acquires) acquire(k, there);
    else k.pending = joined(k.pending, there);
  }
  if (!stores) return;
  KnowledgeRef mine = releases ? snapshot(k) : k.fenced;
  if (releases) k.clock++;
  if (loads) there = joined(there, mine);
  else there = mine;
}
inline void fence() {
  if (!self) return;
  take_pending(*self);
  self->fenced = snapshot(*self);
  self->clock++;
}

// ---- what the runtime tells -----------------------------------------------------------------------------------------

inline BlockRecord& own(Block* b) { return *(BlockRecord*)b->watched; }
inline void run(Block* b, u32 rank) { self = b && rank != nobody ? &own(b).records[rank] : nullptr; }

inline void arrived(Block* b, u32 rank, int id) {
  Record& k = own(b).records[rank];
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
  meet_in_warp(own(b), number, lanes);
}
inline void grid_opened(Block* const* live, i64 count) {
  KnowledgeRef all = std::make_shared<Knowledge>();
  for (i64 i = 0; i < count; i++) {
    BlockRecord& mine = own(live[i]);
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

// An mbarrier publishes at its word what arrivals knew, and one byte further that of the phase that is complete.
inline void transaction_begins(u64* word) {
  if (self) published_at(word) = nullptr;
}
inline void transaction_arrives(u64* word) {
  if (!self) return;
  published_at(word) = joined(published_at(word), snapshot(*self));
  self->clock++;
  writes++;
}
inline void transaction_turns(u64* word) {
  if (!self) return;
  KnowledgeRef known = published_at(word);
  published_at((char*)word + 1) = known;
  published_at(word) = nullptr;
}
inline void transaction_seen(u64* word) {
  if (self) acquire(*self, published_at((char*)word + 1));
}
inline void copied(void* to, const void* from, u32 bytes, const void* caller) {
  access_range(from, bytes, reading | unchecked, caller);
  access_range(to, bytes, writing, caller);
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

// Nothing was written for many rounds in which all only spun.
inline bool is_endless() {
  static u64 before;
  static int rounds;
  if (writes != before) before = writes, rounds = 0;
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
  if (launch_next + total > 0xfffffff0u) launch_next = 1;
  launch_first = launch_next;
  launch_next += (u32)total;
  published.clear();
  if (!module_low) {
    find_module((const void*)body->loop);
    watch_signals();
  }
  self = nullptr;
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
    mine->fixed.cover(shared, shared_bytes, "static shared memory", static_shared, true);
  if (mine->dynamic.low != b->dynamic || mine->dynamic.size() != b->launch->shared)
    mine->dynamic.cover(b->dynamic, b->launch->shared, "dynamic shared memory", dynamic_shared, true);
  memset(mine->fixed.written, 0, shared_bytes / 4 + 1);
  memset(mine->dynamic.written, 0, b->launch->shared / 4 + 1);
  mine->published.clear();
  for (auto& arrivals : mine->arrivals) arrivals.clear();
  mine->first_thread = launch_first + (u32)b->number * b->count;
  for (u32 i = 0; i < b->count; i++) {
    Record& k = mine->records[i];
    k.thread = mine->first_thread + i, k.clock = 1, k.rank = i, k.block_number = (u32)b->number;
    k.block = b, k.own = mine, k.knows_warp = false;
    if (k.row != mine->start) k.row = mine->start;
    for (KnowledgeRef* known : {&k.others, &k.fenced, &k.pending, &k.recent})
      if (*known) *known = nullptr;
  }
}
inline void drop_block(Block* b) {
  delete (BlockRecord*)b->watched;
  b->watched = nullptr;
}

}  // namespace km_emu::checks
