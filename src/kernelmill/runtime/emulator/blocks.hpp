// blocks.hpp - blocks are made, started in ticket order and run to their end: one on an OS thread at a time, or many in turn
// where they wait for each other.
#pragma once
#include <link.h>
#include <sched.h>

#include "divisions.hpp"
#include "waits.hpp"

namespace km_emu {

inline i32 spare_lock;
inline Block* spare_blocks;

inline void lock(i32* word) {
  while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
inline void unlock(i32* word) { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }

template <class T>
T* array_of(usize count) {
  const usize bytes = (count * sizeof(T) + 63) & ~(usize)63;
  void* made = aligned_alloc(64, bytes);
  if (!made) abort();
  return (T*)__builtin_memset(made, 0, bytes);
}

inline void free_block(Block* b) {
  checks::drop_block(b);
  munmap(b->stacks, b->stack_bytes);
  free(b->dynamic);
  free(b->threads);
  free(b->warps);
  free(b->fibres);
  free(b->sequence);
  free(b->runnable.items);
  free(b->local);
  free(b);
}

inline Block* make_block(u32 count, u32 shared) {
  Block* b = array_of<Block>(1);
  b->count = count;
  b->threads = array_of<ThreadState>(count);
  b->warp_count = (count + warp_lanes - 1) / warp_lanes;
  b->warps = array_of<Warp>(b->warp_count);
  b->fibres = array_of<Fibre>(count + 1);
  b->sequence = array_of<u32>(count);
  u32 capacity = 1;
  while (capacity < count + 1) capacity *= 2;
  b->runnable.items = array_of<u32>(capacity);
  b->runnable.mask = capacity - 1;
  b->stack_bytes = (count + 1) * stack_size;
  b->stacks = (char*)mmap(nullptr, b->stack_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (b->stacks == MAP_FAILED) abort();
  b->dynamic_bytes = shared;
  b->dynamic = (char*)aligned_alloc(1024, (shared + 2048) & ~(usize)1023);
  return b;
}

inline Block* take_block(const Launch* launch) {
  const u32 count = launch->block.x * launch->block.y * launch->block.z;
  Block* b = nullptr;
  lock(&spare_lock);
  for (Block** link = &spare_blocks; *link; link = &(*link)->next) {
    if ((*link)->count == count && (*link)->dynamic_bytes >= launch->shared) {
      b = *link;
      *link = b->next;
      break;
    }
  }
  unlock(&spare_lock);
  if (!b) b = make_block(count, launch->shared);
  for (u32 i = 0; i < count; i++) {
    b->threads[i].rank = i;
    b->threads[i].index = uint3{i % launch->block.x, i / launch->block.x % launch->block.y,
                                i / launch->block.x / launch->block.y};
  }
  for (u32 i = 0; i < b->warp_count; i++) {
    const u32 left = count - warp_lanes * i;
    b->warps[i].present = left >= warp_lanes ? ~0u : (1u << left) - 1;
  }
  return b;
}

constexpr int most_spare_blocks = 16;

// Keeps a block for later launches; one that was left in the middle is of no more use.
inline void put_block(Block* b) {
  lock(&spare_lock);
  int kept = 0;
  for (Block* at = spare_blocks; at; at = at->next) kept++;
  const bool keep = !b->abandoned && kept < most_spare_blocks;
  if (keep) {
    b->next = spare_blocks;
    spare_blocks = b;
  }
  unlock(&spare_lock);
  if (!keep) free_block(b);
}

inline void permute_start(Block* b, i32 order) {
  b->permuted = order != in_order;
  for (u32 i = 0; b->permuted && i < b->count; i++) b->sequence[i] = order == reversed ? b->count - 1 - i : i;
  for (u32 i = b->count; order == shuffled && i > 1; i--) {
    const u32 k = b->pick(i), kept = b->sequence[i - 1];
    b->sequence[i - 1] = b->sequence[k];
    b->sequence[k] = kept;
  }
}

// The thread-local variables of the kernel's module on this OS thread: there lies what is `__shared__`.
struct Image {
  const void* inside;
  char* low;
  usize size;
};

inline Image image_of(const Body* body) {
  Image image = {body->anchor(), nullptr, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* given) {
        Image* wanted = (Image*)given;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          if (info->dlpi_phdr[i].p_type != PT_TLS || !info->dlpi_tls_data) continue;
          const usize size = info->dlpi_phdr[i].p_memsz;
          if ((usize)((const char*)wanted->inside - (char*)info->dlpi_tls_data) < size) {
            wanted->low = (char*)info->dlpi_tls_data;
            wanted->size = size;
            return 1;
          }
        }
        return 0;
      },
      &image);
  return image;
}

inline void begin(Block* b, Launch* launch, const Body* body, const Image& image, i64 number) {
  b->launch = launch;
  b->order = launch->schedule.order;
  b->body = body;
  b->number = number;
  b->started = b->finished = b->spins = b->waiting_for_grid = 0;
  b->at_grid = b->abandoned = false;
  b->random = (launch->schedule.seed + 1) * 0x9e3779b97f4a7c15ull + (u64)number * 0xbf58476d1ce4e5b9ull;
  if (!b->random) b->random = 1;
  permute_start(b, launch->schedule.order);
  Place& here = km_emu_here;
  const uint3 grid = launch->grid;
  b->index = uint3{(u32)(number % grid.x), (u32)(number / grid.x % grid.y), (u32)(number / grid.x / grid.y)};
  blockIdx = b->index;
  blockDim = launch->block;
  gridDim = grid;
  here.count = b->count;
  here.dynamic = b->dynamic;
  here.dynamic_bytes = launch->shared;
  here.polls = 0;
  here.polled = nullptr;
  here.slow = b->slow = false;
  b->runnable.head = b->runnable.count = 0;
  checks::begin_block(b, image.low, image.size);
  if (b->permuted) go_slow(b, 0);
  b->place = here;
}

enum Outcome { ended, idle, spinning, dropped };

// Runs a block until nobody in it can go on, or all only spin.
inline Outcome slice(Block* b) {
  current = b;
  b->spins = 0;
  schedule(b, &b->main_pointer);
  current = nullptr;
  if (b->abandoned) return dropped;
  if (b->finished == b->count) return ended;
  return b->runnable.count == 0 && b->started == b->count ? idle : spinning;
}

// ---- nobody goes on -------------------------------------------------------------------------------------------------

inline const char* name_of(State state) {
  static const char* const names[state_count] = {"spin", "wait at a block barrier", "wait in a warp operation",
                                                 "wait at a grid barrier", "wait for an mbarrier", "go in step",
                                                 "have finished"};
  return names[state];
}

// Makes a thread that waits the current place, and returns where it does: one at a barrier rather than others.
inline const void* show_waiting(Block* b) {
  const ThreadState* shown = nullptr;
  static const State order[] = {ready, at_step, at_transaction, at_grid_sync, in_warp_operation, at_barrier};
  for (State state : order)
    for (u32 i = b->count; i-- > 0;)
      if (b->threads[i].state == state) shown = &b->threads[i];
  blockIdx = b->index;
  if (shown) threadIdx = shown->index;
  return shown ? shown->caller : nullptr;
}

inline void report_stuck(Block* b, const char* what) {
  u32 seen[state_count] = {};
  for (u32 i = 0; i < b->count; i++) seen[b->threads[i].state]++;
  char text[1200];
  int used = snprintf(text, sizeof text, "%s in block (%u, %u, %u): of %u threads", what, b->index.x, b->index.y,
                      b->index.z, b->count);
  const char* separator = " ";
  for (int s = 0; s < state_count; s++) {
    if (!seen[s]) continue;
    used += snprintf(text + used, sizeof text - (usize)used, "%s%u %s", separator, seen[s], name_of((State)s));
    separator = ", ";
  }
  checks::report_standstill(b, what, show_waiting(b), text);
  record(b->launch, stuck, text);
  b->abandoned = true;
}

constexpr const char* deadlock = "deadlock";
constexpr const char* endless = "nothing but spinning";

// ---- one block on an OS thread --------------------------------------------------------------------------------------

struct Work {
  Launch* launch;
  const Body* body;
  i64 blocks, ticket;
  i32 workers, spinning;  // OS threads that run blocks, and those whose blocks only spin
};

inline bool stopped(const Launch* launch) { return __atomic_load_n(&launch->status, __ATOMIC_RELAXED) != fine; }

// Whether an OS thread counts among those that spin; it is over when all do.
struct Spin {
  Work* work;
  bool counted = false;
  void set(bool spins) {
    if (spins != counted) __atomic_fetch_add(&work->spinning, spins ? 1 : -1, __ATOMIC_RELAXED);
    counted = spins;
  }
  bool of_all() const {
    return __atomic_load_n(&work->spinning, __ATOMIC_RELAXED) == __atomic_load_n(&work->workers, __ATOMIC_RELAXED);
  }
  ~Spin() { set(false); }
};

inline bool has_more(const Work* work) { return __atomic_load_n(&work->ticket, __ATOMIC_RELAXED) < work->blocks; }

constexpr double soon = 0.05;  // seconds

// False where all OS threads only spin, and what they wait for may come from a block that has not begun.
inline bool run_block(Block* b, Work* work) {
  Launch* launch = work->launch;
  Spin spin{work};
  double since = 0;
  u64 progress = 0;
  for (;;) {
    const Outcome outcome = slice(b);
    if (outcome == ended || outcome == dropped) return true;
    if (outcome == idle) return report_stuck(b, deadlock), true;
    if (stopped(launch)) {
      b->abandoned = true;
      return true;
    }
    const bool nothing_new = checks::is_endless();
    sched_yield();  // what it waits for may come from a block on another OS thread
    if (!since || progress != b->progress) since = seconds(), progress = b->progress;
    const bool more = has_more(work), tired = seconds() - since > (more ? soon : launch->schedule.patience);
    spin.set(tired);
    if (!nothing_new && !(tired && spin.of_all())) continue;
    if (more) return false;
    return report_stuck(b, endless), true;
  }
}

// ---- many blocks in turn --------------------------------------------------------------------------------------------

struct Crowd {
  Work* work;
  Image image;
  Block** blocks;
  i64 live;
  u64 random;

  // From here on others take turns with a block that ran alone.
  void join(Block* b) {
    b->local = array_of<char>(image.size + 1);
    __builtin_memcpy(b->local, image.low, image.size);
    b->place = km_emu_here;
    blocks[live++] = b;
  }
  void add() {
    const i64 number = __atomic_fetch_add(&work->ticket, 1, __ATOMIC_RELAXED);
    if (number >= work->blocks) return;
    Block* b = take_block(work->launch);
    if (!b->local) b->local = array_of<char>(image.size + 1);
    begin(b, work->launch, work->body, image, number);
    blocks[live++] = b;
  }
  i64 pick(i64 last) {
    if (work->launch->schedule.order == reversed) return last > 0 && last <= live ? last - 1 : live - 1;
    if (work->launch->schedule.order == in_order) return (last + 1) % live;
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    return (i64)((random >> 33) % (u64)live);
  }
  Outcome turn(Block* b) {
    __builtin_memcpy(image.low, b->local, image.size);
    km_emu_here = b->place;
    blockIdx = b->index;
    const Outcome outcome = slice(b);
    b->place = km_emu_here;
    __builtin_memcpy(b->local, image.low, image.size);
    return outcome;
  }
  void drop(i64 which) {
    Block* b = blocks[which];
    blocks[which] = blocks[--live];
    free(b->local);
    b->local = nullptr;
    put_block(b);
  }
  bool all_at_grid() const {
    for (i64 i = 0; i < live; i++)
      if (!blocks[i]->at_grid) return false;
    return !has_more(work);
  }
  void open_grid() {
    checks::grid_opened(blocks, live);
    for (i64 i = 0; i < live; i++) {
      Block* b = blocks[i];
      b->at_grid = false;
      b->waiting_for_grid = 0;
      for (u32 t = 0; t < b->count; t++)
        if (b->threads[t].state == at_grid_sync) wake(b, t);
    }
  }
};

// One turn of one block; false when the launch is over early.
inline bool advance(Crowd& crowd, i64 which, i64& quiet, double& since, Spin& spin) {
  Launch* launch = crowd.work->launch;
  Block* b = crowd.blocks[which];
  if (!b->at_grid) {
    const u64 progress = b->progress;
    const Outcome outcome = crowd.turn(b);
    if (outcome != spinning) quiet = 0;
    else quiet++;
    if (outcome != spinning || b->progress != progress) since = seconds();
    if (outcome == ended) {
      crowd.drop(which);
      crowd.add();
      if (crowd.live && crowd.all_at_grid()) crowd.open_grid();
      return true;
    }
    if (outcome == idle) {
      b->at_grid = b->waiting_for_grid && b->waiting_for_grid == b->count - b->finished;
      if (!b->at_grid) report_stuck(b, deadlock);
    }
  }
  if (b->at_grid && crowd.all_at_grid()) crowd.open_grid();
  if (quiet > 2 * crowd.live && quiet % crowd.live == 0 && checks::is_endless()) report_stuck(b, endless);
  const bool tired = quiet > 2 * crowd.live && seconds() - since > launch->schedule.patience;
  spin.set(tired);
  if (tired && spin.of_all()) report_stuck(b, endless);
  return !stopped(launch);
}

inline void run_crowd(Work* work, i64 most, Block* first = nullptr) {
  const Place outside = km_emu_here;
  Crowd crowd = {work, image_of(work->body), array_of<Block*>((usize)most), 0, work->launch->schedule.seed};
  char* kept = array_of<char>(crowd.image.size + 1);
  __builtin_memcpy(kept, crowd.image.low, crowd.image.size);
  if (first) crowd.join(first);
  while (crowd.live < most && has_more(work)) crowd.add();
  Spin spin{work};
  i64 last = -1, quiet = 0;
  double since = seconds();
  while (crowd.live) {
    last = crowd.pick(last);
    if (!advance(crowd, last, quiet, since, spin)) break;
  }
  while (crowd.live) {
    crowd.blocks[0]->abandoned = true;
    crowd.drop(0);
  }
  __builtin_memcpy(crowd.image.low, kept, crowd.image.size);
  free(kept);
  free(crowd.blocks);
  km_emu_here = outside;
}

// ---- one block after the other, on each OS thread -------------------------------------------------------------------

constexpr i64 most_at_once = 512;

inline void run_tickets(Work* work) {
  take_divisions();
  const Place outside = km_emu_here;
  Block* b = take_block(work->launch);
  const Image image = checks::looks_on ? image_of(work->body) : Image();
  __atomic_fetch_add(&work->workers, 1, __ATOMIC_RELAXED);
  while (!b->abandoned && !stopped(work->launch)) {
    const i64 number = __atomic_fetch_add(&work->ticket, 1, __ATOMIC_RELAXED);
    if (number >= work->blocks) break;
    begin(b, work->launch, work->body, image, number);
    if (run_block(b, work)) continue;
    run_crowd(work, work->blocks < most_at_once ? work->blocks : most_at_once, b);
    b = nullptr;
    break;
  }
  __atomic_fetch_sub(&work->workers, 1, __ATOMIC_RELAXED);
  if (b) put_block(b);
  km_emu_here = outside;
}

}  // namespace km_emu
