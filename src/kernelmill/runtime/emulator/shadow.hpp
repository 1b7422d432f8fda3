// shadow.hpp - what the sanitizer keeps of memory: the arrays there are, who accessed which word last, and what was written.
// Whether two accesses are in order is decided in clocks.hpp.
#pragma once
#include <string.h>

#include <map>
#include <string>

#include "briefs.hpp"

namespace km_emu::checks {

enum Space : i32 { global_memory, static_shared, dynamic_shared, module_memory };

// An array: a record for each word, or for each byte from the first narrow access on, and a bit for each byte that was written.
struct Region {
  char *low = nullptr, *high = nullptr;
  std::string name;
  Space space = global_memory;
  bool tracks_writes = false, freed = false;
  int shift = 2;
  Cell* full = nullptr;     // of shared memory, where many threads access each word
  Brief* briefs = nullptr;  // of other memory
  Brief* earlier = nullptr;  // made when first a word is read by several threads
  usize record_bytes = 0;
  u8* written = nullptr;

  Region() = default;
  Region(const Region&) = delete;
  ~Region() { drop(); }

  usize size() const { return (usize)(high - low); }
  bool contains(const char* p) const { return p >= low && p < high; }
  bool is_shared() const { return space == static_shared || space == dynamic_shared; }

  void drop() {
    if (!written) return;
    give_back(full ? (void*)full : briefs, record_bytes), give_back(written, size() / 4 + 2);
    drop_earlier();
    full = nullptr, briefs = nullptr, written = nullptr;
  }
  void drop_earlier() {
    if (earlier) give_back(earlier, record_bytes);
    earlier = nullptr;
  }
  Brief& earlier_of(usize record) {
    if (!earlier) earlier = (Brief*)zero_pages(record_bytes);
    return earlier[record];
  }
  void make_records(usize count) {
    record_bytes = count * (is_shared() ? sizeof(Cell) : sizeof(Brief)) + 1;
    void* made = zero_pages(record_bytes);
    if (is_shared()) full = (Cell*)made;
    else briefs = (Brief*)made;
  }
  void cover(char* from, usize bytes, const char* called, Space where, bool tracks) {
    drop();
    low = from, high = from + bytes, name = called, space = where, tracks_writes = tracks, freed = false, shift = 2;
    make_records((bytes + 3) / 4);
    written = (u8*)zero_pages(bytes / 4 + 2);
  }
  // From now on a record a byte.
  void narrow() {
    const usize words = (size() + 3) / 4, bytes = record_bytes;
    const Cell* old_cells = full;
    const Brief *old_briefs = briefs, *old_earlier = earlier;
    earlier = nullptr;
    make_records(4 * words);
    for (usize i = 0; i < 4 * words; i++) {
      if (old_cells) {
        full[i] = old_cells[i / 4];
      } else if (const Brief brief = old_briefs[i / 4]; brief.thread) {
        const bool own = brief.thread == several && cells.has(brief.deed);
        briefs[i] = own ? Brief{several, cells.add(cells.at(brief.deed))} : brief;
        if (brief.thread != several && (brief.deed & with_earlier)) earlier_of(i) = old_earlier[i / 4];
      }
    }
    give_back(old_cells ? (void*)old_cells : (void*)old_briefs, bytes);
    if (old_earlier) give_back((void*)old_earlier, bytes);
    shift = 0;
  }
  // Nothing has happened yet.
  void forget() {
    if (!written) return;
    give_back(full ? (void*)full : briefs, record_bytes);
    drop_earlier();
    make_records(((size() + 3) / 4) << (2 - shift));
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

// What an instruction accessed last, so that the next access is found by one comparison.
struct alignas(64) Site {
  const void* caller;
  char* low;      // from here on, so many bytes are one array, or are none of the kernel's (then there is no region)
  usize bytes;
  usize quick_bytes;  // offsets below belong to an access of one record alone; 0 where more is to be looked at
  Region* region;
  Brief* briefs;  // null where accesses go the long way
  u8* written;    // null where nobody asks
  u32 clock, deed;
};
static_assert(sizeof(Site) == 64, "a line of the cache");
constexpr usize site_count = 256;
inline Site sites[site_count];
inline Site& site_of(const void* caller) {
  const usize at = (usize)caller;
  return sites[(at ^ at >> 8) & (site_count - 1)];
}
inline void forget_sites() { memset(sites, 0, sizeof sites); }

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
    forget_sites();
  }
  void forget_accesses() {
    for (auto& [low, r] : regions) r->forget();
    for (Region* r : module_parts) r->forget();
  }
  Region* remember(Region* r) { return recent[oldest++ % remembered] = r; }

  void add(char* from, usize bytes, const char* name, bool tracks) {
    for (auto it = regions.begin(); it != regions.end();) {
      Region* r = it->second;
      if (r->low < from + bytes && r->high > from) {
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
