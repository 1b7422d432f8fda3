// segmented.cuh - reductions and scans of segments between offsets, of any lengths, in one launch.  A block takes a tile of
// elements, whatever segments it has: their ends are marks, a row of a warp is scanned up to them, and what is open at the end
// of a tile is published (lookback.cuh).  The order of combination depends on the elements alone; it is kept.  Where lengths
// are alike, lanes have a segment each instead: segmented_even.cuh.
//
//   typedef km::segmented<Map, X, Fold, Empty, O, ordered, apart, wide, rows, bytes, Access, operands, To> Run;
//   Run::reduce(call) | Run::scan<exclusive>(call) | Run::apart(call)
//
// Operands: the elements, the offsets (for `apart` begins and ends), the results, which `To` takes; elements that are computed
// are numbers, of which the map, made of the call, makes them.  `Fold` is that of reduce_call.cuh, `Empty`
// gives the result of no elements.  Offsets are clamped to the elements, and results stored for segments of ascending ones;
// whatever the offsets are, nothing outside is read.
#pragma once
#include "lookback.cuh"
#include "reduce_call.cuh"
#include "segmented_even.cuh"

namespace km {

constexpr int segment_warps = 8, segment_threads = segment_warps * warp_size;
// How many blocks share a multiprocessor at least, of so many that are asked: before sm_80 it has room for 1024 threads.
#if __CUDA_ARCH__ >= 800
template <int Asked> constexpr int segment_blocks = Asked;
#else
template <int Asked> constexpr int segment_blocks = Asked < 3 ? Asked : 3;
#endif

// `items` elements in `tiles` tiles, `segments` segments; `ahead`: how many tiles later the bounds that a block looks for are
// needed, 0 where every block looks for its own; `lanes` for each segment if lengths are alike, 0 where that is not asked.
// Blocks beyond the tiles are for even lengths.
template <int Operands, int Bytes>
struct SegmentedCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 items, segments, tiles, ahead, lanes;
};

// Takes results where they are an array: operand K.
template <class R, int K>
struct results_at {
  char* data;
  i64 step;
  template <class C> KM_INL explicit results_at(const C& c) : data(c.data[K]), step(c.strides[K][0]) {}
  KM_INL void operator()(i64 i, const R& value) const { store_anywhere<R>(data + i * step, value); }
};

template <class Map, class X, class Fold, class Empty, class O, bool Ordered, bool Apart, int Wide, int Rows, int Bytes,
          template <class> class Access, int Operands, class To = results_at<typename Fold::out, Apart ? 3 : 2>>
struct segmented {
  typedef typename Fold::acc A;
  typedef typename Fold::out R;
  typedef Fold fold;
  typedef Empty none;
  typedef SegmentedCall<Operands, Bytes> call;
  typedef lookback<A, Fold> look;
  typedef published<A> record;
  typedef published<i64> bound;
  static constexpr int row = warp_size * Wide, part = row * Rows, tile = segment_warps * part;
  static constexpr int threads = segment_threads;
  // Tiles before which a carry is the combination of all of them.
  static constexpr i64 near = 2 * group_tiles;

  struct open {  // what is open at the end of a part; whether it is anything, and whether a segment ended before
    A value;
    bool there, ended;
  };
  struct carry {
    A value;
    bool there;
  };
  struct shared {
    __align__(16) char stage[tile * sizeof(A)];
    __align__(16) u8 ends[tile];
    open parts[segment_warps];
    carry carries[segment_warps];
    carry far[segment_warps];
    int first_end[segment_warps];  // where the first segment of a part ends, or its size
    carry first, tail;             // of a tile of many segments: of one that began before it, and of one that goes on
    i64 low, high, from;           // the segments that end in the tile, and where the first of them begins
    u64 full;
    KM_INL A& at(int i) { return ((A*)stage)[i]; }
  };

  static constexpr bool computes = X::pattern == index;
  static KM_INL Map map_of(const call& c) {
    if constexpr (computes) return Map(c);
    else return Map(c.captures);
  }
  static KM_INL typename X::type item(const char* from) {
    if constexpr (computes) return X::access::load(from);
    else return Access<typename X::type>::load(from);
  }
  static KM_INL i64 offset(const call& c, i64 i) {
    return clamp((i64)Access<O>::load(c.data[1] + i * c.strides[1][0]), 0, c.items);
  }
  static KM_INL void block_part_barrier() { part_barrier(1, segment_threads); }

  // ---- which segments end in a tile

  // The number of segments that end at or before element x, found by a whole warp: near where it is for equal lengths first.
  static KM_INL i64 ended_before(const call& c, i64 x) {
    const int lane = (int)lane_id();
    const i64 all = c.segments, guess = (i64)((f64)x * (f64)all / (f64)c.items);
    i64 low = 0, high = all;
    i64 at = lane < 16 ? guess + 1 - ((i64)1 << (15 - lane)) : guess + ((i64)1 << (lane - 16));
    at = clamp(at, 0, all - 1);
    const int before = __popc(ballot(offset(c, at + 1) <= x));
    const i64 last = shuffle(at, before ? before - 1 : 0), next = shuffle(at, before < warp_size ? before : warp_size - 1);
    if (before) low = last + 1;
    if (before < warp_size) high = next;
    while (high > low) {
      const i64 step = ceil_div(high - low, warp_size), q = low + (lane + 1) * step - 1;
      const int k = __popc(ballot(q < high && offset(c, smaller(q, all - 1) + 1) <= x));
      const i64 end = low + (k + 1) * step - 1;
      low += k * step;
      if (k < warp_size && end < high) high = end;
    }
    return smaller(low, all);
  }
  static KM_INL char* bounds(const call& c) { return look::table(c.parts) + record_room(c.tiles); }
  static KM_INL i64 record_room(i64 tiles) { return (record::bytes * (tiles + tiles / group_tiles + 2) + 15) / 16 * 16; }
  // The first segment that ends in a tile: as an earlier block found it, or found here.
  static KM_INL i64 first_of(const call& c, u32 tag, i64 t) {
    if (t == 0) return 0;
    if (t >= c.tiles) return c.segments;
    i64 found;
    if (c.ahead > 0 && t >= c.ahead && vote_all(bound::get(bounds(c), t, tag, found))) return found;
    return ended_before(c, t * tile);
  }

  // Begins and ends of `asked` segments of a thread, loaded before the first is looked at; -1 for none.
  static constexpr int asked = 4;
  struct spans {
    i64 begin[asked], end[asked];
  };
  static KM_INL spans spans_of(const call& c, const shared& s, i64 first) {
    spans some;
    KM_UNROLL_ALL for (int u = 0; u < asked; u++) {
      const i64 i = first + u * segment_threads;
      some.begin[u] = some.end[u] = -1;
      if (i < s.high) some.begin[u] = offset(c, i), some.end[u] = offset(c, i + 1);
    }
    return some;
  }
  // No marks but two: elements before all segments are none of the first one's, and nothing follows the last element.
  static KM_INL void unmark(shared& s, i64 before, i64 last) {
    for (int i = (int)threadIdx.x * 16; i < tile; i += segment_threads * 16) {
      store_packet(s.ends + i, packet{{0, 0, 0, 0}});
      if (before >= i && before < i + 16) s.ends[before] = 1;
      if (last >= i && last < i + 16) s.ends[last] = 1;
    }
  }
  static KM_INL void mark(const call& c, shared& s, i64 begin, int items) {
    const int t = (int)threadIdx.x;
    _Pragma("unroll 1") for (i64 i = s.low + t; i < s.high; i += asked * segment_threads) {
      const spans some = spans_of(c, s, i);
      KM_UNROLL_ALL for (int u = 0; u < asked; u++) {
        const i64 place = some.end[u] - 1 - begin;
        if (some.end[u] > some.begin[u] && place >= 0 && place < items) s.ends[place] = 1;
      }
    }
    if (t == 2) s.from = offset(c, smaller(s.low, c.segments));
  }

  // ---- a part of a warp

  // Elements as accumulators, where they belong in the stage.  The copy engine brings what needs no change; `full` says then
  // that they are there.  Returns whether it does.
  static KM_INL bool fetch(const call& c, const Map& map, shared& s, i64 begin, int items) {
    typedef typename X::type T;
    const bool adjoin = c.strides[0][0] == (i64)sizeof(T);
    const char* from = c.data[0] + begin * (i64)sizeof(T);
    for (int i = items + (int)threadIdx.x; i < tile; i += segment_threads) s.at(i) = element_at(c, map, c.items - 1);
#if __CUDA_ARCH__ >= 900
    if constexpr (Map::plain) {
      if (adjoin && (uptr)from % 16 == 0) {
        if (threadIdx.x == 0) {
          const u32 bytes = (u32)(items * (int)sizeof(T)) & ~15u;
          copy_barrier_init(&s.full, 1);
          copy_barriers_made();
          for (int i = (int)(bytes / sizeof(T)); i < items; i++) s.at(i) = element_at(c, map, begin + i);
          if (bytes) {
            copy_barrier_expect(&s.full, bytes);
            bulk_load(s.stage, from, bytes, &s.full);
          } else {
            copy_barrier_arrive(&s.full);
          }
        }
        return true;
      }
    }
#endif
    const bool packed = Wide > 1 && adjoin && (uptr)from % (Wide * sizeof(T)) == 0 && items == tile;
    _Pragma("unroll 4") for (int i = (int)threadIdx.x * Wide; i < items; i += segment_threads * Wide) {
      T some[Wide];
      if (packed) {
        load_packets<T, Wide>(from + i * (int)sizeof(T), some);
      } else {
        KM_UNROLL_ALL for (int v = 0; v < Wide; v++)
          some[v] = item(c.data[0] + smaller(begin + i + v, c.items - 1) * c.strides[0][0]);
      }
      A made[Wide];
      KM_UNROLL_ALL for (int v = 0; v < Wide; v++) made[v] = map(some[v]);
      store_packets<A, Wide>((char*)&s.at(i), made);
    }
    return false;
  }
  static KM_INL void marks(shared& s, int place, bool (&end)[Wide]) {
    batch<u8, Wide> seen;
    if constexpr (Wide == 1) seen.item[0] = s.ends[place];
    else seen = __builtin_bit_cast(decltype(seen), *(const chunk<Wide>*)(s.ends + place));
    KM_UNROLL_ALL for (int i = 0; i < Wide; i++) end[i] = seen.item[i] != 0;
  }

  // Rows in their order: `had` is what is open, in every lane; `apart`, where elements may be taken in any order, what lanes
  // have of rows in which nothing ends.
  template <bool Scan>
  static KM_INL void sweep(shared& s, const Fold& op, int warp) {
    const int lane = (int)lane_id();
    const u32 lower = (1u << lane) - 1;
    A had, apart;
    bool has = false, any_apart = false, ended = false;
    int first = part;
    _Pragma("unroll 2") for (int r = 0; r < Rows; r++) {
      const int place = warp * part + r * row + lane * Wide;
      bool end[Wide];
      marks(s, place, end);
      A sum[Wide];
      load_packets<A, Wide>((const char*)&s.at(place), sum);
      bool any = end[0];
      KM_UNROLL_ALL for (int i = 1; i < Wide; i++) {
        if (!end[i - 1]) sum[i] = op(sum[i - 1], sum[i]);
        any |= end[i];
      }
      const u32 ending = ballot(any), closed = ballot(end[Wide - 1]);
      if constexpr (!Scan && !Ordered) {
        if (ending == 0) {
          apart = any_apart ? op(apart, sum[Wide - 1]) : sum[Wide - 1];
          any_apart = true;
          continue;
        }
        join_apart(op, had, has, apart, any_apart);
      }
      const u32 until = ending & (lower | 1u << lane);
      const int from = until ? 31 - __clz((int)until) : 0, begin = until ? from + (int)(closed >> from & 1) : 0;
      A total = sum[Wide - 1];
      KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) {
        const A other = shuffle_up(total, d);
        if (lane - d >= begin) total = op(other, total);
      }
      const A left = shuffle_up(total, 1);
      const bool row_open = (ending & lower) == 0;
      const bool inside = lane > 0 && !(closed >> (lane - 1) & 1), comes = inside || (row_open && has);
      if (Scan || any) {
        A in = left;
        if (row_open && has) in = lane > 0 ? op(had, left) : had;
        bool still = comes;
        KM_UNROLL_ALL for (int i = 0; i < Wide; i++) {
          if (still && (Scan || end[i])) sum[i] = op(in, sum[i]);
          still &= !end[i];
        }
        store_packets<A, Wide>((char*)&s.at(place), sum);
      }
      if (ending && !ended) {
        int mine = 0;
        KM_UNROLL_ALL for (int i = Wide - 1; i >= 0; i--) if (end[i]) mine = i;
        const int who = __ffs((int)ending) - 1;
        first = r * row + who * Wide + shuffle(mine, who);
        ended = true;
      }
      const A last = shuffle(total, warp_size - 1);
      had = ending || !has ? last : op(had, last);
      has = ending ? !(closed >> 31) : true;
    }
    if constexpr (!Scan && !Ordered) join_apart(op, had, has, apart, any_apart);
    if (lane == 0) {
      s.parts[warp].value = had;
      s.parts[warp].there = has;
      s.parts[warp].ended = ended;
      s.first_end[warp] = first;
    }
  }
  static KM_INL void join_apart(const Fold& op, A& had, bool& has, A& apart, bool& any_apart) {
    if (!any_apart) return;
    const A sum = shuffle(warp_reduce(apart, op), 0);
    had = has ? op(had, sum) : sum;
    has = true;
    any_apart = false;
  }

  // ---- what parts and tiles hand on

  // The open ends of tiles first .. end - 1, each of which is nothing but open, in lane 0 of a warp that calls this whole.
  static KM_INL A all_open(const char* table, u32 tag, i64 first, i64 end, const Fold& op) {
    A sum;
    bool any = false;
    _Pragma("unroll 1") for (i64 at = first; at < end; at += look::depth * segment_tiles) {
      A value[look::depth];
      look::fetch(table, tag, at, end, value);
      look::pair(at, end, op, value);
      KM_UNROLL_ALL for (int u = 0; u < look::depth; u++)
        if (at + u * segment_tiles < end) {
          sum = any ? op(sum, value[u]) : value[u];
          any = true;
        }
    }
    return sum;
  }
  // A scan of a segment that is open for long takes what the tiles before have made of it.
  static KM_INL bool is_far(const shared& s, i64 t) { return t - s.from / tile > near; }
  // What the segment has before a tile, in lane 0: from what the last tile of the group before has published.
  static KM_INL A before_group(const call& c, u32 tag, i64 t, const Fold& op) {
    const char* table = look::table(c.parts);
    const i64 group = t / group_tiles;
    A before;
    while (!vote_all(record::get(table, c.tiles + group, tag, before))) {
    }
    if (group * group_tiles == t) return before;
    return op(before, all_open(table, tag, group * group_tiles, t, op));
  }
  // ---- a tile in which many segments end, whose elements may be taken in any order: a thread for each, a warp for long ones

  static constexpr i64 many = 32;
  // Elements of a segment in the tile.
  struct piece {
    int from, size;
    bool began;  // in the tile
  };
  static KM_INL piece piece_of(const call& c, const shared& s, i64 i, i64 begin, int items) {
    piece p{0, 0, true};
    if (i > s.high) return p;
    const i64 first = offset(c, i), end = i < s.high ? offset(c, i + 1) : begin + items;
    p.from = (int)clamp(first - begin, 0, items);
    p.size = (int)clamp(end - begin, p.from, items) - p.from;
    p.began = first >= begin;
    return p;
  }
  // Lanes begin at several places, or segments of one length were all in the same banks.
  static KM_INL A by_thread(const shared& s, const Fold& op, const piece& p) {
    const A* at = (const A*)s.stage + p.from;
    int k = (int)lane_id() & ((1 << (31 - __clz(p.size | 1))) - 1);
    A sum = at[k];
    _Pragma("unroll 1") for (int n = 1; n < p.size; n++) {
      k = k + 1 < p.size ? k + 1 : 0;
      sum = op(sum, at[k]);
    }
    return sum;
  }
  static KM_INL A by_warp(const shared& s, const Fold& op, int from, int size) {
    const A* at = (const A*)s.stage + from;
    const int lane = (int)lane_id();
    A sum = at[smaller(lane, size - 1)];
    _Pragma("unroll 4") for (int k = lane + warp_size; k < size; k += warp_size) sum = op(sum, at[k]);
    return warp_reduce(sum, op, smaller(warp_size, size));
  }
  static KM_INL void pieces(const call& c, shared& s, const Fold& op, const Empty& empty, i64 begin, int items) {
    piece next = piece_of(c, s, s.low + threadIdx.x, begin, items);
    _Pragma("unroll 1") for (i64 base = s.low; base <= s.high; base += segment_threads) {
      const i64 i = base + threadIdx.x;
      const piece p = next;
      next = piece_of(c, s, i + segment_threads, begin, items);
      int all = p.size;
      KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) all += shuffle_xor(all, d);
      const bool is_long = p.size > 8 + all / (warp_size / 2);
      A sum;
      if (!is_long && p.size > 0) sum = by_thread(s, op, p);
      _Pragma("unroll 1") for (u32 left = ballot(is_long); left; left &= left - 1) {
        const int who = __ffs((int)left) - 1;
        const A whole = shuffle(by_warp(s, op, shuffle(p.from, who), shuffle(p.size, who)), 0);
        if ((int)lane_id() == who) sum = whole;
      }
      if (i == s.high) s.tail.value = sum, s.tail.there = p.size > 0 && i < c.segments;
      else if (i < s.high && !p.began) s.first.value = sum, s.first.there = true;
      else if (i < s.high) store(c, i, p.size > 0 ? op.finish(sum) : empty());
    }
  }
  static KM_INL void reduce_many(const call& c, shared& s, const Fold& op, const Empty& empty, u32 tag, i64 t, int items) {
    const int warp = (int)threadIdx.x / warp_size;
    if (threadIdx.x == 0) s.first.there = false, s.from = offset(c, s.low);
    block_part_barrier();
    pieces(c, s, op, empty, t * tile, items);
    block_part_barrier();
    if (threadIdx.x == 0 && s.tail.there && t + 1 < c.tiles)
      look::publish(look::table(c.parts), t, tag, s.tail.value);
    look_back<false>(c, s, op, tag, t, warp, true);
    block_part_barrier();
    if (threadIdx.x != 0) return;
    const carry in = before_tile(s, op);
    if (s.first.there) store(c, s.low, op.finish(in.there ? op(in.value, s.first.value) : s.first.value));
    over(c, tag);
  }

  // What is open at the end of a tile.
  static KM_INL open joined(const shared& s, const Fold& op) {
    open all = s.parts[0];
    KM_UNROLL_ALL for (int w = 1; w < segment_warps; w++) {
      const open next = s.parts[w];
      if (next.ended) all = next, all.ended = true;
      else if (next.there) all.value = all.there ? op(all.value, next.value) : next.value, all.there = true;
    }
    return all;
  }
  // Each warp, whole: what the tiles before have of the segment of the first element, if it began there: a share of it each
  // where they are many.
  template <bool Scan>
  static KM_INL void look_back(const call& c, shared& s, const Fold& op, u32 tag, i64 t, int warp, bool ended) {
    const char* table = look::table(c.parts);
    carry in;
    in.there = false;
    if (t > 0 && s.from < t * tile && (Scan || ended) && !outside(c, s, t)) {
      const i64 first = s.from / tile;
      if (is_far(s, t) && !Scan) {
        const i64 share = ceil_div(ceil_div(t - first, segment_warps), segment_tiles) * segment_tiles;
        const i64 low = smaller(t, first + warp * share), high = smaller(t, low + share);
        in.there = low < high;
        if (in.there) in.value = all_open(table, tag, low, high, op);
      } else if (warp == 0) {
        in.there = true;
        in.value = is_far(s, t) ? before_group(c, tag, t, op) : all_open(table, tag, first, t, op);
      }
    }
    if (lane_id() == 0) s.far[warp] = in;
  }
  // What comes into a tile.
  static KM_INL carry before_tile(const shared& s, const Fold& op) {
    carry in = s.far[0];
    _Pragma("unroll 1") for (int w = 1; w < segment_warps; w++)
      if (s.far[w].there) in.value = op(in.value, s.far[w].value);
    return in;
  }
  // The first thread: what comes into each part, and what a group hands on.
  template <bool Scan>
  static KM_INL void hand_on(const call& c, shared& s, const Fold& op, u32 tag, i64 t, const open& all) {
    carry in = before_tile(s, op);
    if (Scan && t % group_tiles == group_tiles - 1 && t + 1 < c.tiles)
      record::put(look::table(c.parts), c.tiles + (t + 1) / group_tiles, tag,
                  !all.ended && in.there ? op(in.value, all.value) : all.value);
    _Pragma("unroll 1") for (int w = 0; w < segment_warps; w++) {
      s.carries[w] = in;
      const open next = s.parts[w];
      if (next.ended) in.value = next.value, in.there = next.there;
      else if (next.there) in.value = in.there ? op(in.value, next.value) : next.value, in.there = true;
    }
  }
  // Whether a tile begins with elements before or behind all segments, of which nothing is asked.
  static KM_INL bool outside(const call& c, const shared& s, i64 t) {
    return s.low >= c.segments || offset(c, 0) >= t * tile;
  }
  static KM_INL A carried(shared& s, const Fold& op, int place) {
    const int w = place / part;
    const A value = s.at(place);
    return s.carries[w].there && place - w * part <= s.first_end[w] ? op(s.carries[w].value, value) : value;
  }

  static KM_INL void over(const call& c, u32 tag) {
    if ((i64)atomic_add<acquire_release>(c.tickets, 1u) + 1 != c.tiles) return;
    launch_over(c.parts, tag);
    atomic_store<relaxed>(c.tickets, 0u);
  }
  static KM_INL void store(const call& c, i64 i, const R& value) {
    const To to(c);
    to(i, value);
  }

  static KM_INL void all_empty(const call& c, const Empty& empty, u32 tag) {
    for (i64 i = threadIdx.x; i < c.segments; i += blockDim.x) store(c, i, empty());
    block_barrier();
    if (threadIdx.x == 0) over(c, tag);
  }

  // The steps of a block up to the results, or to the end: then the answer is false.  A warp more than those that work looks for
  // bounds that are needed later.
  template <bool Scan>
  static KM_INL bool work(const call& c, shared& s, const Fold& op, const Empty& empty, u32 tag) {
    block_barrier();  // that warp meets no other: it has the number of this launch before the last block may change it
    const i64 t = blockIdx.x, begin = t * tile;
    const int warp = (int)threadIdx.x / warp_size;
    if (warp == segment_warps) {
      const i64 later = t + c.ahead;
      if (c.ahead > 0 && later < c.tiles) {
        const i64 found = ended_before(c, later * tile);
        if (lane_id() == 0) bound::put(bounds(c), later, tag, found);
      }
      return false;
    }
    const int items = (int)smaller<i64>(tile, c.items - begin);
    const Map map = map_of(c);
    [[maybe_unused]] const bool copied = fetch(c, map, s, begin, items);
    unmark(s, offset(c, 0) - 1 - begin, begin + items == c.items ? items - 1 : -1);
    if (warp < 2) {
      const i64 found = first_of(c, tag, t + warp);
      if (lane_id() == 0) (warp ? s.high : s.low) = found;
    }
    block_part_barrier();
    if constexpr (!Scan && !Ordered) {
      if (s.high - s.low >= many) {
#if __CUDA_ARCH__ >= 900
        if (copied) copy_barrier_wait(&s.full, 0);
#endif
        reduce_many(c, s, op, empty, tag, t, items);
        return false;
      }
    }
    mark(c, s, begin, items);
    block_part_barrier();
#if __CUDA_ARCH__ >= 900
    if (copied) copy_barrier_wait(&s.full, 0);
#endif
    sweep<Scan>(s, op, warp);
    block_part_barrier();
    const open all = joined(s, op);
    if (threadIdx.x == 0 && all.there && t + 1 < c.tiles) look::publish(look::table(c.parts), t, tag, all.value);
    look_back<Scan>(c, s, op, tag, t, warp, all.ended);
    block_part_barrier();
    if (threadIdx.x == 0) hand_on<Scan>(c, s, op, tag, t, all);
    block_part_barrier();
    return true;
  }

  static KM_INL void reduce(const call& c) {
    __shared__ shared s;
    const Fold op(c.captures);
    const Empty empty(c.captures);
    const u32 tag = launch_number(c.parts);
    if (c.items == 0) return blockIdx.x ? void() : all_empty(c, empty, tag);
    if constexpr (!computes) {
      typedef even_segments<segmented, Map, typename X::type, Ordered, Wide, Access> even;
      if (even::reduce(c, op, empty, *(typename even::shared*)&s)) return;
    }
    if ((i64)blockIdx.x >= c.tiles) return;
    if (!work<false>(c, s, op, empty, tag)) return;
    const i64 begin = (i64)blockIdx.x * tile;
    _Pragma("unroll 1") for (i64 i = s.low + threadIdx.x; i < s.high; i += asked * segment_threads) {
      const spans some = spans_of(c, s, i);
      KM_UNROLL_ALL for (int u = 0; u < asked; u++) {
        const i64 place = some.end[u] - 1 - begin;
        const bool any = some.end[u] > some.begin[u] && place >= 0 && place < tile;
        if (some.end[u] >= 0) store(c, i + u * segment_threads, any ? op.finish(carried(s, op, (int)place)) : empty());
      }
    }
    if (threadIdx.x == 0) over(c, tag);
  }

  template <bool Exclusive>
  static KM_INL void scan(const call& c) {
    __shared__ shared s;
    const Fold op(c.captures);
    const Empty empty(c.captures);
    const u32 tag = launch_number(c.parts);
    if (!work<true>(c, s, op, empty, tag)) return;
    const i64 begin = (i64)blockIdx.x * tile;
    const int items = (int)smaller<i64>(tile, c.items - begin);
    for (int i = (int)threadIdx.x; i < items; i += segment_threads) {
      if constexpr (!Exclusive) {
        store(c, begin + i, op.finish(carried(s, op, i)));
      } else {
        const bool comes = i ? !s.ends[i - 1] : s.carries[0].there;
        const R value = !comes ? empty() : op.finish(i ? carried(s, op, i - 1) : s.carries[0].value);
        store(c, begin + i, value);
      }
    }
    if (threadIdx.x == 0) over(c, tag);
  }

  // ---- segments between begins and ends that do not adjoin: a warp for each

  static KM_INL void apart(const call& c) {
    const Fold op(c.captures);
    const Empty empty(c.captures);
    const Map map = map_of(c);
    const int lane = (int)lane_id();
    const i64 step = (i64)gridDim.x * segment_warps;
    _Pragma("unroll 1") for (i64 i = (i64)blockIdx.x * segment_warps + threadIdx.x / warp_size; i < c.segments; i += step) {
      const i64 begin = offset(c, i);
      const i64 end = clamp((i64)Access<O>::load(c.data[2] + i * c.strides[2][0]), 0, c.items);
      if (end <= begin) {
        if (lane == 0) store(c, i, empty());
        continue;
      }
      const i64 each = Ordered ? ceil_div(end - begin, warp_size) : 1, stride = Ordered ? 1 : warp_size;
      const i64 last = Ordered ? smaller(end, begin + (lane + 1) * each) : end;
      A sum;
      i64 at = begin + lane * each;
      if (at < last) sum = element_at(c, map, at);
      _Pragma("unroll 4") for (at += stride; at < last; at += stride) sum = op(sum, element_at(c, map, at));
      sum = warp_reduce(sum, op, (int)smaller<i64>(warp_size, ceil_div(end - begin, each)));
      if (lane == 0) store(c, i, op.finish(sum));
    }
  }
  static KM_INL A element_at(const call& c, const Map& map, i64 i) {
    return map(item(c.data[0] + i * c.strides[0][0]));
  }
};

}  // namespace km
