// select.cuh - selections on a device: select, partition into two or three, the first of equal neighbours, the lengths of
// runs.  Two ways through the tiles, with one result: one block a tile (any chip, any layout, small inputs), and the ring of
// ring.cuh.  What a warp does with its part is in select_part.cuh.
#pragma once
#include "ring.cuh"
#include "select_part.cuh"

namespace km {

// Integers combine in any order, so a warp that asks for one tile after another only adds what is new: the tiles since the last
// one, about one a multiprocessor.
struct tallies_in_order : add_tallies {};
template <class T>
struct lookback<T, add_tallies> : lookback<T, tallies_in_order> {
  typedef lookback<T, tallies_in_order> in_order;
  static constexpr int window = 5;  // of 32 tiles, asked for at a time

  T sum{};
  i64 done = 0;

  KM_INL T prefix(const char* table, u32 tag, i64 tile, const add_tallies& op) {
    T fresh{};
    _Pragma("unroll 1") for (i64 first = done; first < tile; first += window * warp_size) {
      const i64 mine = first + (i64)lane_id();
      T value[window];
      bool there[window];
      KM_UNROLL_ALL for (int u = 0; u < window; u++)
        there[u] = in_order::record::get(table, smaller(mine + u * warp_size, tile - 1), tag, value[u]);
      for (;;) {
        bool all = true;
        KM_UNROLL_ALL for (int u = 0; u < window; u++) all &= there[u];
        if (vote_all(all)) break;
        KM_UNROLL_ALL for (int u = 0; u < window; u++)
          if (!there[u]) there[u] = in_order::record::get(table, smaller(mine + u * warp_size, tile - 1), tag, value[u]);
      }
      KM_UNROLL_ALL for (int u = 0; u < window; u++)
        if (mine + u * warp_size < tile) fresh = op(fresh, value[u]);
    }
    KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) fresh = op(fresh, shuffle_xor(fresh, d));
    sum = op(sum, fresh);
    done = tile;
    return sum;
  }
};

// Elements of a column by their place: with a stride of any kind, or computed.
template <class A, class Call, bool Fed = A::pattern == fed>
struct one_by_one {
  typedef typename A::raw T;
  const char* from;
  i64 step;
  KM_INL explicit one_by_one(const Call& c)
      : from(c.data[A::operand]),
        step(A::pattern == contiguous ? (i64)A::size : A::pattern == broadcast ? 0 : c.strides[A::operand][0]) {}
  KM_INL T operator()(i64 i) const { return access_of<T, A::pattern>::type::load(from + i * step); }
};
template <class A, class Call>
struct one_by_one<A, Call, true> {
  decltype(A::source::make(*(const Call*)nullptr)) from;
  KM_INL explicit one_by_one(const Call& c) : from(A::source::make(c)) {}
  KM_INL auto operator()(i64 i) const { return from(i); }
};

// `Part` is a km::selection, `By` makes its decision from the captured scalars.
template <class Part, class By>
struct select_tiles {
  typedef typename Part::value value;
  typedef lookback<value, add_tallies> look;
  static constexpr int workers = Part::workers, threads = workers * warp_size;
  typedef block_lookback<value, tallies_in_order, workers> block_look;

  struct room {
    __align__(16) char bytes[workers * sizeof(value)];
    u32 tag;
    typename block_look::room past;
    KM_INL value& operator[](int i) { return ((value*)bytes)[i]; }
  };

  // ---- into shared memory -----------------------------------------------------------------------------------------------------

  // Elements of a column with a stride of any kind; those behind the end are not touched.
  template <class Call, int K>
  static KM_INL void read(const Call& c, char* stage, i64 low, int worker) {
    typedef typename Part::template at<K> A;
    typedef typename A::raw T;
    constexpr int V = Part::V, bytes = A::size;
    const i64 length = c.shape[0];
    char* mine = stage + Part::template column_at<K> + worker * Part::elements * bytes;
    const char* from = c.data[A::operand];
    if constexpr (A::pattern == contiguous && is_packet<V * bytes>) {
      if (low + Part::elements <= length && (uptr)from % smaller(16, V * bytes & -(V * bytes)) == 0) {
        T item[Part::size];
        KM_UNROLL_ALL for (int r = 0; r < Part::R; r++)
          load_packets<T, V>(from + (low + (r * warp_size + (int)lane_id()) * V) * bytes, item + r * V);
        KM_UNROLL_ALL for (int r = 0; r < Part::R; r++)
          store_packets<T, V>(mine + (r * warp_size + (int)lane_id()) * V * bytes, item + r * V);
        return;
      }
    }
    const int held = (int)smaller<i64>(length - low, Part::elements);
    const one_by_one<A, Call> take(c);
    for (int i = (int)lane_id(); i < held; i += warp_size) element<T>::store(mine + i * bytes, (T)take(low + i));
  }
  // The element in front of the tile.
  template <class Call, int K>
  static KM_INL void read_before(const Call& c, char* stage, i64 low) {
    if constexpr (Part::template lead<K> > 0) {
      typedef typename Part::template at<K> A;
      typedef typename A::raw T;
      if (low > 0) element<T>::store(stage + Part::template column_at<K> - A::size, (T)one_by_one<A, Call>(c)(low - 1));
    }
  }
  template <class Call, int... K>
  static KM_INL void fill(const Call& c, char* stage, i64 tile, int worker, indices<K...>) {
    const i64 low = Part::first(tile, worker);
    if (worker == 0 && lane_id() == 0) (read_before<Call, K>(c, stage, low), ...);
    if (low < c.shape[0]) (read<Call, K>(c, stage, low, worker), ...);
  }

  // ---- one tile -----------------------------------------------------------------------------------------------------------------

  template <class Call>
  static KM_INL void run(const Call& c) {
    __shared__ __align__(128) char stage[Part::stage_bytes];
    __shared__ room totals;
    const add_tallies add;
    const int warp = (int)threadIdx.x / warp_size;
    const i64 tile = (i64)blockIdx.x, length = c.shape[0];
    const By by(c.captures);
    u32 tag = 0;
    if (threadIdx.x == 0 && c.tiles > 1) tag = launch_number(c.parts);  // under way with the elements
    fill(c, stage, tile, warp, indices_of<Part::columns>());
    block_barrier();
    const value mine = Part::count(by, stage, tile, warp, length);
    if (lane_id() == 0) totals[warp] = mine;
    if (threadIdx.x == 0) totals.tag = tag;
    block_barrier();
    char* table = look::table(c.parts);
    if (threadIdx.x == 0 && tile + 1 < c.tiles) {
      value total = totals[0];
      KM_UNROLL_ALL for (int w = 1; w < workers; w++) total = add(total, totals[w]);
      look::publish(table, tile, tag, total);
    }
    const auto found = Part::gather(stage, tile, warp, length, indices_of<Part::columns>());
    value before{};
    if (tile > 0) before = block_look::prefix(table, (int)c.tiles, totals.tag, (int)tile, tallies_in_order(), totals.past, warp);
    else block_barrier();
    // The last tile has waited for all others, so nobody else will read the number of this launch.
    if (c.tiles > 1 && tile + 1 == c.tiles && threadIdx.x == 0) launch_over(c.parts, tag);
    KM_UNROLL_ALL for (int w = 0; w < workers; w++)
      if (w < warp) before = add(before, totals[w]);
    Part::write(c, found, stage, tile, warp, before, indices_of<Part::columns>());
    if (length == 0 && threadIdx.x == 0)
      KM_UNROLL_ALL for (int m = 0; m < Part::counts; m++) Part::set_count(c, m, 0);
  }
};

// Columns without gaps, at addresses that are multiples of 16.
template <class Part, class By, int Stages, int Reducers, class Call>
struct select_ring {
  typedef typename Part::value value;
  typedef add_tallies Op;
  typedef typename Part::held_parts held;
  static constexpr int workers = Part::workers, reducers = Reducers, stages = Stages, stage_bytes = Part::stage_bytes;
  static constexpr bool seeded = false, takes_sums = true;

  const Call& c;
  By by;
  Op op;
  value seed;

  KM_INL explicit select_ring(const Call& call) : c(call), by(call.captures) {}

  // Every part is counted: one without elements counts as none.
  static KM_INL bool is_whole(i64, int) { return true; }

  // The bytes of a column that the copy engine brings: whole packets; the loader brings the rest.
  template <int K>
  KM_INL u32 copied(i64 low, i64 count) const {
    const u32 lead = low > 0 ? (u32)Part::template lead<K> : 0u;
    return lead + ((u32)(count * Part::template at<K>::size) & ~15u);
  }
  template <int K>
  KM_INL void rest(char* stage, i64 low, i64 count) const {
    constexpr int size = Part::template at<K>::size;
    char* to = stage + Part::template column_at<K>;
    const char* from = c.data[Part::template at<K>::operand] + low * size;
    for (u32 b = (u32)(count * size) & ~15u; b < (u32)(count * size); b++) to[b] = from[b];
  }
  template <int K>
  KM_INL void bring(char* stage, i64 low, i64 count, u64* full) const {
    constexpr int size = Part::template at<K>::size;
    const u32 bytes = copied<K>(low, count), lead = low > 0 ? (u32)Part::template lead<K> : 0u;
    if (bytes) bulk_load(stage + Part::template column_at<K> - lead, c.data[Part::template at<K>::operand] + low * size - lead, bytes, full);
  }
  template <int... K>
  KM_INL void fetch_all(char* stage, i64 tile, u64* full, indices<K...>) const {
    const i64 low = Part::first(tile, 0), count = smaller<i64>(Part::tile, c.shape[0] - low);
    if (count < Part::tile) (rest<K>(stage, low, count), ...);
    const u32 bytes = (0u + ... + copied<K>(low, count));
    if (!bytes) return copy_barrier_arrive(full);
    copy_barrier_expect(full, bytes);
    (bring<K>(stage, low, count, full), ...);
  }
  KM_INL void fetch(char* stage, i64 tile, u64* full) const {
    fetch_all(stage, tile, full, indices_of<Part::columns>());
  }

  KM_INL value total(const char* stage, i64 tile, int worker) const {
    return Part::count(by, (char*)stage, tile, worker, c.shape[0]);
  }
  // The reducers are done: their marks are there, and the stage may be overwritten.
  KM_INL held take(char* stage, i64 tile, int worker) const {
    return Part::gather(stage, tile, worker, c.shape[0], indices_of<Part::columns>());
  }
  KM_INL void give(held& found, char* stage, i64 tile, int worker, bool any, const value& past) const {
    value before{};
    if (any) before = past;
    Part::write(c, found, stage, tile, worker, before, indices_of<Part::columns>());
    seen_by_copies();
    warp_barrier();
  }

  static KM_INL void run(const Call& call) { tile_ring<select_ring>::run(call, select_ring(call), call.tiles); }
};

}  // namespace km
