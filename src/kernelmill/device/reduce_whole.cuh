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
  // What is there; `there` if all of it has the tag.
  static KM_INL State look(char* parts, int piece, u64 tag, bool& there) {
    raw r;
    there = true;
    KM_UNROLL_ALL for (int w = 0; w < words; w++) {
      u64 seen;
      load_both(record(parts, piece, w), r.word[w], seen);
      there &= seen == tag;
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
  using typename Pass::every_input;
  using typename Pass::place;
  using typename Pass::state;
  typedef typename Pass::map_type Map;
  typedef block_storage<state, T> storage;
  typedef tagged<state> parts;
  static constexpr int warps = T / warp_size;

  // ---- the elements of a block

  template <int N>
  static KM_INL void take(const call& c, const Map& map, const bank& fold, const place& at, state (&acc)[V], bool any) {
    place from[N];
    KM_UNROLL_ALL for (int u = 0; u < N; u++) from[u] = Pass::template along<true>(c, at, 0, u * T * V, every_input());
    row_loops::template absorb<V, N>(fold, Pass::template read<V, N>(c, map, from), acc, any);
  }
  // What a thread has of the `count` elements from `start` on, which packets fit.
  static KM_INL state own(const call& c, const Map& map, const bank& fold, const place& start, i64 count) {
    const int t = (int)threadIdx.x, rest = (int)((u64)count % V);
    const i64 packets = (i64)((u64)count / V);
    i64 left = packets <= t ? 0 : (i64)((u64)(packets - t + (T - 1)) / T);
    place at = Pass::template along<true>(c, start, 0, t * V, every_input());
    state acc[V], made;
    bool any = false;
    _Pragma("unroll 1") for (; left >= U; left -= U, any = true) {
      take<U>(c, map, fold, at, acc, any);
      at = Pass::template along<true>(c, at, 0, U * T * V, every_input());
    }
    _Pragma("unroll 1") for (; left > 0; left--, any = true) {
      take<1>(c, map, fold, at, acc, any);
      at = Pass::template along<true>(c, at, 0, T * V, every_input());
    }
    if (any) {
      KM_UNROLL_ALL for (int s = 1; s < V; s *= 2)
        KM_UNROLL_ALL for (int w = 0; w + s < V; w += 2 * s) acc[w] = fold(acc[w], acc[w + s]);
      made = acc[0];
    }
    if (t < rest) {
      const place last[1] = {Pass::template along<true>(c, start, 0, packets * V + t, every_input())};
      const state one = Pass::template read<1, 1>(c, map, last).item[0];
      made = any ? fold(made, one) : one;
    }
    return made;
  }
  struct shared_out { state made; int count; };
  // The same at any address.
  static KM_COLD shared_out anywhere(const call& c, const Map map, const bank fold, i64 low, i64 high) {
    shared_out found;
    found.count = (int)smaller<i64>(
        T, row_loops::share(c, map, fold, inputs_of(c), low, high, (int)threadIdx.x, T, found.made));
    return found;
  }
  static KM_INL place inputs_of(const call& c) {
    place from;
    KM_UNROLL_ALL for (int k = 0; k < Pass::inputs; k++) from.at[k] = c.data[k];
    return from;
  }
  // What each thread has of the elements low .. low + count - 1, and how many threads have any, the first ones.
  static KM_INL shared_out share_of(const call& c, const Map& map, const bank& fold, i64 low, i64 count) {
    const place from = inputs_of(c);
    if (KM_UNLIKELY(!(Pass::template packets_fit<false, V>(c, from)))) return anywhere(c, map, fold, low, low + count);
    const i64 packets = (i64)((u64)count / V);
    const int held = packets >= T ? T : (int)larger<i64>(packets, (i64)((u64)count % V));
    return {own(c, map, fold, Pass::template along<true>(c, from, 0, low, every_input()), count), held};
  }

  // ---- values of threads combined: the result is that of the first one

  template <int Lanes>
  static KM_INL state of_lanes(state value, const bank& fold, int count) {
    const int lane = (int)lane_id();
    KM_UNROLL_ALL for (int s = 1; s < Lanes; s *= 2) {
      const state other = shuffle_down(value, s);
      if (lane + s < count) value = fold(value, other);
    }
    return value;
  }
  static KM_INL state total(state value, const bank& fold, storage& room, int count) {
    const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id();
    value = of_lanes<warp_size>(value, fold, count - warp * warp_size);
    if (lane == 0) room[warp] = value;
    block_barrier();
    const int filled = (count + warp_size - 1) / warp_size;
    if (warp == 0) value = of_lanes<warps>(room[lane < filled ? lane : 0], fold, filled);
    return value;
  }
  // Combines records first, first + step ... before `end` with what is there, if `any`.  Those that are missing are asked for
  // together, again and again.
  template <int Many>
  static KM_INL void gather(char* at, int first, int step, int end, u64 tag, const bank& fold, state& value, bool any) {
    _Pragma("unroll 1") for (int r = first; r < end; r += Many * step) {
      state some[Many];
      bool there[Many], all;
      KM_UNROLL_ALL for (int k = 0; k < Many; k++) there[k] = r + k * step >= end;
      do {
        KM_UNROLL_ALL for (int k = 0; k < Many; k++)
          if (!there[k]) some[k] = parts::look(at, r + k * step, tag, there[k]);
        all = true;
        KM_UNROLL_ALL for (int k = 0; k < Many; k++) all &= there[k];
      } while (!all);
      KM_UNROLL_ALL for (int k = 0; k < Many; k++) {
        if (r + k * step >= end) break;
        value = any ? fold(value, some[k]) : some[k];
        any = true;
      }
    }
  }

  // ---- the loops

  static KM_INL void one(const call& c) {
    __shared__ storage room;
    const Map map(c.captures);
    const bank fold(c.captures);
    const shared_out mine = share_of(c, map, fold, 0, c.length);
    const state made = total(mine.made, fold, room, mine.count);
    if (threadIdx.x == 0) Pass::store_first(c, fold, made);
  }

  // Several blocks: each hands over what it has, or each of its warps does, and the last block combines that.  Blocks start in
  // their order, so it waits for those that started before it.
  struct site {
    i64 low, count;
    char* at;
    u64 tag;
    int piece, last;
  };
  // Everything that is read before the elements is asked for at once.
  static KM_INL site begin(const call& c) {
    u64 length = (u64)c.length, step = (u64)c.piece, address = (u64)c.parts;
    settle(length), settle(step), settle(address);
    site s;
    s.at = (char*)address;
    s.tag = atomic_load<relaxed>(parts::epoch(s.at)) + 1;
    s.piece = (int)blockIdx.x, s.last = (int)gridDim.x - 1;
    s.low = s.piece * (i64)step;
    s.count = smaller((i64)length - s.low, (i64)step);
    return s;
  }
  static KM_INL void finish(const call& c, const site& s, const bank& fold, const state& made) {
    if (threadIdx.x > 0) return;
    Pass::store_first(c, fold, made);
    atomic_store<relaxed>(parts::epoch(s.at), s.tag);
  }
  static KM_INL void several(const call& c) {
    __shared__ storage room;
    const Map map(c.captures);
    const bank fold(c.captures);
    const site s = begin(c);
    const int lane = (int)lane_id();
    const shared_out mine = share_of(c, map, fold, s.low, s.count);
    state made = total(mine.made, fold, room, mine.count);
    if (s.piece < s.last) {
      if (threadIdx.x == 0) parts::put(s.at, s.piece, made, s.tag);
    } else if (threadIdx.x < warp_size) {
      gather<8>(s.at, lane, warp_size, s.last, s.tag, fold, made, lane == 0);
      finish(c, s, fold, of_lanes<warp_size>(made, fold, larger(1, smaller(s.last, warp_size))));
    }
  }
  static KM_INL void by_warp(const call& c) {
    __shared__ storage room;
    const Map map(c.captures);
    const bank fold(c.captures);
    const site s = begin(c);
    const int warp = (int)threadIdx.x / warp_size, t = (int)threadIdx.x;
    const shared_out mine = share_of(c, map, fold, s.low, s.count);
    state made = of_lanes<warp_size>(mine.made, fold, mine.count - warp * warp_size);
    if (lane_id() == 0 && warp * warp_size < mine.count) parts::put(s.at, s.piece * warps + warp, made, s.tag);
    if (s.piece < s.last) return;
    const int records = s.last * warps + (mine.count + warp_size - 1) / warp_size;
    gather<2>(s.at, t, T, records, s.tag, fold, made, false);
    finish(c, s, fold, total(made, fold, room, smaller(records, T)));
  }
};

}  // namespace km
