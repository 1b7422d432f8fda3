// shadow.hpp - what the sanitizer keeps of memory: the arrays there are, who accessed which word last, and what was written.
// Whether two accesses are in order is decided in clocks.hpp.
#pragma once
#include <sys/mman.h>

#include <map>
#include <string>
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

inline void* zero_pages(usize bytes) {
  void* made = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) abort();
  return made;
}

enum Space : i32 { global_memory, static_shared, dynamic_shared, module_memory };

// An array: a cell for each word, or for each byte from the first narrow access on, and a bit for each byte that was written.
struct Region {
  char *low = nullptr, *high = nullptr;
  std::string name;
  Space space = global_memory;
  bool tracks_writes = false, freed = false;
  int shift = 2;
  Cell* cells = nullptr;
  usize cell_bytes = 0, ready = 0;  // so many bytes of the cells are there
  u8* written = nullptr;

  usize size() const { return (usize)(high - low); }
  bool contains(const char* p) const { return p >= low && p < high; }
  bool is_shared() const { return space == static_shared || space == dynamic_shared; }

  void cover(char* from, usize bytes, const char* called, Space where, bool tracks) {
    if (cells) munmap(cells, cell_bytes), munmap(written, size() / 4 + 2);
    low = from, high = from + bytes, name = called, space = where, tracks_writes = tracks, freed = false, shift = 2;
    cell_bytes = ((bytes + 3) / 4) * sizeof(Cell), ready = bytes < 65536 ? cell_bytes : 0;
    cells = (Cell*)zero_pages(cell_bytes);
    written = (u8*)zero_pages(bytes / 4 + 2);
  }
  // Cells are mostly used from the first on: the next ones are made ready together, not by a fault for each page.
  void prepare(usize cell) {
    constexpr usize step = 1 << 20;
    const usize at = (cell + 1) * sizeof(Cell);
    if (at > ready + step || ready >= cell_bytes) return;
    const usize more = cell_bytes - ready < step ? cell_bytes - ready : step;
    madvise((char*)cells + ready, more, 23);  // MADV_POPULATE_WRITE; older kernels refuse it, and nothing is lost
    ready += more;
  }
  void narrow() {
    const usize words = (size() + 3) / 4, bytes = (4 * words + 4) * sizeof(Cell);
    Cell* finer = (Cell*)zero_pages(bytes);
    for (usize i = 0; i < words; i++)
      if (cells[i].write.thread | cells[i].reads[0].thread)
        for (usize k = 0; k < 4; k++) finer[4 * i + k] = cells[i];
    munmap(cells, cell_bytes);
    cells = finer, cell_bytes = bytes, shift = 0, ready = 0;
  }
  void mark_written(usize at, usize bytes) {
    if (!(at & 3) && bytes == 4) {
      written[at >> 2] = 15;
      return;
    }
    for (; bytes && (at & 3); at++, bytes--) written[at >> 2] |= (u8)(1u << (at & 3));
    memset(written + (at >> 2), 15, bytes >> 2);
    at += bytes & ~(usize)3;
    for (bytes &= 3; bytes; at++, bytes--) written[at >> 2] |= (u8)(1u << (at & 3));
  }
  bool is_written(usize at, usize bytes) const {
    if (!((at | bytes) & 3)) {
      for (usize i = at >> 2; i < (at + bytes) >> 2; i++)
        if (written[i] != 15) return false;
      return true;
    }
    for (usize i = at; i < at + bytes; i++)
      if (!(written[i >> 2] >> (i & 3) & 1)) return false;
    return true;
  }
};

// A named piece of static shared memory, or a `__device__` array: its place in its image.
struct Symbol {
  usize at, bytes;
  std::string name;
};

struct Arrays {
  std::map<char*, Region*> regions;  // by their first address
  std::vector<Region*> module_parts;
  std::vector<Symbol> shared_symbols, module_symbols;
  static constexpr int remembered = 4;
  Region* recent[remembered] = {};
  int oldest = 0;

  void forget() {
    for (Region*& r : recent) r = nullptr;
  }
  Region* remember(Region* r) { return recent[oldest++ % remembered] = r; }

  void add(char* from, usize bytes, const char* name, bool tracks) {
    for (auto it = regions.begin(); it != regions.end();) {
      Region* r = it->second;
      if (r->low < from + bytes && r->high > from) {
        munmap(r->cells, r->cell_bytes), munmap(r->written, r->size() / 4 + 2);
        delete r;
        it = regions.erase(it);
      } else {
        ++it;
      }
    }
    forget();
    Region* made = new Region;
    made->cover(from, bytes, name, global_memory, tracks);
    regions[from] = made;
  }
  Region* at(char* p) {
    for (Region* r : recent)
      if (r && r->contains(p)) return r;
    auto it = regions.upper_bound(p);
    if (it != regions.begin()) {
      Region* r = (--it)->second;
      if (r->contains(p) && !r->freed) return remember(r);
    }
    for (Region* r : module_parts)
      if (r->contains(p)) return remember(r);
    return nullptr;
  }
  static const Symbol* symbol_at(const std::vector<Symbol>& symbols, usize at) {
    for (const Symbol& s : symbols)
      if (at - s.at < s.bytes) return &s;
    return nullptr;
  }
};

}  // namespace km_emu::checks
