// accesses.hpp - each access of a kernel, compared with the arrays, with what was written, and with accesses of other threads.
// What is found goes to a file, a line each, for sanitizer.py to read. What the runtime tells of threads is in sanitizer.hpp.
#pragma once
#include <string.h>

#include "clocks.hpp"

namespace km_emu::checks {

constexpr bool looks_on = true;
constexpr int most_reports = 20, quiet_rounds = 300;

// Of the thread that runs; null while the runtime works, and always in other threads of the host.
inline __thread Record* self __attribute__((tls_model("initial-exec")));
inline Arrays arrays;
inline FILE* output;
inline int reports;
inline bool strict;
inline int initcheck = 2;  // uninitialised reads: 0 none, 1 of global memory, 2 all
inline u64 writes;  // accesses that may end a spin
inline u64 news;    // reads of what the thread had not read since then
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

// `updating` reads before it writes; `copying` is done by `copier`, `by_proxy` where only a proxy fence shows what was written.
enum How { reading = 0, writing = 1, atomically = 2, unchecked = 4, updating = 8, copying = 16, by_proxy = 32, holed = 64 };
inline const Agent* copier;

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
  Other who = {other.caller, offset / launch_threads, offset % launch_threads};
  if (other.thread >= agent_first) {
    const Agent& agent = launch_agents[other.thread - agent_first];
    who.block = agent.block_number, who.thread = agent.rank;
  }
  report_at("race", caller, &r, p, bytes, who, text);
}
inline void race_with_write(Record& k, Region& r, char* p, u32 bytes, int how, const void* caller, const Access& other) {
  const bool by_copy = other.thread >= agent_first;
  const char* text = how & writing ? by_copy ? "write, not in order with that of a copy" : "write, not in order with a write"
                     : by_copy     ? "read, not in order with the write of a copy"
                                   : "read, not in order with a write";
  if ((how & by_proxy) && is_before(k, other, r.is_shared()))
    text = "a bulk copy, not in order with a write: no fence.proxy.async is between them";
  race(r, p, bytes, caller, other, text);
}

inline bool asks_for_writes(const Region& r) { return initcheck == 2 || (initcheck == 1 && !r.is_shared()); }
// A struct that is copied may have holes that nobody writes, but none where a member begins: at its first byte, and where its
// size is a power of two and its alignment 8, as is that of 16 bytes, at the first of each 8.
inline bool was_written(const Region& r, usize at, u32 bytes, int how) {
  if (bytes == 16) return r.is_written(at, 1) && r.is_written(at + 8, 1);
  return r.is_written(at, how & holed ? 1 : bytes);
}
inline void check_written(Region& r, char* p, usize at, u32 bytes, int how, const void* caller) {
  const bool reads = asks_for_writes(r) && ((how & updating) || !(how & (writing | unchecked)));
  if (reads && !was_written(r, at, bytes, how) && is_new(offset_of(caller), 0))
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

inline void remember_read(Record& k, Cell& cell, const Access& mine, bool shared, bool atomic) {
  const auto is_free = [&](int i) { return cell.reads[i].thread == mine.thread || !cell.reads[i].thread; };
  const int i = is_free(0) ? 0 : is_free(1) ? 1 : is_before(k, cell.reads[0], shared) ? 0 : 1;
  cell.reads[i] = mine, cell.atomic_reads[i] = atomic;
}
inline void check_cell(Record& k, Region& r, Cell& cell, const Access& mine, char* p, u32 bytes, int how, const void* caller) {
  const bool shared = r.is_shared(), atomic = how & atomically;
  const auto comes_first = [&](const Access& write) {
    return how & by_proxy ? is_shown(k, write, shared) : is_before(k, write, shared);
  };
  if (cell.write.thread && !is_tolerated(how, cell.atomic_write, true) && !comes_first(cell.write))
    race_with_write(k, r, p, bytes, how, caller, cell.write);
  if (how & writing) {
    for (int i = 0; i < 2; i++) {
      if (cell.reads[i].thread && !is_tolerated(how, cell.atomic_reads[i], false) && !is_before(k, cell.reads[i], shared))
        race(r, p, bytes, caller, cell.reads[i],
             cell.reads[i].thread < agent_first ? "write, not in order with a read"
                                                : "write, not in order with the read of a copy");
      cell.reads[i].thread = 0;
    }
    cell.write = mine, cell.atomic_write = atomic;
  } else {
    remember_read(k, cell, mine, shared, atomic);
  }
}

inline void check_order(Record& k, Region& r, char* p, usize at, u32 bytes, int how, const void* caller) {
  if (r.shift == 2 && ((bytes | at) & 3)) r.narrow(), forget_sites();
  Access mine = {k.thread, k.clock, offset_of(caller)};
  if (__builtin_expect(how & copying, 0)) mine.thread = copier->thread, mine.clock = copier->clock;
  for (usize c = at >> r.shift, last = (at + bytes - 1) >> r.shift; c <= last; c++) {
    if (r.full) {
      check_cell(k, r, r.full[c], mine, p, bytes, how, caller);
      continue;
    }
    Brief& brief = r.briefs[c];
    if (brief.thread == several && cells.has(brief.deed)) {
      check_cell(k, r, cells.at(brief.deed), mine, p, bytes, how, caller);
      continue;
    }
    Cell cell = opened(brief, r.earlier ? r.earlier + c : nullptr, launch_first);
    check_cell(k, r, cell, mine, p, bytes, how, caller);
    brief = closed(cell);
  }
}

// The runtime's own variables that a kernel reads.
inline bool is_place(const char* p) {
  return (usize)(p - (char*)&threadIdx) < sizeof threadIdx || (usize)(p - (char*)&blockIdx) < sizeof blockIdx ||
         (usize)(p - (char*)&blockDim) < sizeof blockDim || (usize)(p - (char*)&gridDim) < sizeof gridDim;
}

// What an instruction accesses, found by its last access or by all tables; null where it is none of the kernel's.
inline Region* find_region(Record& k, Site& site, char* p, u32 bytes, int how, const void* caller) {
  const auto keep = [&](char* low, usize size, Region* region) {
    site = Site{caller, low, size, 0, region, nullptr, nullptr, 0, 0};
    return region;
  };
  if (is_place(p)) return nullptr;
  if ((usize)(p - k.block->stacks) < k.block->stack_bytes) return keep(k.block->stacks, k.block->stack_bytes, nullptr);
  Region* r = region_at(k, p);
  if (__builtin_expect(!r, 0)) {
    if ((p >= module_low && p < module_high) || (usize)(p - (closure - 4096)) < 8192) return nullptr;
    outside(k, p, bytes, how, caller);
  }
  if (__builtin_expect(p + bytes > r->high, 0)) outside(k, p, bytes, how, caller);
  if (r->space != static_shared && r->space != module_memory) return keep(r->low, r->size(), r);
  const usize at = r->space == static_shared ? (usize)(p - r->low) : (usize)(p - module_low);
  const Symbol* symbol = Arrays::symbol_at(r->space == static_shared ? arrays.shared_symbols : arrays.module_symbols, at);
  if (!symbol)
    end_at("out of bounds", *r, p, bytes, caller, how & writing ? "write outside every array" : "read outside every array");
  char* low = p - (at - symbol->at);
  if (symbol->name.empty()) return keep(low, symbol->bytes, nullptr);  // the compiler's own
  return keep(low, symbol->bytes, r);
}

// An access that is inside an array and aligned.
inline void check_known(Record& k, Region& r, char* p, u32 bytes, int how, const void* caller) {
  const usize at = (usize)(p - r.low);
  if (r.tracks_writes) check_written(r, p, at, bytes, how, caller);
  if (how & writing) writes++;
  check_order(k, r, p, at, bytes, how, caller);
}

// A struct of 16 bytes whose alignment is 8 is copied as vectors are; where it is a vector the compiler's check of alignments,
// which stands before the access, knows the type.
inline bool may_be_struct(const char* p, u32 bytes, int how) {
  return bytes == 16 && !((usize)p & 7) && !(how & (atomically | copying));
}

inline void access(const void* address, u32 bytes, int how, const void* caller) {
  Record* k = self;
  if (!k) return;
  char* p = (char*)address;
  Site& site = site_of(caller);
  const usize offset = (usize)(p - site.low);
  const bool known = site.caller == caller && offset < site.bytes && offset + bytes <= site.bytes;
  Region* r = known ? site.region : find_region(*k, site, p, bytes, how, caller);
  if (!r) return;
  // Live blocks have their static shared memory at one place.
  if (r->space == static_shared) r = &k->own->fixed;
  if (((usize)p & (bytes - 1)) && !(bytes & (bytes - 1)) && !may_be_struct(p, bytes, how))
    end_at("misaligned access", *r, p, bytes, caller, how & writing ? "write" : "read");
  check_known(*k, *r, p, bytes, how, caller);
  if (r->full || how > writing || site.caller != caller || ((usize)site.low & 3)) return;
  // From now on the short way, as long as the clock stands.
  Deed deed = {k->clock, 0, 0, how == writing ? wrote : read};
  (how == writing ? deed.write : deed.read) = offset_of(caller);
  site.clock = k->clock, site.deed = deeds.number(deed);
  site.written = nullptr, site.quick_bytes = 0;
  const usize first = (usize)(site.low - r->low);
  if (first & 3) return;
  if (r->tracks_writes && (how == writing || asks_for_writes(*r))) site.written = r->written + first / 4;
  site.briefs = site.deed ? r->briefs + (first >> r->shift) : nullptr;
  const bool one = bytes <= 4 && bytes >> r->shift == 1;
  site.quick_bytes = one && site.briefs && !site.written && site.bytes >= bytes ? site.bytes - bytes + 1 : 0;
}

// A plain access of an instruction to what it accessed before: what several threads accessed in this launch is looked at, and
// there is nothing to look at elsewhere.
template <u32 bytes, int how>
__attribute__((noinline)) void access_known(Record& k, const Site& site, char* p, const void* caller) {
  const usize offset = (usize)(p - site.low);
  const Brief mine = {k.thread, site.deed};
  Brief* briefs = site.briefs + (offset >> site.region->shift);
  u8* written = site.written + (offset >> 2);
  const u32 count = bytes >> site.region->shift;
  bool clear = bytes >= 4 || !site.written;
  for (u32 i = 0; i < count; i++)
    clear &= briefs[i].thread < launch_first ||
             (briefs[i].thread == mine.thread &&
              (how == writing ? !(briefs[i].deed & with_earlier) : briefs[i].deed == mine.deed));
  for (u32 i = 0; how == reading && site.written && i < bytes / 4; i++) clear &= written[i] == 15;
  if (!clear) return check_known(k, *site.region, p, bytes, how, caller);
  for (u32 i = 0; how == writing && site.written && i < bytes / 4; i++) written[i] = 15;
  for (u32 i = 0; i < count; i++) briefs[i] = mine;
  if (how == writing) writes++;
}
// A plain read of a word that others read in this launch: where nobody wrote it, it is only remembered.
template <u32 bytes>
__attribute__((noinline)) void read_too(Record& k, const Site& site, Brief& brief, char* p, const void* caller) {
  const Brief mine = {k.thread, site.deed};
  if (brief.thread == several) {
    if (cells.has(brief.deed)) {
      Cell& cell = cells.at(brief.deed);
      if (!cell.write.thread) return remember_read(k, cell, {k.thread, k.clock, offset_of(caller)}, false, false);
    }
  } else if (brief.deed & with_earlier) {  // the first that read it, and the last
    const u32 mark = brief.deed & ~deed_bits;
    if (__builtin_expect(mark == mark_of(mine.thread), 0)) {
      Brief& first = site.region->earlier_of((usize)(&brief - site.region->briefs));
      if (first.thread == mine.thread) return (void)(first = mine);
    }
    brief = {mine.thread, mine.deed | mark};
    return;
  } else if (brief.thread != mine.thread && deeds.all[brief.deed].did == read) {
    site.region->earlier_of((usize)(&brief - site.region->briefs)) = brief;
    brief = {mine.thread, mine.deed | mark_of(brief.thread)};
    return;
  }
  check_known(k, *site.region, p, bytes, reading, caller);
}

// Where more is to be looked at than one record.
template <u32 bytes, int how>
__attribute__((noinline)) void access_longer(Record& k, const Site& site, char* p, const void* caller) {
  const usize offset = (usize)(p - site.low);
  const bool known = site.caller == caller && offset < site.bytes && offset + bytes <= site.bytes;
  if (known && !site.region) return;
  if (!known || !site.briefs || site.clock != k.clock || ((usize)p & (bytes - 1))) return access(p, bytes, how, caller);
  access_known<bytes, how>(k, site, p, caller);
}
template <u32 bytes, int how>
KM_EMU_INLINE void access_shortly(void* address, const void* caller) {
  constexpr u32 shift = bytes >= 4 ? 2 : 0;
  Record* k = self;
  if (!k) return;
  const Site& site = site_of(caller);
  char* p = (char*)address;
  const usize offset = (usize)(p - site.low);
  if (bytes > 4 || __builtin_expect(site.caller != caller || offset >= site.quick_bytes || site.clock != k->clock ||
                                        ((usize)p & (bytes - 1)), 0))
    return access_longer<bytes, how>(*k, site, p, caller);
  // The common case alone: one record, which nobody asks whether it was written.
  Brief& brief = site.briefs[offset >> shift];
  const u64 mine = k->thread | (u64)site.deed << 32;
  u64 there;
  memcpy(&there, &brief, 8);
  if (__builtin_expect((u32)there >= launch_first && (how == writing ? (u32)there != (u32)mine || there >> 63 : there != mine), 0)) {
    if (how == reading) return read_too<bytes>(*k, site, brief, p, caller);
    return check_known(*k, *site.region, p, bytes, how, caller);
  }
  memcpy(&brief, &mine, 8);
  if (how == writing) writes++;
}
// Structs, word by word. The odd bytes of one at an even address may be holes.
inline void access_range(const void* from, usize bytes, int how, const void* caller) {
  const bool even = !((usize)from & 1);
  for (char* p = (char*)from; bytes;) {
    const u32 step = !((usize)p & 7) && bytes >= 8 ? 8 : !((usize)p & 3) && bytes >= 4 ? 4 : 1;
    const int holes = step == 1 && even && ((usize)p & 1) ? unchecked : holed;
    access(p, step, how == reading ? how | holes : how, caller);
    p += step, bytes -= step;
  }
}

inline void moved(void* to, const void* from, usize bytes, const void* caller) {
  if (!self) return;
  access_range(from, bytes, reading | unchecked, caller);
  access_range(to, bytes, writing, caller);
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
  k.own->met = true;
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
  self->own->met = true;
  take_pending(*self);
  self->fenced = snapshot(*self);
  self->clock++;
}

}  // namespace km_emu::checks
