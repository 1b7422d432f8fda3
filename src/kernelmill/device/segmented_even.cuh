// segmented_even.cuh - reductions of segments whose lengths are much alike: some lanes of a warp for each segment, as many as
// its elements keep busy, and a block for one that is longer than others by far.  Which lane takes what depends on the mean
// length and the length of the segment alone.  What else there is of segments is in segmented.cuh.
//
//   typedef km::even_segments<Run, Map, T, Access> even;   // Run: an instance of km::segmented
//   if (even::fits(call)) even::reduce(call, op, empty, shared);
#pragma once
#include "operands.cuh"
#include "warp.cuh"

namespace km {

// The longest mean length, and the shortest where there are many elements; a 32nd of the segments has the same share of the
// elements as any other, or as much more or less of it as 1 : `even_slack`.
constexpr i64 even_most = 8192, even_least = warp_size, even_slack = 4;

template <class Run, class Map, class T, template <class> class Access>
struct even_segments {
  typedef typename Run::call call;
  typedef typename Run::A A;
  typedef typename Run::fold Fold;
  typedef typename Run::none Empty;
  // Elements of a lane under way, of segments beside each other together; `rounds` times the elements of all lanes of a
  // segment is the most that they take: beyond, it is for the block.
  static constexpr int threads = Run::threads, loads = 8, beside = 4, rounds = 64;

  struct shared {
    A part[threads / warp_size];
    bool any_late;
    u32 late[threads / warp_size];  // of some segments beside each other, those that are for the block
  };
  struct span {
    const char* from;
    i32 length;
  };
  struct long_span {
    const char* from;
    i64 length;
  };

  // Whether lengths are alike, as far as 32 offsets tell.  All warps of a launch find the same.
  static KM_INL bool fits(const call& c) {
    if (c.segments * even_most < c.items || (c.items >= c.short_from && c.segments * even_least > c.items)) return false;
    const i64 at = (lane_id() + 1) * c.segments / warp_size;
    const f64 all = (f64)c.segments * (f64)c.items;
    const f64 off = (f64)Run::offset(c, at) * (f64)c.segments - (f64)at * (f64)c.items;
    return vote_all((off < 0 ? -off : off) * (warp_size * even_slack) <= all);
  }

  // What a lane has of each of several segments, side by side, of which `lanes` share one.
  template <int Side, int Deep, class Span>
  static KM_INL void gather(const call& c, const Map& map, const Fold& op, const Span (&s)[Side], int lane, int lanes,
                            A (&sum)[Side]) {
    const i64 size = c.strides[0][0];
    bool more = true;
    _Pragma("unroll 1") for (decltype(s[0].length) at = lane; more; at += Deep * lanes) {
      T seen[Side][Deep];
      KM_UNROLL_ALL for (int u = 0; u < Side; u++)
        KM_UNROLL_ALL for (int d = 0; d < Deep; d++)
          if (at + d * lanes < s[u].length) seen[u][d] = Access<T>::load(s[u].from + (at + d * lanes) * size);
      more = false;
      KM_UNROLL_ALL for (int u = 0; u < Side; u++) {
        KM_UNROLL_ALL for (int d = 0; d < Deep; d++)
          if (at + d * lanes < s[u].length) {
            const A one = map(seen[u][d]);
            sum[u] = d > 0 || at > lane ? op(sum[u], one) : one;
          }
        more |= at + Deep * lanes < s[u].length;
      }
    }
  }

  template <int Side>
  static KM_INL void each(const call& c, const Map& map, const Fold& op, const Empty& empty, shared& s, i64 low, i64 high,
                          int lanes) {
    const int mine = (int)threadIdx.x / lanes, lane = (int)threadIdx.x & (lanes - 1), groups = threads / lanes;
    _Pragma("unroll 1") for (i64 base = low; base < high; base += Side * groups) {
      span some[Side];
      A sum[Side];
      i64 begin[Side], end[Side];
      KM_UNROLL_ALL for (int u = 0; u < Side; u++) {
        const i64 i = base + u * groups + mine;
        begin[u] = end[u] = 0;
        if (i < high) begin[u] = Run::offset(c, i), end[u] = Run::offset(c, i + 1);
      }
      KM_UNROLL_ALL for (int u = 0; u < Side; u++) {
        const i64 length = larger<i64>(0, end[u] - begin[u]);
        some[u].from = c.data[0] + begin[u] * c.strides[0][0];
        some[u].length = length > rounds * lanes ? -1 : (i32)length;
        if (length > rounds * lanes) s.any_late = true;
      }
      gather<Side, loads / Side>(c, map, op, some, lane, lanes, sum);
      KM_UNROLL_ALL for (int u = 0; u < Side; u++) {
        for (int d = lanes / 2; d > 0; d /= 2) {
          const A other = shuffle_down(sum[u], d);
          if (lane + d < smaller(lanes, some[u].length)) sum[u] = op(sum[u], other);
        }
        const i64 i = base + u * groups + mine;
        if (lane == 0 && i < high && some[u].length >= 0) Run::store(c, i, some[u].length ? op.finish(sum[u]) : empty());
      }
    }
  }
  // A segment by all threads.
  static KM_INL void together(const call& c, const Map& map, const Fold& op, shared& s, i64 i) {
    A sum[1];
    const i64 begin = Run::offset(c, i), length = Run::offset(c, i + 1) - begin;
    const long_span one[1] = {{c.data[0] + begin * c.strides[0][0], length}};
    gather<1, loads>(c, map, op, one, (int)threadIdx.x, threads, sum);
    const int busy = (int)smaller<i64>(threads, length), warp = (int)threadIdx.x / warp_size;
    const A mine = warp_reduce(sum[0], op, (int)clamp(busy - warp * warp_size, 0, warp_size));
    if (lane_id() == 0) s.part[warp] = mine;
    Run::block_part_barrier();
    if (threadIdx.x == 0) {
      A total = s.part[0];
      for (int w = 1; w * warp_size < busy; w++) total = op(total, s.part[w]);
      Run::store(c, i, op.finish(total));
    }
    Run::block_part_barrier();
  }
  // The segments that were left for the block, found again: there are few, or none.
  static KM_INL void rest(const call& c, const Map& map, const Fold& op, shared& s, i64 low, i64 high, int lanes) {
    _Pragma("unroll 1") for (i64 base = low; base < high; base += threads) {
      const i64 i = base + threadIdx.x;
      const u32 late = ballot(i < high && Run::offset(c, i + 1) - Run::offset(c, i) > rounds * lanes);
      if (lane_id() == 0) s.late[threadIdx.x / warp_size] = late;
      Run::block_part_barrier();
      _Pragma("unroll 1") for (int w = 0; w < threads / warp_size; w++)
        _Pragma("unroll 1") for (u32 left = s.late[w]; left; left &= left - 1)
          together(c, map, op, s, base + w * warp_size + __ffs((int)left) - 1);
      Run::block_part_barrier();
    }
  }

  static KM_INL void reduce(const call& c, const Fold& op, const Empty& empty, shared& s) {
    if ((int)threadIdx.x >= threads) return;
    const Map map(c.captures);
    const i64 share = ceil_div(c.segments, gridDim.x);
    const i64 low = smaller(c.segments, (i64)blockIdx.x * share), high = smaller(c.segments, low + share);
    int lanes = 1;
    while (lanes < warp_size && lanes * (loads / beside) * c.segments < c.items) lanes *= 2;
    if (threadIdx.x == 0) s.any_late = false;
    Run::block_part_barrier();
    if (warp_size * loads / beside * 2 * c.segments < c.items) each<1>(c, map, op, empty, s, low, high, lanes);
    else each<beside>(c, map, op, empty, s, low, high, lanes);
    Run::block_part_barrier();
    if (s.any_late) rest(c, map, op, s, low, high, lanes);
  }
};

}  // namespace km
