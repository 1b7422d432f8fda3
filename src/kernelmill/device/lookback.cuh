// lookback.cuh - what the tiles of one array tell each other in a single launch: the total of each tile, published with the
// number of the launch, and for each tile the combination of all tiles before it, in an order that depends on their numbers
// alone.  Nothing is reset between launches.  Rings of stages are in ring.cuh; what a tile's total is, in the families.
//
//   typedef km::lookback<T, Op> look;        // T: any trivially copyable type; Op: associative, need not commute
//   look::bytes(tiles)                       // scratch memory of a call, behind its first 16 bytes (`look::table`)
//   u32 tag = km::launch_number(c.parts);    // of this launch; read by every block that publishes or looks back
//   look::publish(table, tile, tag, total);  // by one lane
//   look past; T before = past.prefix(table, tag, tile, op);   // by a whole warp, tile > 0; lane 0 has the result
//   km::launch_over(c.parts, tag);           // by one thread, when every block has read the number
//
// The tree: tiles form groups of 128, a group's tiles segments of 32.  Totals of a segment combine as adjacent pairs, segments
// of a group from left to right, groups from left to right; a group and a segment that end with the tile asked for are
// shorter.  A warp that asks for one tile after another keeps the groups that are complete (`past`).
// Scratch memory is `packed` for values of up to 4 bytes, else `tagged` (algorithms/policy.py knows which): zero before the
// first launch on a stream, and used by one launch at a time.
#pragma once
#include "warp.cuh"

namespace km {

constexpr int group_tiles = 128, segment_tiles = warp_size;

// ---- the number of a launch -----------------------------------------------------------------------------------------------

KM_INL u32 launch_number(const char* parts) {
  const u32 next = (u32)atomic_load<relaxed>((const u64*)parts) + 1;
  return next ? next : 1;  // 0 is what memory holds that nobody has written
}
KM_INL void launch_over(char* parts, u32 tag) { atomic_store<relaxed>((u64*)parts, (u64)tag); }

// ---- values with the number of their launch ---------------------------------------------------------------------------------

// Up to 4 bytes go into one word with the number; others into records of 8 bytes and the number, each moved as one.
template <class T>
struct published {
  static constexpr bool packed = sizeof(T) <= 4;
  static constexpr int words = packed ? 1 : (int)(sizeof(T) + 7) / 8, bytes = packed ? 8 : 16 * words;
  struct __align__(8) padded { T value; };
  struct __align__(4) half { T value; };
  struct raw { u64 word[words]; };

  static KM_INL void put(char* table, i64 slot, u32 tag, const T& value) {
    char* to = table + slot * bytes;
    if constexpr (packed) {
      atomic_store<relaxed>((u64*)to, (u64)tag << 32 | bit_cast<u32>(half{value}));
    } else {
      const raw r = bit_cast<raw>(padded{value});
      KM_UNROLL_ALL for (int w = 0; w < words; w++) store_both(to + 16 * w, r.word[w], (u64)tag);
    }
  }
  // Whether the value is there.
  static KM_INL bool get(const char* table, i64 slot, u32 tag, T& value) {
    const char* from = table + slot * bytes;
    if constexpr (packed) {
      const u64 seen = atomic_load<relaxed>((const u64*)from);
      value = bit_cast<half>((u32)seen).value;
      return (u32)(seen >> 32) == tag;
    } else {
      raw r;
      bool there = true;
      KM_UNROLL_ALL for (int w = 0; w < words; w++) {
        u64 seen;
        load_both(from + 16 * w, r.word[w], seen);
        there &= seen == (u64)tag;
      }
      value = bit_cast<padded>(r).value;
      return there;
    }
  }
};

// ---- looking back -------------------------------------------------------------------------------------------------------------

// `Depth` segments are asked for at a time: all loads are under way before the first is looked at.
template <class T, class Op, int Depth = (sizeof(T) <= 8 ? 8 : sizeof(T) <= 16 ? 4 : 1)>
struct lookback {
  typedef published<T> record;
  static constexpr int depth = Depth;

  T before;        // of whole groups, in lane 0
  i64 groups = 0;  // how many

  // Where records begin, and the bytes of all: one a tile, and one a group.
  static KM_INL char* table(char* parts) { return parts + 16; }
  static KM_INL constexpr i64 bytes(i64 tiles) { return 16 + record::bytes * (tiles + tiles / group_tiles + 1); }
  static KM_INL void publish(char* table, i64 tile, u32 tag, const T& total) { record::put(table, tile, tag, total); }

  // The records of `depth` segments from `first` on, of tiles before `end`; waits for them.
  static KM_INL void fetch(const char* table, u32 tag, i64 first, i64 end, T (&value)[depth]) {
    const i64 mine = first + (i64)lane_id();
    bool there[depth];
    KM_UNROLL_ALL for (int u = 0; u < depth; u++)
      there[u] = record::get(table, smaller(mine + u * segment_tiles, end - 1), tag, value[u]);
    for (;;) {
      bool all = true;
      KM_UNROLL_ALL for (int u = 0; u < depth; u++) all &= there[u];
      if (vote_all(all)) break;
      KM_UNROLL_ALL for (int u = 0; u < depth; u++)
        if (!there[u]) there[u] = record::get(table, smaller(mine + u * segment_tiles, end - 1), tag, value[u]);
    }
  }
  // Each segment's values become its total, in lane 0.
  static KM_INL void pair(i64 first, i64 end, const Op& op, T (&value)[depth]) {
    const i64 mine = first + (i64)lane_id();
    KM_UNROLL_ALL for (int s = 1; s < segment_tiles; s *= 2)
      KM_UNROLL_ALL for (int u = 0; u < depth; u++) {
        const T other = shuffle_down(value[u], s);
        if ((int)lane_id() + s < warp_size && mine + u * segment_tiles + s < end) value[u] = op(value[u], other);
      }
  }

  // All tiles before `tile`, which is greater than 0; never smaller than that of the call before on this object.
  KM_INL T prefix(const char* table, u32 tag, i64 tile, const Op& op) {
    constexpr int each = group_tiles / segment_tiles;
    T group;
    int held = 0;  // segments in `group`
    _Pragma("unroll 1") for (i64 first = groups * group_tiles; first < tile; first += depth * segment_tiles) {
      T value[depth];
      fetch(table, tag, first, tile, value);
      pair(first, tile, op, value);
      KM_UNROLL_ALL for (int u = 0; u < depth; u++) {
        const i64 at = first + u * segment_tiles;
        if (at < tile) {
          group = held ? op(group, value[u]) : value[u];
          held++;
          if (held == each && at + segment_tiles <= tile) {
            before = groups ? op(before, group) : group;
            groups++;
            held = 0;
          }
        }
      }
    }
    if (!held) return before;
    return groups ? op(before, group) : group;
  }

  // For who asks once: the latest groups that are there, of those before `group`.
  KM_INL void begin(const char* table, i64 tiles, u32 tag, i64 group) {
    const i64 mine = group - (i64)lane_id();
    for (;;) {
      const bool there = mine <= 0 || record::get(table, tiles + mine, tag, before);
      const u32 found = ballot(there);
      if (!found) continue;
      const int lane = __ffs((int)found) - 1;
      before = shuffle(before, lane);
      groups = larger<i64>(0, group - lane);
      return;
    }
  }
};

// The same for a block that asks once, whole, of `tiles` tiles: each of its warps waits for a segment.  The last tile of each
// group publishes the groups so far, and others begin at the latest that is there.
template <class T, class Op, int Warps>
struct block_lookback {
  typedef lookback<T, Op, 1> look;
  typedef published<T> record;
  struct room {
    __align__(16) char bytes[(Warps + 2) * sizeof(T)];
    int groups;
    KM_INL T& segment(int w) { return ((T*)bytes)[w]; }
    KM_INL T& whole() { return segment(Warps); }
    KM_INL T& far() { return segment(Warps + 1); }
  };

  // The record of a tile, waited for.
  static KM_INL T wait(const char* table, i64 slot, u32 tag) {
    T value;
    while (!vote_all(record::get(table, slot, tag, value))) {
    }
    return value;
  }
  // All tiles before `tile`, which is greater than 0, in every thread.
  static KM_INL T prefix(char* table, int tiles, u32 tag, int tile, const Op& op, room& s, int warp) {
    constexpr int each = group_tiles / segment_tiles;
    const bool hands_on = tile % group_tiles == group_tiles - 1 && tile + 1 < tiles;
    T before, group;
    int groups = 0, held = 0;  // held: segments in `group`
    if (tile / group_tiles > 1) {  // the first groups are read as quickly themselves
      if (warp == 0) {
        look latest;
        latest.begin(table, tiles, tag, tile / group_tiles);
        if (lane_id() == 0) s.far() = latest.before, s.groups = (int)latest.groups;
      }
      block_barrier();
      groups = s.groups;
      if (groups) before = s.far();
    }
    _Pragma("unroll 1") for (int first = groups * group_tiles; first < tile; first += Warps * segment_tiles) {
      const int mine = first + warp * segment_tiles, many = tile - mine;
      if (many > 0) {
        const T value = wait(table, mine + smaller((int)lane_id(), many - !hands_on), tag);
        const T sum = warp_reduce(value, op, smaller(many, segment_tiles));
        if (lane_id() == 0) s.segment(warp) = sum;
        if (hands_on && many < segment_tiles) {
          const T all = warp_reduce(value, op, many + 1);
          if (lane_id() == 0) s.whole() = all;
        }
      }
      block_barrier();
      _Pragma("unroll 1") for (int w = 0; w < Warps && first + w * segment_tiles < tile; w++) {
        const bool ends = first + (w + 1) * segment_tiles <= tile;
        if (hands_on && !ends && threadIdx.x == 0) {
          const T all = held ? op(group, s.whole()) : s.whole();
          record::put(table, tiles + groups + 1, tag, groups ? op(before, all) : all);
        }
        group = held ? op(group, s.segment(w)) : s.segment(w);
        held++;
        if (held == each && ends) {
          before = groups ? op(before, group) : group;
          groups++;
          held = 0;
        }
      }
      if (first + Warps * segment_tiles < tile) block_barrier();
    }
    if (!held) return before;
    return groups ? op(before, group) : group;
  }
};

}  // namespace km
