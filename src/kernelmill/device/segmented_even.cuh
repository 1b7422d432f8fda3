// segmented_even.cuh - reductions of segments whose lengths are much alike: some lanes of a warp for each segment, as many as
// its elements keep busy, and a block for one that is longer than others by far.  Which lane takes what depends on the mean
// length and the length of the segment alone.  What else there is of segments is in segmented.cuh.
//
//   typedef km::even_segments<Run, Map, T, ordered, Wide, Access> even;   // Run: an instance of km::segmented
//   if (even::reduce(call, op, empty, shared)) return;           // false: lengths differ, and nothing has been done
#pragma once
#include "operands.cuh"
#include "warp.cuh"

namespace km {

// A 32nd of the segments has the same share of the elements as any other, or as much more or less of it as 1 : `even_slack`.
constexpr i64 even_slack = 4;

template <class Run, class Map, class T, bool Ordered, int Wide, template <class> class Access>
struct even_segments {
  typedef typename Run::call call;
  typedef typename Run::A A;
  typedef typename Run::fold Fold;
  typedef typename Run::none Empty;
  // `rounds` times the elements that the lanes of a segment take at a time is the most that they take: beyond, it is for the
  // block.  A lane takes `Wide` elements at a time, or `deep` times as many of a segment that has all lanes of a warp.
  static constexpr int threads = Run::threads, deep = 4, rounds = 32;

  struct shared {
    A part[threads / warp_size];
    bool any_late;
    u32 late[threads / warp_size];  // of some segments beside each other, those that are for the block
  };
  struct span {
    i64 begin, end;
  };

  static KM_INL span span_of(const call& c, i64 i, i64 end) {
    span s{0, 0};
    if (i < end) s.begin = Run::offset(c, i), s.end = Run::offset(c, i + 1);
    return s;
  }
  // Whether lengths are alike, as far as 32 offsets tell.  All warps of a launch find the same.
  static KM_INL bool alike(const call& c) {
    const i64 at = (lane_id() + 1) * c.segments / warp_size;
    const f64 all = (f64)c.segments * (f64)c.items;
    const f64 off = (f64)Run::offset(c, at) * (f64)c.segments - (f64)at * (f64)c.items;
    return vote_all((off < 0 ? -off : off) * (warp_size * even_slack) <= all);
  }

  // How many neighbours a lane takes where order counts; `lanes` are a power of 2.
  template <class Length> static KM_INL Length run_of(Length length, int lanes) {
    return (length + lanes - 1) >> (31 - __clz(lanes));
  }
  // What a lane has of a segment, of which `lanes` share it, in their order; any value where it has nothing.
  template <class Length>
  static KM_INL A gather_run(const Map& map, const Fold& op, const char* from, Length length, int lane, int lanes) {
    const Length run = run_of(length, lanes), end = smaller<Length>(length, (lane + 1) * run);
    A sum;
    Length at = lane * run;
    if (at < end) sum = map(Access<T>::load(from + (i64)at * (int)sizeof(T)));
    _Pragma("unroll 8") for (at++; at < end; at++) sum = op(sum, map(Access<T>::load(from + (i64)at * (int)sizeof(T))));
    return sum;
  }
  // The same in any order, such that neighbours share what is loaded.
  template <int Deep, class Length>
  static KM_INL A gather(const Map& map, const Fold& op, const char* from, Length length, int lane, int lanes) {
    if constexpr (Ordered) return gather_run(map, op, from, length, lane, lanes);
    constexpr int bytes = Wide * (int)sizeof(T), unit = bytes % 16 ? bytes & -bytes : 16;
    const bool packed = Wide > 1 && (uptr)from % unit == 0;
    A sum;
    bool any = false;
    const int step = lanes * Wide;
    _Pragma("unroll 1") for (Length at = lane * Wide; at + Wide <= length; at += Deep * step) {
      T seen[Deep][Wide];
      KM_UNROLL_ALL for (int d = 0; d < Deep; d++) {
        if (at + d * step + Wide > length) continue;
        const char* place = from + (i64)(at + d * step) * (int)sizeof(T);
        if (packed) {
          load_packets<T, Wide>(place, seen[d]);
        } else {
          KM_UNROLL_ALL for (int v = 0; v < Wide; v++) seen[d][v] = Access<T>::load(place + v * (int)sizeof(T));
        }
      }
      KM_UNROLL_ALL for (int d = 0; d < Deep; d++) {
        if (at + d * step + Wide > length) continue;
        A some = map(seen[d][0]);
        KM_UNROLL_ALL for (int v = 1; v < Wide; v++) some = op(some, map(seen[d][v]));
        sum = any ? op(sum, some) : some;
        any = true;
      }
    }
    const int rest = (int)(length % Wide);
    _Pragma("unroll 1") for (int i = lane; i < rest; i += lanes) {
      const A one = map(Access<T>::load(from + (i64)(length - rest + i) * (int)sizeof(T)));
      sum = any ? op(sum, one) : one;
      any = true;
    }
    return sum;
  }
  // How many lanes have anything of a segment: the first ones.
  template <class Length> static KM_INL int busy(Length length, int lanes) {
    if constexpr (Ordered) {
      const Length run = larger<Length>(1, run_of(length, lanes));
      return (int)((length + run - 1) / run);
    }
    return (int)smaller<Length>(lanes, larger<Length>(length / Wide, length % Wide));
  }
  static KM_INL const char* element(const call& c, i64 i) { return c.data[0] + i * (i64)sizeof(T); }

  template <int Deep>
  static KM_INL void each(const call& c, const Fold& op, const Empty& empty, shared& s, i64 low, i64 high, span now) {
    const Map map(c.captures);
    const int lanes = (int)c.lanes, mine = (int)threadIdx.x / lanes, lane = (int)threadIdx.x & (lanes - 1);
    const int groups = threads / lanes;
    const i64 most = (i64)rounds * Deep * lanes * Wide;
    _Pragma("unroll 1") for (i64 base = low; base < high; base += groups) {
      const i64 i = base + mine;
      const span next = span_of(c, i + groups, high);
      const bool late = now.end - now.begin > most;
      const int length = late ? 0 : (int)larger<i64>(0, now.end - now.begin);
      A sum = gather<Deep>(map, op, element(c, now.begin), length, lane, lanes);
      const int several = busy(length, lanes);
      _Pragma("unroll 1") for (int d = 1; d < lanes; d *= 2) {
        const A other = shuffle_down(sum, d);
        if ((lane & (2 * d - 1)) == 0 && lane + d < several) sum = op(sum, other);
      }
      if (late) s.any_late = true;
      else if (lane == 0 && i < high) Run::store(c, i, length ? op.finish(sum) : empty());
      now = next;
    }
  }
  // A segment by all threads.
  static KM_INL void together(const call& c, const Map& map, const Fold& op, shared& s, i64 i) {
    const i64 begin = Run::offset(c, i), length = Run::offset(c, i + 1) - begin;
    const A sum = gather<1>(map, op, element(c, begin), length, (int)threadIdx.x, threads);
    const int all = busy(length, threads), warp = (int)threadIdx.x / warp_size;
    const A mine = warp_reduce(sum, op, (int)clamp(all - warp * warp_size, 0, warp_size));
    if (lane_id() == 0) s.part[warp] = mine;
    Run::block_part_barrier();
    if (threadIdx.x == 0) {
      A total = s.part[0];
      for (int w = 1; w * warp_size < all; w++) total = op(total, s.part[w]);
      Run::store(c, i, op.finish(total));
    }
    Run::block_part_barrier();
  }
  // The segments that were left for the block, found again: there are few, or none.
  static KM_COLD void rest(const call& c, const Fold& op, shared& s, i64 low, i64 high, i64 most) {
    const Map map(c.captures);
    _Pragma("unroll 1") for (i64 base = low; base < high; base += threads) {
      const i64 i = base + threadIdx.x;
      const u32 late = ballot(i < high && Run::offset(c, i + 1) - Run::offset(c, i) > most);
      if (lane_id() == 0) s.late[threadIdx.x / warp_size] = late;
      Run::block_part_barrier();
      _Pragma("unroll 1") for (int w = 0; w < threads / warp_size; w++)
        _Pragma("unroll 1") for (u32 left = s.late[w]; left; left &= left - 1)
          together(c, map, op, s, base + w * warp_size + __ffs((int)left) - 1);
      Run::block_part_barrier();
    }
  }

  static KM_INL bool reduce(const call& c, const Fold& op, const Empty& empty, shared& s) {
    const int lanes = (int)c.lanes;
    if (lanes == 0 || c.strides[0][0] != (i64)sizeof(T)) return false;
    const i64 share = ceil_div(c.segments, gridDim.x);
    const i64 low = smaller(c.segments, (i64)blockIdx.x * share), high = smaller(c.segments, low + share);
    const span first = span_of(c, low + threadIdx.x / (u32)lanes, high);  // under way with what decides
    if (!alike(c)) return false;
    if ((int)threadIdx.x >= threads) return true;
    if (threadIdx.x == 0) s.any_late = false;
    Run::block_part_barrier();
    if (lanes == warp_size) each<deep>(c, op, empty, s, low, high, first);
    else each<1>(c, op, empty, s, low, high, first);
    Run::block_part_barrier();
    if (s.any_late) rest(c, op, s, low, high, (i64)rounds * (lanes == warp_size ? deep : 1) * lanes * Wide);
    return true;
  }
};

}  // namespace km
