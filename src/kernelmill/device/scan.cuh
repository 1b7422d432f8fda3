// scan.cuh - scans on a device, inclusive and exclusive: what a warp computes of its part of a tile, and two ways through the
// tiles: one block a tile (any chip, any layout, small inputs), and the ring of ring.cuh.  Scans and reductions by key are
// scans of pairs, in scan_keys.hpp.  The tree is that of docs/reference/reduction-tree.md: it is made of `run`, `rows`,
// `warps` and the groups of lookback.cuh, which both ways share.
//
// A generated text has a struct of this shape, and feeds and sinks that are called with the place of an element:
//
//   struct Scan {
//     typedef ... value, stored;  typedef Combine Op;  Op op;
//     static constexpr int run, rows, warps;         // neighbours a lane takes, how often, and warps of a tile
//     static constexpr bool exclusive, seeded;       // `seed` stands before the first element
//     value seed;
//     stored finish(const value&, bool head) const;  // `head`: this element begins a segment (scan_keys.hpp)
//     static bool begins(const value&);              // whether an element does
//   };
#pragma once
#include "operands.cuh"
#include "ring.cuh"

namespace km {

// What a launch passes, by value.  `length` elements make one of `units` sequences, `tiles` tiles each.
template <int Operands, int Bytes>
struct ScanCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 length, units, tiles;

  // Where operand k begins in a sequence: the last dimension is the one that is scanned.
  KM_INL char* row(int k, i64 unit) const {
    char* at = data[k];
    _Pragma("unroll 1") for (int d = (int)ndim - 2; d >= 0; d--) {
      const i64 outer = unit / shape[d];
      at += (unit - outer * shape[d]) * strides[k][d];
      unit = outer;
    }
    return at;
  }
  KM_INL i64 step(int k) const { return strides[k][ndim - 1]; }
  KM_INL char* at(int k) const { return data[k]; }
};

// Elements as they are.
template <class T>
struct scan_same {
  KM_INL explicit scan_same(const char*) {}
  KM_INL T operator()(T x) const { return x; }
};
// Elements of operand K, and the values that a map makes of them.
template <int K, class A, class Map>
struct scan_feed {
  typedef typename A::type type;
  static constexpr bool contiguous = A::pattern == km::contiguous;
  const type* data;
  i64 step;
  Map map;
  template <class Call>
  KM_INL scan_feed(const Call& c, i64 unit)
      : data((const type*)c.row(K, unit)), step(contiguous ? (i64)A::size : c.step(K)), map(c.captures) {}
  KM_INL auto of(const type& x) const { return map(x); }
  KM_INL auto at(i64 i) const { return map((*this)(i)); }
  KM_INL type operator()(i64 i) const {
    return A::access::load((const char*)data + i * (contiguous ? (i64)A::size : step));
  }
};
template <int K, class A>
struct scan_sink {
  typedef typename A::type type;
  static constexpr bool contiguous = A::pattern == km::contiguous;
  type* data;
  i64 step;
  template <class Call>
  KM_INL scan_sink(const Call& c, i64 unit)
      : data((type*)c.row(K, unit)), step(contiguous ? (i64)A::size : c.step(K)) {}
  KM_INL void operator()(i64 i, const type& value) const {
    A::access::store((char*)data + i * (contiguous ? (i64)A::size : step), value);
  }
};

// ---- a warp's part of a tile, in registers ----------------------------------------------------------------------------------

template <class S>
struct scan_part {
  typedef typename S::value T;
  static constexpr int V = S::run, R = S::rows, size = R * V, elements = warp_size * size;
  static constexpr int tile = elements * S::warps;

  T item[size];   // combined inside the run of a lane
  T through[R];   // all runs of a row up to this lane's
  u32 heads = 0;  // which items begin a segment

  // The place of item i in the part.
  static KM_INL int at(int i) { return (i / V * warp_size + (int)lane_id()) * V + i % V; }

  KM_INL void combine(const S& s) {
    if constexpr (S::exclusive)
      KM_UNROLL_ALL for (int i = 0; i < size; i++) heads |= (u32)S::begins(item[i]) << i;
    KM_UNROLL_ALL for (int r = 0; r < R; r++) {
      KM_UNROLL_ALL for (int v = 1; v < V; v++) item[r * V + v] = s.op(item[r * V + v - 1], item[r * V + v]);
      through[r] = item[r * V + V - 1];
    }
    KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2)
      KM_UNROLL_ALL for (int r = 0; r < R; r++) {
        const T other = shuffle_up(through[r], d);
        if ((int)lane_id() >= d) through[r] = s.op(other, through[r]);
      }
  }
  KM_INL T total(const S& s) const {
    T sum = shuffle(through[0], warp_size - 1);
    KM_UNROLL_ALL for (int r = 1; r < R; r++) sum = s.op(sum, shuffle(through[r], warp_size - 1));
    return sum;
  }
  // Puts `before`, where there is any, before the part; items become results.
  KM_INL void finish(const S& s, bool any, T before) {
    KM_UNROLL_ALL for (int r = 0; r < R; r++) {
      T left = shuffle_up(through[r], 1);
      const T row = shuffle(through[r], warp_size - 1);
      bool has = lane_id() > 0;
      if (any) {
        left = has ? s.op(before, left) : before;
        has = true;
        before = s.op(before, row);
      } else {
        before = row;
        any = true;
      }
      if constexpr (S::exclusive) {
        KM_UNROLL_ALL for (int v = V - 1; v > 0; v--) {
          const T here = item[r * V + v - 1];
          item[r * V + v] = has ? s.op(left, here) : here;
        }
        item[r * V] = left;
      } else if (has) {
        KM_UNROLL_ALL for (int v = 0; v < V; v++) item[r * V + v] = s.op(left, item[r * V + v]);
      }
    }
  }
  KM_INL typename S::stored result(const S& s, int i) const { return s.finish(item[i], heads >> i & 1); }
};

// ---- one block a tile -----------------------------------------------------------------------------------------------------------

// `Feed` and `Sink` are made from the record of a call and the number of a sequence; both have
//   static constexpr bool contiguous;  value of(taken) const;  taken operator()(i64) const;  const taken* data;
template <class S, class Feed, class Sink>
struct scan_tiles {
  typedef scan_part<S> part;
  typedef typename S::value T;
  typedef lookback<T, typename S::Op, 1> look;
  typedef block_lookback<T, typename S::Op, S::warps> block_look;
  static constexpr int threads = S::warps * warp_size;
  struct room {
    __align__(16) char bytes[S::warps * sizeof(T)];
    u32 tag;
    typename block_look::room past;
    KM_INL T& operator[](int i) { return ((T*)bytes)[i]; }
  };

  static KM_INL bool fits(const void* at, int bytes) { return (uptr)at % smaller(16, bytes & -bytes) == 0; }

  // Keys and values that lie beside each other (km::keyed_feed).
  template <class F> static KM_INL constexpr bool keyed(decltype(F::keys.data)*, decltype(F::values.data)*) { return true; }
  template <class F> static KM_INL constexpr bool keyed(...) { return false; }
  static KM_INL bool read_keyed(part& p, const Feed& from, i64 first) {
    typedef typename decltype(Feed::keys)::type K;
    typedef typename decltype(Feed::values)::type X;
    constexpr int V = part::V;
    if constexpr (!decltype(Feed::keys)::contiguous || !decltype(Feed::values)::contiguous) return false;
    if (!fits(from.keys.data + first, V * (int)sizeof(K)) || !fits(from.values.data + first, V * (int)sizeof(X))) return false;
    KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
      const i64 at = first + part::at(r * V);
      K key[V];
      X value[V];
      load_packets<K, V>((const char*)(from.keys.data + at), key);
      load_packets<X, V>((const char*)(from.values.data + at), value);
      K left = from.keys(at > 0 ? at - 1 : 0);
      KM_UNROLL_ALL for (int v = 0; v < V; v++) {
        p.item[r * V + v].value = from.values.of(value[v]);
        p.item[r * V + v].heads = at + v == 0 || !from.same(from.keys.of(left), from.keys.of(key[v]));
        left = key[v];
      }
    }
    return true;
  }

  static KM_INL void read(part& p, const Feed& from, i64 first, i64 end) {
    typedef typename Feed::type taken;
    if constexpr (keyed<Feed>(nullptr, nullptr))
      if (first + part::elements <= end && read_keyed(p, from, first)) return;
    if constexpr (Feed::contiguous && is_packet<part::V*(int)sizeof(taken)>) {
      if (first + part::elements <= end && fits(from.data + first, part::V * (int)sizeof(taken))) {
        KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
          taken raw[part::V];
          load_packets<taken, part::V>((const char*)(from.data + first + part::at(r * part::V)), raw);
          KM_UNROLL_ALL for (int v = 0; v < part::V; v++) p.item[r * part::V + v] = from.of(raw[v]);
        }
        return;
      }
    }
    // Behind the end the last element stands again: it reaches no result.
    KM_UNROLL_ALL for (int i = 0; i < part::size; i++) p.item[i] = from.of(from(smaller(first + part::at(i), end - 1)));
  }
  static KM_INL void write(const S& s, const part& p, const Sink& to, i64 first, i64 end) {
    typedef typename S::stored made;
    if constexpr (Sink::contiguous && is_packet<part::V*(int)sizeof(made)>) {
      if (first + part::elements <= end && fits(to.data + first, part::V * (int)sizeof(made))) {
        KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
          made raw[part::V];
          KM_UNROLL_ALL for (int v = 0; v < part::V; v++) raw[v] = p.result(s, r * part::V + v);
          store_packets<made, part::V>((char*)(to.data + first + part::at(r * part::V)), raw);
        }
        return;
      }
    }
    KM_UNROLL_ALL for (int i = 0; i < part::size; i++) {
      const i64 at = first + part::at(i);
      if (at < end) to(at, p.result(s, i));
    }
  }

  // What is before a tile, in every thread; publishes the tile's total.
  template <class Call>
  static KM_INL T past(const Call& c, const S& s, room& totals, i64 unit, i64 tile, int warp) {
    char* table = look::table(c.parts) + unit * (look::bytes(c.tiles) - 16);
    const u32 tag = totals.tag;
    if (tile + 1 < c.tiles && threadIdx.x == 0) {
      T sum = totals[0];
      KM_UNROLL_ALL for (int w = 1; w < S::warps; w++) sum = s.op(sum, totals[w]);
      look::publish(table, tile, tag, sum);
    }
    T before;
    if (tile > 0) before = block_look::prefix(table, (int)c.tiles, tag, (int)tile, s.op, totals.past, warp);
    if (threadIdx.x == 0) leave(c, tag, tile);
    return before;
  }
  // The last block of all leaves the number of the launch: that of the last tile has waited for all others, where there is
  // one sequence; of several, blocks are counted.
  template <class Call>
  static KM_INL void leave(const Call& c, u32 tag, i64 tile) {
    bool last = tile + 1 == c.tiles;
    if (c.units > 1) {
      last = atomic_add<acquire_release>(c.tickets, 1u) + 1 == (u32)gridDim.x;
      if (last) atomic_store<relaxed>(c.tickets, 0u);
    }
    if (last) launch_over(c.parts, tag);
  }

  template <class Call>
  static KM_INL void run(const Call& c, const S& s) {
    __shared__ room totals;
    const i64 block = (i64)blockIdx.x, unit = c.units > 1 ? block / c.tiles : 0, tile = block - unit * c.tiles;
    const int warp = (int)threadIdx.x / warp_size;
    const i64 first = tile * part::tile + warp * part::elements;
    const bool some = first < c.length;
    u32 tag = 0;
    if (threadIdx.x == 0 && c.tiles > 1) tag = launch_number(c.parts);  // under way with the elements
    part p;
    if (some) {
      read(p, Feed(c, unit), first, c.length);
      p.combine(s);
      const T sum = p.total(s);
      if (lane_id() == 0) totals[warp] = sum;
    }
    if (threadIdx.x == 0) totals.tag = tag;
    block_barrier();
    T before;
    bool any = tile > 0;
    if (c.tiles > 1) before = past(c, s, totals, unit, tile, warp);
    if constexpr (S::seeded) {
      before = any ? s.op(s.seed, before) : s.seed;
      any = true;
    }
    if (!some) return;
    if (warp > 0) {
      T inside = totals[0];
      KM_UNROLL_ALL for (int w = 1; w < S::warps; w++)
        if (w < warp) inside = s.op(inside, totals[w]);
      before = any ? s.op(before, inside) : inside;
      any = true;
    }
    p.finish(s, any, before);
    write(s, p, Sink(c, unit), first, c.length);
  }

  // Short sequences, of one part at most: a warp has one.
  template <class Call>
  static KM_INL void each(const Call& c, const S& s) {
    const i64 unit = (i64)blockIdx.x * S::warps + threadIdx.x / warp_size;
    if (unit >= c.units) return;
    part p;
    read(p, Feed(c, unit), 0, c.length);
    p.combine(s);
    p.finish(s, S::seeded, S::seeded ? s.seed : p.through[0]);
    write(s, p, Sink(c, unit), 0, c.length);
  }
};

// ---- the ring ---------------------------------------------------------------------------------------------------------------------

// One sequence without gaps, from and to addresses that are multiples of 16.
template <class S, class Feed, class Sink, int Stages, int Reducers>
struct scan_ring {
  typedef typename S::value value;
  typedef typename S::Op Op;
  typedef scan_part<S> part;
  typedef part held;
  typedef typename Feed::type taken;
  typedef typename S::stored made;
  static constexpr int workers = S::warps, reducers = Reducers, stages = Stages, V = part::V;
  static constexpr int wider = (int)(sizeof(taken) > sizeof(made) ? sizeof(taken) : sizeof(made));
  static constexpr int part_bytes = part::elements * wider, stage_bytes = part_bytes * workers;
  static constexpr bool seeded = S::seeded, lags = true;

  const S& s;
  Feed from;
  Sink to;
  i64 length;
  Op op;
  value seed;

  template <class Call>
  KM_INL scan_ring(const Call& c, const S& scan)
      : s(scan), from(c, 0), to(c, 0), length(c.length), op(scan.op), seed(scan.seed) {}

  KM_INL i64 first(i64 tile, int worker) const { return tile * part::tile + worker * part::elements; }
  KM_INL bool is_whole(i64 tile, int worker) const { return first(tile, worker) + part::elements <= length; }

  // Parts stand apart in a stage where results are wider than elements.
  KM_INL void fetch(char* stage, i64 tile, u64* full) const {
    constexpr int size = (int)sizeof(taken), whole = part::elements * size;
    const i64 count = smaller<i64>(part::tile, length - first(tile, 0));
    const char* source = (const char*)(from.data + first(tile, 0));
    const u32 bytes = (u32)(count * size), copied = bytes & ~15u;
    for (u32 b = copied; b < bytes; b++) stage[b / whole * part_bytes + b % whole] = source[b];
    if (!copied) return copy_barrier_arrive(full);
    copy_barrier_expect(full, copied);
    if constexpr (whole == part_bytes) {
      bulk_load(stage, source, copied, full);
    } else {
      for (u32 b = 0; b < copied; b += whole)
        bulk_load(stage + b / whole * part_bytes, source + b, smaller<u32>(whole, copied - b), full);
    }
  }

  KM_INL void read(const char* at, int r, value (&item)[V]) const {
    taken raw[V];
    load_packets<taken, V>(at + part::at(r * V) * (int)sizeof(taken), raw);
    KM_UNROLL_ALL for (int v = 0; v < V; v++) item[v] = from.of(raw[v]);
  }

  KM_INL value total(const char* stage, i64, int worker) const {
    value sum[part::R];
    KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
      value item[V];
      read(stage + worker * part_bytes, r, item);
      sum[r] = item[0];
      KM_UNROLL_ALL for (int v = 1; v < V; v++) sum[r] = op(sum[r], item[v]);
    }
    KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2)
      KM_UNROLL_ALL for (int r = 0; r < part::R; r++) sum[r] = op(sum[r], shuffle_down(sum[r], d));
    KM_UNROLL_ALL for (int r = 1; r < part::R; r++) sum[0] = op(sum[0], sum[r]);
    return sum[0];
  }

  KM_INL held take(const char* stage, i64 tile, int worker) const {
    part p;
    const char* at = stage + worker * part_bytes;
    if (is_whole(tile, worker)) {
      KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
        value item[V];
        read(at, r, item);
        KM_UNROLL_ALL for (int v = 0; v < V; v++) p.item[r * V + v] = item[v];
      }
    } else {
      const i64 count = length - first(tile, worker);
      if (count <= 0) return p;
      KM_UNROLL_ALL for (int i = 0; i < part::size; i++)
        p.item[i] = from.of(element<taken>::load(at + smaller<i64>(part::at(i), count - 1) * (int)sizeof(taken)));
    }
    p.combine(s);
    return p;
  }

  KM_INL void give(held& p, char* stage, i64 tile, int worker, bool any, const value& before) const {
    const i64 base = first(tile, worker);
    if (base >= length) return;
    p.finish(s, any, before);
    if (is_whole(tile, worker)) {
      char* at = stage + worker * part_bytes;
      warp_barrier();
      KM_UNROLL_ALL for (int r = 0; r < part::R; r++) {
        made raw[V];
        KM_UNROLL_ALL for (int v = 0; v < V; v++) raw[v] = p.result(s, r * V + v);
        store_packets<made, V>(at + part::at(r * V) * (int)sizeof(made), raw);
      }
      seen_by_copies();
      warp_barrier();
      if (lane_id() == 0) {
        bulk_store(to.data + base, at, part::elements * (u32)sizeof(made));
      }
    } else {
      KM_UNROLL_ALL for (int i = 0; i < part::size; i++) {
        const i64 at = base + part::at(i);
        if (at < length) to(at, p.result(s, i));
      }
      warp_barrier();
    }
  }

  template <class Call>
  static KM_INL void run(const Call& c, const S& s) {
    tile_ring<scan_ring>::run(c, scan_ring(c, s), c.tiles);
  }
};

}  // namespace km
