// briefs.hpp - what happened to a word of global memory in a launch: in 8 bytes as long as one thread did it at one moment of
// its clock, else in a cell. Whether accesses are in order is decided in clocks.hpp.
#pragma once
#include <sys/mman.h>

#include <vector>

#include "state.hpp"

namespace km_emu::checks {

// `thread` counts over all launches, so that what an earlier launch did needs no clearing.
struct Access {
  u32 thread, clock, caller;
};
struct Cell {
  Access write, reads[2];
  u8 atomic_write, atomic_reads[2];
};

constexpr usize large_page = 2 << 20;

// Large pages that were made before they are asked for.
inline struct {
  char *next = nullptr, *end = nullptr;
} ready_pages;

// Pages that are zero; large ones where there are many, since a fault for each small one takes longer than the access.
inline void* zero_pages(usize bytes) {
  const usize large = (bytes + large_page - 1) & ~(large_page - 1);
  if (bytes >= large_page && large <= (usize)(ready_pages.end - ready_pages.next)) {
    char* made = ready_pages.next;
    ready_pages.next += large;
    return made;
  }
  const usize room = bytes >= large_page ? large + large_page : bytes ? bytes : 1;
  char* made = (char*)mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) abort();
  if (bytes < large_page) return made;
  char* from = (char*)(((usize)made + large_page - 1) & ~(large_page - 1));
  char* end = from + large;
  if (from > made) munmap(made, (usize)(from - made));
  if (made + room > end) munmap(end, (usize)(made + room - end));
  madvise(from, large, MADV_HUGEPAGE);  // refused where there are none, and nothing is lost
  return from;
}
inline void give_back(void* pages, usize bytes) {
  munmap(pages, bytes >= large_page ? (bytes + large_page - 1) & ~(large_page - 1) : bytes ? bytes : 1);
}
inline void make_pages_ready(usize bytes) {
  if (bytes < large_page) return;
  bytes = (bytes + large_page - 1) & ~(large_page - 1);
  char* made = (char*)zero_pages(bytes);
  madvise(made, bytes, 23);  // MADV_POPULATE_WRITE; older kernels refuse it, and pages are made later
  ready_pages = {made, made + bytes};
}

// What a thread did at one moment of its clock: where it wrote, where it read.
enum Did : u32 { wrote = 1, wrote_atomically = 2, read = 4, read_atomically = 8 };
struct Deed {
  u32 clock, write, read, did;
  bool operator==(const Deed& o) const { return clock == o.clock && write == o.write && read == o.read && did == o.did; }
};
struct Brief {
  u32 thread, deed;  // the thread, and the number of its deed; or `several`, and the number of a cell
};
constexpr u32 several = ~0u;
// Added to a deed: what other threads read before is in a second record of the word, `earlier`. Nobody wrote it then.
constexpr u32 with_earlier = 1u << 31;
// Between that and the deed stand seven bits of the first reader, so that most questions whether it is the same need no look.
constexpr u32 deed_bits = (1u << 24) - 1;
inline u32 mark_of(u32 first) { return with_earlier | (first * 0x9e3779b9u >> 25 << 24); }

// Deeds of a launch by their numbers. Most threads do the same things at the same moments, so there are few.
struct Deeds {
  static constexpr u32 most = deed_bits, remembered = 1 << 14;
  Deed* all = nullptr;
  u32 count = 1;
  u32 known[remembered] = {};

  void clear() {
    if (!all) all = (Deed*)zero_pages((usize)most * sizeof(Deed));
    count = 1;
  }
  // Returns 0 when there is no more room.
  u32 number(const Deed& deed) {
    const u64 mixed = (deed.clock * 0x9e3779b97f4a7c15ull) ^ (deed.write * 0xc2b2ae3d27d4eb4full) ^
                      (deed.read * 0x165667b19e3779f9ull) ^ ((u64)deed.did << 40);
    u32& at = known[(mixed ^ mixed >> 29) >> 8 & (remembered - 1)];
    if (at && at < count && all[at] == deed) return at;
    if (count == most) return 0;
    all[count] = deed;
    return at = count++;
  }
};

// Cells of words that several threads accessed in this launch; their numbers grow over all launches.
struct Cells {
  static constexpr u32 part = 1 << 17;
  std::vector<Cell*> parts;
  u32 first = 1, next = 1;

  void clear() { first = next; }
  bool has(u32 number) const { return number - first < next - first; }
  Cell& at(u32 number) { return parts[(number - first) / part][(number - first) % part]; }
  u32 add(const Cell& cell) {
    if ((next - first) / part == parts.size()) parts.push_back((Cell*)zero_pages(part * sizeof(Cell)));
    at(next) = cell;
    return next++;
  }
};

inline Deeds deeds;
inline Cells cells;

inline Access read_by(const Brief& brief) {
  const Deed& deed = deeds.all[brief.deed & deed_bits];
  return {brief.thread, deed.clock, deed.read};
}
inline Cell opened(const Brief& brief, const Brief* earlier, u32 launch_first) {
  Cell cell = {};
  if (brief.thread < launch_first || brief.thread == several) return cell;
  if (brief.deed & with_earlier) {
    cell.reads[0] = read_by(*earlier), cell.reads[1] = read_by(brief);
    return cell;
  }
  const Deed& deed = deeds.all[brief.deed];
  if (deed.did & wrote)
    cell.write = {brief.thread, deed.clock, deed.write}, cell.atomic_write = (deed.did & wrote_atomically) != 0;
  if (deed.did & read)
    cell.reads[0] = {brief.thread, deed.clock, deed.read}, cell.atomic_reads[0] = (deed.did & read_atomically) != 0;
  return cell;
}
inline Brief closed(const Cell& cell) {
  const int which = cell.reads[0].thread ? 0 : 1;
  const Access &write = cell.write, &last = cell.reads[which];
  const bool alone = !cell.reads[0].thread || !cell.reads[1].thread;
  const bool alike = !write.thread || !last.thread || (write.thread == last.thread && write.clock == last.clock);
  if (alone && alike) {
    const Access& one = write.thread ? write : last;
    Deed deed = {one.clock, 0, 0, 0};
    if (write.thread) deed.write = write.caller, deed.did = cell.atomic_write ? wrote | wrote_atomically : wrote;
    if (last.thread) deed.read = last.caller, deed.did |= cell.atomic_reads[which] ? read | read_atomically : read;
    if (const u32 number = deeds.number(deed)) return {one.thread, number};
  }
  return {several, cells.add(cell)};
}

}  // namespace km_emu::checks
