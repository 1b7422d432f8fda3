// scan.hpp - scans on the host, inclusive and exclusive, along one dimension of arrays: the tree of
// docs/reference/reduction-tree.md, row by row of a tile.  The device's twin is device/scan.cuh; both
// are given the same structs:
//
//   struct Scan {
//     typedef ... value, stored;  typedef Combine Op;  Op op;
//     static constexpr int run, rows, warps;
//     static constexpr bool exclusive, seeded, vectors;  value seed;   // Op::vec() where `vectors`
//     stored finish(const value&, bool head) const;  static bool begins(const value&);
//   };
//
// A long sequence is scanned by several threads in one pass over memory: each makes the totals of a
// few tiles while it brings them into its cache, takes what is before them from the thread that had
// the tiles before, and scans them out of the cache.
#pragma once
#include "layout.hpp"
#include "scan_sequences.hpp"
#include "scan_vectors.hpp"

namespace km {

// Elements as they are.
template <class T> struct scan_same {
  static constexpr bool plain = true;
  explicit KM_INL scan_same(const char*) {}
  KM_INL T operator()(T x) const { return x; }
};
// Elements of operand K as values, which a map makes of them.
template <int K, class A, class Map> struct scan_feed {
  typedef typename A::type type;
  const char* data;
  i64 step;
  Map map;
  KM_INL scan_feed(const ScanCall& c, i64 unit)
      : data(c.row(K, unit)),
        step(A::pattern == contiguous ? (i64)A::size : c.step(K)),
        map(c.captures) {}
  static constexpr bool plain = A::pattern == contiguous && Map::plain;
  KM_INL auto operator()(i64 i) const {
    return map(element<type>::load(data + i * (A::pattern == contiguous ? (i64)A::size : step)));
  }
  KM_INL auto at(i64 i) const { return (*this)(i); }
};
template <int K, class A> struct scan_sink {
  typedef typename A::type type;
  static constexpr bool contiguous = A::pattern == km::contiguous;
  char* data;
  i64 step;
  KM_INL scan_sink(const ScanCall& c, i64 unit)
      : data(c.row(K, unit)), step(contiguous ? (i64)A::size : c.step(K)) {}
  KM_INL char* at(i64 i) const { return data + i * (contiguous ? (i64)A::size : step); }
  KM_INL void operator()(i64 i, const type& value) const { element<type>::store(at(i), value); }
};

// What is before a tile: groups of 128 tiles from left to right, segments of 32 in a group, and the
// tiles of a segment as adjacent pairs.
template <class T, class Op> struct tiles_before {
  static constexpr int segment = 32, segments = 4;
  T before, group, level[6];
  i64 groups = 0;
  int held = 0, count = 0;

  KM_INL bool any() const { return groups || held || count; }
  KM_INL T prefix(const Op& op) const {
    T value = held ? group : before;
    if (count) {
      int l = 0;
      while (!(count >> l & 1)) l++;
      T tail = level[l++];
      for (; count >> l; l++)
        if (count >> l & 1) tail = op(level[l], tail);
      value = held ? op(group, tail) : tail;
    }
    return groups && (held || count) ? op(before, value) : value;
  }
  KM_INL void push(T value, const Op& op) {
    int l = 0;
    for (; count >> l & 1; l++) value = op(level[l], value);
    level[l] = value;
    if (++count < segment) return;
    count = 0;
    group = held ? op(group, value) : value;
    if (++held < segments) return;
    held = 0;
    before = groups ? op(before, group) : group;
    groups++;
  }
};

template <class S, class Feed, class Sink> struct scan {
  typedef typename S::value T;
  typedef typename S::Op Op;
  typedef typename S::stored stored;
  static constexpr int lanes = 32, V = S::run, R = S::rows;
  static constexpr i64 row = lanes * V, part = row * R, tile = part * S::warps;
  // Tiles that a thread takes at a time: they stay in its cache.
  static constexpr i64 batch = larger<i64>(1, (192 << 10) / (tile * (i64)sizeof(T)));
  static constexpr bool streams = Sink::contiguous && row * (i64)sizeof(stored) <= Stage::capacity / 2;

  struct Row {
    alignas(64) T item[V][lanes];
    alignas(64) T through[lanes];
    u8 heads[S::exclusive ? V : 1][lanes];
  };

  // ---- one row -----------------------------------------------------------------------------------

  static KM_INL void read(const Feed& from, i64 first, Row& x) {
    KM_IVDEP
    for (int l = 0; l < lanes; l++)
      for (int v = 0; v < V; v++) x.item[v][l] = from(first + l * V + v);
  }
  static KM_INL void combine_runs(const S& s, Row& x) {
    if constexpr (S::exclusive)
      for (int v = 0; v < V; v++)
        for (int l = 0; l < lanes; l++) x.heads[v][l] = S::begins(x.item[v][l]);
    for (int v = 1; v < V; v++) {
      KM_IVDEP
      for (int l = 0; l < lanes; l++) x.item[v][l] = s.op(x.item[v - 1][l], x.item[v][l]);
    }
    for (int l = 0; l < lanes; l++) x.through[l] = x.item[V - 1][l];
  }
  template <int D> static KM_INL void reach(const S& s, T (&through)[lanes]) {
    alignas(64) T next[lanes];
    for (int l = 0; l < D; l++) next[l] = through[l];
    KM_IVDEP
    for (int l = D; l < lanes; l++) next[l] = s.op(through[l - D], through[l]);
    for (int l = 0; l < lanes; l++) through[l] = next[l];
  }
  static KM_INL void reach_all(const S& s, T (&through)[lanes]) {
    reach<1>(s, through);
    reach<2>(s, through);
    reach<4>(s, through);
    reach<8>(s, through);
    reach<16>(s, through);
  }
  template <int D> static KM_INL void pair(const S& s, T (&through)[lanes]) {
    for (int l = 0; l < lanes / 2 / D; l++) {
      const T left = through[2 * l], right = through[2 * l + 1];
      through[l] = s.op(left, right);
    }
  }
  static KM_INL T pair_all(const S& s, T (&through)[lanes]) {
    pair<1>(s, through);
    pair<2>(s, through);
    pair<4>(s, through);
    pair<8>(s, through);
    pair<16>(s, through);
    return through[0];
  }
  // Items become results, with `before`, where there is any, in front of the row.
  static KM_INL void place(const S& s, Row& x, bool any, const T& before) {
    alignas(64) T left[lanes];
    left[0] = x.through[0];  // no value where there is none before
    for (int l = 1; l < lanes; l++) left[l] = x.through[l - 1];
    if (any) {
      KM_IVDEP
      for (int l = 1; l < lanes; l++) left[l] = s.op(before, left[l]);
      left[0] = before;
    }
    T first[V];
    for (int v = 0; v < V; v++) first[v] = x.item[v][0];
    if constexpr (S::exclusive) {
      for (int v = V - 1; v > 0; v--) {
        KM_IVDEP
        for (int l = 0; l < lanes; l++) x.item[v][l] = s.op(left[l], x.item[v - 1][l]);
      }
      for (int l = 0; l < lanes; l++) x.item[0][l] = left[l];
      if (!any)
        for (int v = 1; v < V; v++) x.item[v][0] = first[v - 1];
    } else {
      for (int v = 0; v < V; v++) {
        KM_IVDEP
        for (int l = 0; l < lanes; l++) x.item[v][l] = s.op(left[l], x.item[v][l]);
      }
      if (!any)
        for (int v = 0; v < V; v++) x.item[v][0] = first[v];
    }
  }
  static KM_INL stored result(const S& s, const Row& x, int l, int v) {
    return s.finish(x.item[v][l], S::exclusive ? x.heads[S::exclusive ? v : 0][l] : false);
  }
  static KM_INL void write(const S& s, const Row& x, const Sink& to, i64 first, Stage* out) {
    if constexpr (Sink::contiguous) {
      char* at = to.at(first);
      if constexpr (streams)
        if (out) {
          at = out->open(at);
          out->fill += row * (i64)sizeof(stored);
        }
      KM_IVDEP
      for (int l = 0; l < lanes; l++)
        for (int v = 0; v < V; v++)
          element<stored>::store(at + (l * V + v) * (i64)sizeof(stored), result(s, x, l, v));
    } else {
      for (int l = 0; l < lanes; l++)
        for (int v = 0; v < V; v++) to(first + l * V + v, result(s, x, l, v));
    }
  }

  // A row that ends early, element by element.
  static KM_INL T short_row(const S& s, const Feed& from, const Sink& to, i64 first, int count, bool any,
                            const T& before) {
    T item[row], through[lanes];
    u8 heads[S::exclusive ? row : 1];
    const int filled = (count + V - 1) / V;
    for (int i = 0; i < count; i++) {
      item[i] = from(first + i);
      if constexpr (S::exclusive) heads[i] = S::begins(item[i]);
      if (i % V) item[i] = s.op(item[i - 1], item[i]);
      through[i / V] = item[i];
    }
    for (int d = 1; d < filled; d *= 2)
      for (int l = filled - 1; l >= d; l--) through[l] = s.op(through[l - d], through[l]);
    for (int l = filled - 1; l >= 0; l--) {
      const bool has = any || l > 0;
      T left = before;
      if (l > 0) left = any ? s.op(before, through[l - 1]) : through[l - 1];
      for (int i = smaller(count, (l + 1) * V) - 1; i >= l * V; i--) {
        T made = item[i];
        if constexpr (S::exclusive) {
          if (i % V == 0) made = left;
          else made = has ? s.op(left, item[i - 1]) : item[i - 1];
        } else if (has) {
          made = s.op(left, item[i]);
        }
        to(first + i, s.finish(made, S::exclusive ? heads[S::exclusive ? i : 0] : false));
      }
    }
    return through[filled - 1];
  }

  // ---- one row in registers ------------------------------------------------------------------------

  template <bool Yes, class = void> struct registers_of {
    typedef row_registers<T, V> type;
  };
  template <class Never> struct registers_of<false, Never> {
    typedef void type;
  };
  typedef typename registers_of<S::vectors>::type registers;

  // Neighbours in memory: the elements themselves, or values made of them.
  static KM_INL const char* values_at(const Feed& from, i64 first, T* made) {
    if constexpr (Feed::plain) return from.data + first * (i64)sizeof(T);
    KM_IVDEP
    for (i64 i = 0; i < row; i++) made[i] = from(first + i);
    return (const char*)made;
  }
  static KM_INL T scan_row(const S& s, const Feed& from, const Sink& to, i64 first, const T& before, Stage* out) {
    alignas(64) T taken[row], made[row];
    const char* at = values_at(from, first, taken);
    if constexpr (Sink::contiguous && S::plain) {
      char* target = to.at(first);
      if (out) {
        target = out->open(target);
        out->fill += row * (i64)sizeof(stored);
      }
      return registers::template scan<S::exclusive>(s.op, at, target, before);
    }
    const T total = registers::template scan<S::exclusive>(s.op, at, (char*)made, before);
    if constexpr (Sink::contiguous) {
      char* target = to.at(first);
      if (out) {
        target = out->open(target);
        out->fill += row * (i64)sizeof(stored);
      }
      KM_IVDEP
      for (i64 i = 0; i < row; i++)
        element<stored>::store(target + i * (i64)sizeof(stored), s.finish(made[i], false));
    } else {
      for (i64 i = 0; i < row; i++) to(first + i, s.finish(made[i], false));
    }
    return total;
  }
  static KM_HOT T vector_total(const S& scan, const Feed& feed, i64 first) {
    const S s = scan;
    const Feed from = feed;
    constexpr int W = registers::W;
    alignas(64) T taken[W][row], each[R * S::warps];
    for (int r = 0; r < R * S::warps; r += W) {
      const auto sums = registers::totals(
          s.op, [&](int k) { return values_at(from, first + (r + k) * row, taken[k]); });
      __builtin_memcpy(each + r, &sums, sizeof sums);
    }
    T inside;
    for (int w = 0; w < S::warps; w++) {
      T total = each[w * R];
      for (int r = 1; r < R; r++) total = s.op(total, each[w * R + r]);
      inside = w ? s.op(inside, total) : total;
    }
    return inside;
  }

  // ---- one tile ----------------------------------------------------------------------------------

  static KM_INL T any_row(const S& s, const Feed& from, const Sink& to, i64 first, i64 end, bool any,
                          const T& before, Stage* out, Row& x) {
    if (first + row > end) return short_row(s, from, to, first, (int)(end - first), any, before);
    read(from, first, x);
    combine_runs(s, x);
    reach_all(s, x.through);
    const T through = x.through[lanes - 1];
    place(s, x, any, before);
    write(s, x, to, first, out);
    return through;
  }
  static KM_RARE T rare_row(const S& s, const Feed& from, const Sink& to, i64 first, i64 end, bool any,
                            const T& before, Stage* out) {
    Row x;
    return any_row(s, from, to, first, end, any, before, out, x);
  }

  // Scans elements first .. end - 1, and returns the total of what are whole parts.
  static KM_HOT T scan_tile(const S& scan, const Feed& feed, const Sink& sink, i64 first, i64 end, bool any,
                            const T before, Stage* out) {
    const S s = scan;
    const Feed from = feed;
    const Sink to = sink;
    [[maybe_unused]] Row x;
    T inside;
    for (int w = 0; w < S::warps && first < end; w++) {
      T past, total;
      bool has = any || w > 0;
      if (has) past = w == 0 ? before : any ? s.op(before, inside) : inside;
      for (int r = 0; r < R && first < end; r++, first += row) {
        T through;
        if constexpr (!S::vectors) through = any_row(s, from, to, first, end, has, has ? past : s.seed, out, x);
        else if (has && first + row <= end) through = scan_row(s, from, to, first, past, out);
        else through = rare_row(s, from, to, first, end, has, has ? past : s.seed, out);
        past = has ? s.op(past, through) : through;
        total = r ? s.op(total, through) : through;
        has = true;
      }
      inside = w ? s.op(inside, total) : total;
    }
    return inside;
  }
  // The total of a whole tile.
  static KM_HOT T total_of(const S& scan, const Feed& feed, i64 first) {
    if constexpr (S::vectors) return vector_total(scan, feed, first);
    const S s = scan;
    const Feed from = feed;
    Row x;
    T inside, total;
    for (int w = 0; w < S::warps; w++) {
      for (int r = 0; r < R; r++, first += row) {
        read(from, first, x);
        for (int v = 1; v < V; v++) {
          KM_IVDEP
          for (int l = 0; l < lanes; l++) x.item[0][l] = s.op(x.item[0][l], x.item[v][l]);
        }
        const T through = pair_all(s, x.item[0]);
        total = r ? s.op(total, through) : through;
      }
      inside = w ? s.op(inside, total) : total;
    }
    return inside;
  }

  // ---- sequences ---------------------------------------------------------------------------------

  typedef tiles_before<T, Op> past;

  // What is before the next tile; whether there is anything.
  static KM_INL bool start(const S& s, const past& p, T& before) {
    const bool any = p.any();
    if (any) before = p.prefix(s.op);
    if constexpr (S::seeded) before = any ? s.op(s.seed, before) : s.seed;
    return any || S::seeded;
  }
  static KM_RARE void one_thread(const S& s, const Feed& from, const Sink& to, i64 length, Stage* out) {
    past p;
    for (i64 first = 0; first < length; first += tile) {
      T before;
      const bool any = start(s, p, before);
      p.push(scan_tile(s, from, to, first, smaller(first + tile, length), any, before, out), s.op);
    }
  }

  // Batches of tiles are taken in their order, and handed on in it.
  struct Chain {
    alignas(64) i64 next = 0;
    alignas(64) i64 done = 0;
    past p;
  };
  static KM_RARE void take_turns(const S& s, const Feed& from, const Sink& to, i64 length, Chain& chain, Stage* out) {
    const i64 tiles = ceil_div(length, tile);
    for (;;) {
      const i64 number = __atomic_fetch_add(&chain.next, 1, __ATOMIC_RELAXED), low = number * batch;
      if (low >= tiles) return;
      const i64 count = smaller(batch, tiles - low);
      T total[batch], before[batch];
      bool any[batch];
      for (i64 k = 0; k < count; k++)
        if (low + k + 1 < tiles) total[k] = total_of(s, from, (low + k) * tile);
      wait_for_turn(&chain.done, number);
      for (i64 k = 0; k < count; k++) {
        any[k] = start(s, chain.p, before[k]);
        if (low + k + 1 < tiles) chain.p.push(total[k], s.op);
      }
      __atomic_store_n(&chain.done, number + 1, __ATOMIC_RELEASE);
      for (i64 k = 0; k < count; k++) {
        const i64 first = (low + k) * tile;
        scan_tile(s, from, to, first, smaller(first + tile, length), any[k], before[k], out);
      }
    }
  }

  static constexpr i64 together = 2 * batch * tile;
  static KM_INL Chain chain_of(const S&) { return Chain(); }
  static KM_INL void run(const ScanCall& c, const S& s) { scan_sequences<scan, Feed, Sink>::run(c, s); }
};

}  // namespace km
