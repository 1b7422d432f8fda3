// clocks.hpp - which accesses are in order: what each thread knows of the clocks of others, and how barriers, warp operations,
// fences and atomics pass it on.
//
// A thread knows its own block by one row of clocks, which all share after a barrier, and 32 clocks of its warp; other blocks
// by rows of theirs. So a barrier costs as much as it has threads, a warp operation 32 x 32, and a question one look.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "shadow.hpp"

namespace km_emu::checks {

typedef std::vector<u32> Row;
typedef std::shared_ptr<Row> RowRef;
typedef std::map<u32, RowRef> Knowledge;  // of blocks, by their number
typedef std::shared_ptr<Knowledge> KnowledgeRef;

struct BlockRecord;

// What runs beside a thread: copies. An agent has a clock of its own, and its accesses its number; a copy is over for those who
// know that clock. `place` is where rows hold it, `rank` the thread that asked last.
struct Agent {
  u32 thread = 0, clock = 1, block_number = 0, place = 0, rank = 0;
};
// Of a thread: reading what bulk copies take from shared memory, writing it, and `cp.async`.
enum Copies : int { store_reads, store_writes, small_copies, copies_count };

struct Record {
  u32 thread = 0, clock = 1, block_number = 0, rank = 0;  // the first and third are set where the thread goes on
  Block* block = nullptr;
  BlockRecord* own = nullptr;
  RowRef row;
  bool knows_warp = false;
  u32 warp[warp_lanes] = {};
  KnowledgeRef others;   // of other blocks
  KnowledgeRef fenced;   // what stood before the last fence
  KnowledgeRef pending;  // read by relaxed atomics; a fence or barrier makes it known
  KnowledgeRef recent;   // acquired last
  i32 agents[copies_count] = {-1, -1, -1};  // among those of its block
};

// An mbarrier: the thread that made it and when, whether copies may know of it, and the agent of copies that count on it.
struct MadeBarrier {
  Access made = {};
  bool fenced = false;
  i32 agent = -1;
};

struct BlockRecord {
  u32 first_thread = 0;
  bool met = true;  // whether threads may know of each other, or clocks have moved
  std::vector<Record> records;
  RowRef start;  // nobody knows anything
  Region fixed, dynamic;
  std::unordered_map<const void*, KnowledgeRef> published;  // by atomics in shared memory
  std::vector<std::pair<u32, u32>> arrivals[barrier_count];
  std::vector<Agent> agents;
  std::unordered_map<const void*, MadeBarrier> mbarriers;  // by their words
};

inline u32 launch_first = 1, launch_next = 1, launch_threads = 1;  // numbers of threads
inline u32 agent_first = 1;                                        // those of agents follow
inline std::vector<Agent> launch_agents;                           // whose they are
inline std::unordered_map<const void*, KnowledgeRef> published;    // by atomics in global memory

inline void raise(Row& row, const Row& other) {
  if (row.size() < other.size()) row.resize(other.size(), 0);
  for (usize i = 0; i < other.size(); i++)
    if (row[i] < other[i]) row[i] = other[i];
}
inline void raise_by_warp(Row& row, const Record& k) {
  if (!k.knows_warp) return;
  const u32 first = k.rank & ~31u;
  for (u32 i = 0; i < warp_lanes && first + i < k.block->count; i++)
    if (row[first + i] < k.warp[i]) row[first + i] = k.warp[i];
}
inline void join(Knowledge& all, const Knowledge& more) {
  for (const auto& [number, row] : more) {
    RowRef& mine = all[number];
    if (!mine) {
      mine = row;
    } else if (mine != row) {
      RowRef raised = std::make_shared<Row>(*mine);
      raise(*raised, *row);
      mine = raised;
    }
  }
}
inline KnowledgeRef joined(const KnowledgeRef& a, const KnowledgeRef& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  KnowledgeRef made = std::make_shared<Knowledge>(*a);
  join(*made, *b);
  return made;
}

// Everything that a thread knows, and what it did itself.
inline KnowledgeRef snapshot(const Record& k) {
  KnowledgeRef made = k.others ? std::make_shared<Knowledge>(*k.others) : std::make_shared<Knowledge>();
  RowRef row = std::make_shared<Row>(*k.row);
  raise_by_warp(*row, k);
  (*row)[k.rank] = k.clock;
  (*made)[k.block_number] = row;
  return made;
}
inline void acquire(Record& k, const KnowledgeRef& known) {
  if (!known || k.recent == known) return;
  k.recent = known;
  for (const auto& [number, row] : *known) {
    if (number == k.block_number) {
      if (k.row == row) continue;
      RowRef raised = std::make_shared<Row>(*k.row);
      raise(*raised, *row);
      k.row = raised;
      continue;
    }
    if (k.others) {
      const auto it = k.others->find(number);
      if (it != k.others->end() && it->second == row) continue;
    }
    KnowledgeRef others = k.others ? std::make_shared<Knowledge>(*k.others) : std::make_shared<Knowledge>();
    Knowledge one;
    one[number] = row;
    join(*others, one);
    k.others = others;
  }
}
inline void take_pending(Record& k) {
  if (k.pending) acquire(k, k.pending), k.pending = nullptr;
}

// ---- copies: agents beside the threads, which see memory through another proxy --------------------------------------
//
// A row has a clock for each thread of its block, then, as soon as they are needed, for each thread the clock up to which
// copies see what it did (a proxy fence raises it), and then the clocks of agents.

inline u32 agent_place(u32 threads, usize agent) { return 2 * threads + (u32)agent; }

// The agent at `index`, made at its first use.
inline Agent& agent_of(Record& k, i32& index) {
  BlockRecord& own = *k.own;
  own.met = true;
  if (index < 0) {
    index = (i32)own.agents.size();
    own.agents.push_back({launch_next++, 1, k.block_number, agent_place(k.block->count, own.agents.size()), k.rank});
    launch_agents.push_back(own.agents.back());
  }
  Agent& agent = own.agents[(usize)index];
  agent.rank = launch_agents[agent.thread - agent_first].rank = k.rank;
  return agent;
}
inline void know(Row& row, u32 place, u32 clock) {
  if (row.size() <= place) row.resize(place + 1, 0);
  if (row[place] < clock) row[place] = clock;
}
inline void know(Record& k, u32 place, u32 clock) {
  RowRef row = std::make_shared<Row>(*k.row);
  know(*row, place, clock);
  k.row = row;
}
inline const Row* row_of(const Record& k, u32 block_number) {
  if (block_number == k.block_number) return k.row.get();
  if (!k.others) return nullptr;
  const auto it = k.others->find(block_number);
  return it == k.others->end() ? nullptr : it->second.get();
}
inline bool knows(const Row* row, u32 place, u32 clock) { return row && place < row->size() && (*row)[place] >= clock; }

inline bool is_over(const Record& k, const Access& a, bool shared) {
  const Agent& agent = launch_agents[a.thread - agent_first];
  if (shared && agent.block_number != k.block_number) return true;
  return knows(row_of(k, agent.block_number), agent.place, a.clock);
}

// What a thread knows of others is seen by copies from here on; `all`: of other blocks too.
inline void fence_proxies(Record& k, bool all) {
  const u32 count = k.block->count;
  const auto shown = [=](const Row& from) {
    RowRef row = std::make_shared<Row>(from);
    if (row->size() < 2 * count) row->resize(2 * count, 0);
    for (u32 i = 0; i < count; i++)
      if ((*row)[count + i] < (*row)[i]) (*row)[count + i] = (*row)[i];
    return row;
  };
  Row known = *k.row;
  raise_by_warp(known, k);
  known[k.rank] = k.clock;
  k.row = shown(known);
  k.clock++;
  if (!all || !k.others) return;
  KnowledgeRef others = std::make_shared<Knowledge>();
  for (const auto& [number, row] : *k.others) (*others)[number] = shown(*row);
  k.others = others;
}

// Whether copies that a thread starts now see what was written.
inline bool is_shown(const Record& k, const Access& a, bool shared) {
  if (a.thread < launch_first) return true;
  if (a.thread >= agent_first) return is_over(k, a, shared);
  const u32 number = (a.thread - launch_first) / launch_threads, rank = (a.thread - launch_first) % launch_threads;
  if (shared && number != k.block_number) return true;
  return knows(row_of(k, number), launch_threads + rank, a.clock);
}

// Whether an access is known to have been before this moment of a thread. What an earlier launch did is over; so is, in shared
// memory, what another block did.
inline bool is_before(const Record& k, const Access& a, bool shared) {
  if (a.thread < launch_first || a.thread == k.thread) return true;
  if (a.thread >= agent_first) return is_over(k, a, shared);
  const u32 offset = a.thread - k.own->first_thread, count = k.block->count;
  if (shared && offset >= count) return true;
  if (offset < count) {
    if (a.clock <= (*k.row)[offset]) return true;
    return k.knows_warp && offset / warp_lanes == k.rank / warp_lanes && a.clock <= k.warp[offset % warp_lanes];
  }
  if (!k.others) return false;
  const u32 number = (a.thread - launch_first) / launch_threads, rank = (a.thread - launch_first) % launch_threads;
  const auto it = k.others->find(number);
  return it != k.others->end() && a.clock <= (*it->second)[rank];
}

// ---- meetings -------------------------------------------------------------------------------------------------------

// What the threads of `from` knew when they came (each with its clock), all of `to` know from now on.
inline void meet(BlockRecord& own, const std::vector<std::pair<u32, u32>>& from, const std::vector<u32>& to) {
  RowRef base = own.records[from[0].first].row;
  RowRef row = std::make_shared<Row>(*base);
  KnowledgeRef others;
  const Row* seen = base.get();
  for (const auto& [rank, clock] : from) {
    Record& k = own.records[rank];
    if (k.row.get() != seen && k.row != base) raise(*row, *k.row);
    seen = k.row.get();
    others = joined(others, k.others);
    raise_by_warp(*row, k);
  }
  for (const auto& [rank, clock] : from)
    if ((*row)[rank] < clock) (*row)[rank] = clock;
  for (u32 rank : to) {
    Record& k = own.records[rank];
    k.row = row, k.others = others, k.knows_warp = false;
  }
  for (const auto& [rank, clock] : from) own.records[rank].clock++;
}

inline void meet_in_warp(BlockRecord& own, u32 number, u32 lanes) {
  std::vector<std::pair<u32, u32>> from;
  std::vector<u32> to;
  bool alike = true;
  for (u32 left = lanes; left; left &= left - 1) {
    const u32 rank = number * warp_lanes + (u32)__builtin_ctz(left);
    Record& k = own.records[rank];
    take_pending(k);
    from.push_back({rank, k.clock});
    to.push_back(rank);
    const Record& first = own.records[from[0].first];
    alike = alike && k.row == first.row && k.others == first.others;
  }
  if (!alike) return meet(own, from, to);
  u32 clocks[warp_lanes] = {};
  for (u32 rank : to) {
    const Record& k = own.records[rank];
    for (int i = 0; k.knows_warp && i < warp_lanes; i++) clocks[i] = clocks[i] < k.warp[i] ? k.warp[i] : clocks[i];
  }
  for (u32 rank : to) {
    u32& mine = clocks[rank % warp_lanes];
    Record& k = own.records[rank];
    if (mine < k.clock) mine = k.clock;
    k.clock++;
  }
  for (u32 rank : to) {
    memcpy(own.records[rank].warp, clocks, sizeof clocks);
    own.records[rank].knows_warp = true;
  }
}

}  // namespace km_emu::checks
