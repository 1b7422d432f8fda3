// reduce_whole.cuh - one sequence in one dimension, with commutative operators: the quickest way from elements to one result.
// Parts are handed over with a tag, so that the last block sees them without a counter to wait for.
#pragma once
#include "reduce_rows.cuh"

namespace km {

// `parts` of a call hold a number that grows with each launch, and records of eight bytes of a part and that number, which are
// read and written at once.  They are zero at first, and only launches of these loops use them, one after the other.
template <class State>
struct tagged {
  static constexpr int words = (int)(sizeof(State) + 7) / 8;
  struct raw { u64 word[words]; };
  struct __align__(8) padded { State value; };
  static KM_INL u64* epoch(char* parts) { return (u64*)parts; }
  static KM_INL char* record(char* parts, int piece, int word) { return parts + 16 * (1 + piece * words + word); }

  static KM_INL void put(char* parts, int piece, const State& value, u64 tag) {
    const raw r = bit_cast<raw>(padded{value});
    KM_UNROLL_ALL for (int w = 0; w < words; w++) store_both(record(parts, piece, w), r.word[w], tag);
  }
  static KM_INL State wait(char* parts, int piece, u64 tag) {
    raw r;
    KM_UNROLL_ALL for (int w = 0; w < words; w++) {
      u64 seen;
      do load_both(record(parts, piece, w), r.word[w], seen);
      while (seen != tag);
    }
    return bit_cast<padded>(r).value;
  }
};

// T threads make a block; a thread takes U packets of V neighbours at a time.
template <class Pass, int T, int V, int U>
struct whole : rows<Pass, false, V, U> {
  typedef rows<Pass, false, V, U> row_loops;
  using typename Pass::bank;
  using typename Pass::call;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;
  typedef block_storage<state, T> storage;

  // The values of threads 0 .. count - 1 combined, for thread 0.
  static KM_INL state total(state value, const bank& fold, storage& room, i64 count) {
    const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id(), held = (int)smaller<i64>(count, T);
    value = warp_reduce(value, fold, held - warp * warp_size);
    if (lane == 0) room[warp] = value;
    block_barrier();
    const int filled = (held + warp_size - 1) / warp_size;
    if (warp == 0) value = team_reduce<storage::warps>(room[lane < filled ? lane : 0], fold, filled);
    return value;
  }
  static KM_INL state piece_of(const call& c, const Map& map, const bank& fold, storage& room, i64 low, i64 high) {
    place from;
    KM_UNROLL_ALL for (int k = 0; k < Pass::inputs; k++) from.at[k] = c.data[k];
    state made;
    const i64 count = row_loops::share(c, map, fold, from, low, high, (int)threadIdx.x, T, made);
    return total(made, fold, room, count);
  }
  static KM_INL void one(const call& c) {
    __shared__ storage room;
    const Map map(c.captures);
    const bank fold(c.captures);
    const state made = piece_of(c, map, fold, room, 0, c.length);
    if (threadIdx.x == 0) Pass::store_first(c, fold, made);
  }
  static KM_INL void several(const call& c) {
    __shared__ storage room, rest;
    const Map map(c.captures);
    const bank fold(c.captures);
    typedef tagged<state> parts;
    const u64 tag = atomic_load<relaxed>(parts::epoch(c.parts)) + 1;
    const int piece = (int)blockIdx.x, last = (int)gridDim.x - 1, t = (int)threadIdx.x;
    const i64 low = piece * c.piece;
    state made = piece_of(c, map, fold, room, low, smaller(c.length, low + c.piece));
    if (piece < last) {
      if (t == 0) parts::put(c.parts, piece, made, tag);
      return;
    }
    // The last block: blocks start in their order, so it waits for those that started before it.
    state joined = made;
    if (t > 0 && t <= last) joined = parts::wait(c.parts, t - 1, tag);
    _Pragma("unroll 1") for (int other = t + T; other <= last; other += T)
      joined = fold(joined, parts::wait(c.parts, other - 1, tag));
    joined = total(joined, fold, rest, last + 1);
    if (t == 0) {
      Pass::store_first(c, fold, joined);
      atomic_store<relaxed>(parts::epoch(c.parts), tag);
    }
  }
};

}  // namespace km
