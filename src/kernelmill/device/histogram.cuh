// histogram.cuh - values counted, or their weights added up, by bins, in one launch.  What a bin is says places.hpp.
//
//   typedef km::histogram<km::indices_of<channels>, Place, Count, Access, Operands, Fed> Run;
//   Run::shared_counts(call) | Run::global_counts(call) | Run::ordered_sums(call)
//
// Operands: one input a channel, the weights where there are any, the edges of each channel where Place takes any, then the
// counts of each channel.  Where `Fed` computes values and weights, or takes counts, there are its operands behind them.
// `tickets` are a counter, one unused, and a sum of 8 bytes for each bin: 0 before a launch and after.
// Whole numbers are added in any order.  Other weights are added in one that elements and grid decide: each warp has a table
// of its own, in which lanes of one bin combine first; tables and blocks join by their numbers.
#pragma once
#include "operands.cuh"
#include "places.hpp"
#include "warp.cuh"

namespace km {

constexpr int count_threads = 1024, sum_threads = 256, counter_room = 8192, table_room = 4096, packets_in_flight = 4;

template <int Operands, int Bytes>
struct HistogramCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 copies, piece, tables;
};

struct unweighted {
  typedef u32 sum;
  typedef i64 out;
  static constexpr bool weights = false;
};
template <class W, class S, class O>
struct weighted {
  typedef W weight;
  typedef S sum;
  typedef O out;
  static constexpr bool weights = true;
};

template <class S, class W> KM_INL S summand(const W& w) { return measured<S>(w); }
template <> KM_INL c128 summand<c128, c64>(const c64& w) { return c128{(f64)w.re, (f64)w.im}; }
template <> KM_INL c128 summand<c128, c128>(const c128& w) { return w; }
KM_INL f64 summed(f64 a, f64 b) { return a + b; }
KM_INL i64 summed(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
KM_INL c128 summed(const c128& a, const c128& b) { return c128{a.re + b.re, a.im + b.im}; }
template <class O> struct total_as {
  template <class S> static KM_INL O of(const S& sum) { return (O)sum; }
};
template <> struct total_as<bool> {
  template <class S> static KM_INL bool of(const S& sum) { return sum != 0; }
};
template <> struct total_as<c64> {
  static KM_INL c64 of(const c128& sum) { return c64{(f32)sum.re, (f32)sum.im}; }
};

// All are arrays.  Others are printed for a call: `before` bytes of captured scalars stand before the bins.
struct not_fed {
  static constexpr bool computes = false, hands = false;
  static constexpr int operands = 0, before = 0;
};

template <class Channels, class Place, class Count, template <class> class Access, int Operands, class Fed = not_fed>
struct histogram;

template <int... K, class Place, class Count, template <class> class Access, int Operands, class Fed>
struct histogram<indices<K...>, Place, Count, Access, Operands, Fed> {
  typedef typename Place::value T;
  typedef typename Count::sum S;
  typedef typename Count::out O;
  static constexpr int channels = (int)sizeof...(K), wide = 16 / (int)sizeof(T);
  static constexpr bool bytes = sizeof(T) == 1 && !Count::weights;
  typedef batch<typename stored<T>::type, wide> held;
  typedef HistogramCall<Operands + Fed::operands, Fed::before + channels * (int)sizeof(Bins)> call;

  static KM_INL const Bins& bins(const call& c, int k) { return ((const Bins*)(c.captures + Fed::before))[k]; }
  static KM_INL Place place(const call& c, int k) {
    constexpr int first = channels + (Count::weights ? 1 : 0);
    return Place(bins(c, k), c.data[first + k < Operands ? first + k : 0]);
  }
  static KM_INL i64 offset(const call& c, int k) {
    i64 at = 0;
    for (int j = 0; j < k; j++) at += bins(c, j).bins;
    return at;
  }
  static KM_INL u64* sums(const call& c) { return (u64*)(c.tickets + 2); }

  template <class V>
  static KM_INL V element_at(const call& c, int k, i64 i) {
    if (c.ndim <= 1) return Access<V>::load(c.data[k] + i * (c.ndim ? c.strides[k][0] : (i64)sizeof(V)));
    const char* at = c.data[k];
    _Pragma("unroll 1") for (int d = (int)c.ndim - 1; d >= 0; d--) {
      const i64 outer = i / c.shape[d];
      at += (i - outer * c.shape[d]) * c.strides[k][d];
      i = outer;
    }
    return Access<V>::load(at);
  }
  static KM_INL T value_at(const call& c, int k, i64 i) {
    if constexpr (Fed::computes) return Fed::value(c, k, i);
    else return element_at<T>(c, k, i);
  }
  // Whether the elements of the first channel can be read sixteen bytes at a time.
  static KM_INL bool packed(const call& c) {
    return !Fed::computes && channels == 1 && !Count::weights && (uptr)c.data[0] % 16 == 0 &&
           (c.ndim == 0 || (c.ndim == 1 && c.strides[0][0] == (i64)sizeof(T)));
  }
  // Whether this block is the last one; all have done before what they do.
  static KM_INL bool is_last(const call& c) {
    __shared__ bool last;
    block_barrier();
    if (threadIdx.x == 0) {
      last = atomic_add<acquire_release>(c.tickets, 1u) + 1 == gridDim.x;
      if (last) atomic_store<relaxed>(c.tickets, 0u);
    }
    block_barrier();
    return last;
  }
  template <class V>
  static KM_INL void store(const call& c, int k, i64 bin, const V& sum) {
    const int to = Operands - channels + k;
    if constexpr (Fed::hands) Fed::put(c, k, bin, total_as<O>::of(sum));
    else store_anywhere<O>(c.data[to] + bin * c.strides[to][0], total_as<O>::of(sum));
  }
  // Adds the sum of a block to that of all; where there is one block, it is the result.
  static KM_INL void add(const call& c, int k, i64 bin, u64 sum) {
    if (gridDim.x == 1 && !bytes) store(c, k, bin, (i64)sum);
    else if (sum != 0) atomic_add<relaxed>(sums(c) + offset(c, k) + bin, sum);
  }
  // What the last block does where sums are whole numbers: they become results, and zero again.
  static KM_INL void deliver(const call& c) {
    if (!is_last(c)) return;
    _Pragma("unroll 1") for (int k = 0; k < channels; k++) {
      u64* from = sums(c) + offset(c, k);
      for (i64 b = threadIdx.x; b < bins(c, k).bins; b += blockDim.x) {
        store(c, k, b, (i64)atomic_load<relaxed>(from + b));
        atomic_store<relaxed>(from + b, (u64)0);
      }
    }
  }

  // ---- counters in shared memory: as many copies of each as there is room for, side by side, so that lanes seldom meet

  struct shared_table {
    S* at;
    u32 copies, mine;
    S* lost;  // where lanes count what is in no bin, which takes less time than not to count it
    KM_INL void add(i32 bin, S by) const { add_shared(at + ((u32)bin * copies + mine), by); }
    KM_INL void add_or_lose(i32 bin, i32 bins, S by) const {
      add_shared((u32)bin < (u32)bins ? at + ((u32)bin * copies + mine) : lost, by);
    }
  };
  static KM_INL i32 slot_of(const Place& p, T x) {
    if constexpr (bytes) return (i32)bit_cast<u8>(x);
    else return p.place(x);
  }
  static KM_INL void count(const shared_table& to, const Place& p, T x, S by) {
    const i32 bin = slot_of(p, x);
    if (bytes || bin >= 0) to.add(bin, by);
  }
  // Values of which some lie near an edge: rare, and kept out of the loops.
  static KM_COLD void count_near(const call& c, const shared_table& to, const packet& seen) {
    const Place p = place(c, 0);
    const held some = bit_cast<held>(seen);
    KM_UNROLL_ALL for (int v = 0; v < wide; v++) count(to, p, widened(T(), some.item[v]), (S)1);
  }
  static KM_INL void count_packed(const call& c, const shared_table& to, const Place& p) {
    const i64 packets = c.elements / wide, step = (i64)gridDim.x * blockDim.x;
    const packet* from = (const packet*)c.data[0];
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (packets_in_flight - 1) * step < packets; i += packets_in_flight * step) {
      packet seen[packets_in_flight];
      KM_UNROLL_ALL for (int u = 0; u < packets_in_flight; u++) seen[u] = load_packet_once(from + i + u * step);
      KM_UNROLL_ALL for (int u = 0; u < packets_in_flight; u++) count_packet(c, to, p, seen[u]);
    }
    _Pragma("unroll 1") for (; i < packets; i += step) count_packet(c, to, p, load_packet_once(from + i));
    i = packets * wide + threadIdx.x;
    if (blockIdx.x == 0 && i < c.elements) count(to, p, element<T>::load(c.data[0] + i * (i64)sizeof(T)), (S)1);
  }
  static KM_INL void count_packet(const call& c, const shared_table& to, const Place& p, const packet& seen) {
    const held some = bit_cast<held>(seen);
    if constexpr (bytes) {
      KM_UNROLL_ALL for (int v = 0; v < wide; v++) count(to, p, widened(T(), some.item[v]), (S)1);
    } else {
      i32 bin[wide];
      bool sure = true;
      KM_UNROLL_ALL for (int v = 0; v < wide; v++) sure &= p.place_sure(widened(T(), some.item[v]), bin[v]);
      if (KM_UNLIKELY(!sure)) return count_near(c, to, seen);
      KM_UNROLL_ALL for (int v = 0; v < wide; v++) to.add_or_lose(bin[v], p.bins, (S)1);
    }
  }
  static KM_INL void count_each(const call& c, const shared_table& to, const Place& p, int k) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    _Pragma("unroll 2") for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < c.elements; i += step)
      count(to, p, value_at(c, k, i), weight_at(c, i));
  }
  static KM_INL S weight_at(const call& c, i64 i) {
    if constexpr (!Count::weights) return (S)1;
    else if constexpr (Fed::computes) return summand<S>(Fed::weight(c, i));
    else return summand<S>(element_at<typename Count::weight>(c, channels, i));
  }
  static KM_INL i64 slots(const call& c, int k) { return bytes ? 256 : bins(c, k).bins; }

  static KM_INL void shared_counts(const call& c) {
    __shared__ __align__(16) S table[counter_room * 4 / sizeof(S) + warp_size];
    i64 all = 0;
    for (int k = 0; k < channels; k++) all += slots(c, k);
    for (i64 i = threadIdx.x; i < all * c.copies; i += blockDim.x) table[i] = 0;
    block_barrier();
    S* const lost = table + counter_room * 4 / sizeof(S) + lane_id();
    shared_table to = {table, (u32)c.copies, lane_id() & (u32)(c.copies - 1), lost};
    _Pragma("unroll 1") for (int k = 0; k < channels; k++) {
      const Place p = place(c, k);
      if (packed(c)) count_packed(c, to, p);
      else count_each(c, to, p, k);
      to.at += slots(c, k) * c.copies;
    }
    block_barrier();
    const S* from = table;
    _Pragma("unroll 1") for (int k = 0; k < channels; k++) {
      const Place p = place(c, k);
      for (i64 b = threadIdx.x; b < slots(c, k); b += blockDim.x) {
        S sum = 0;
        for (u32 q = 0; q < (u32)c.copies; q++) sum += from[b * c.copies + ((q + lane_id()) & (u32)(c.copies - 1))];
        i64 bin = b;
        if constexpr (bytes) bin = p.place(element<T>::load((const char*)&b));
        if (bin >= 0) add(c, k, bin, (u64)sum);
      }
      from += slots(c, k) * c.copies;
    }
    if (gridDim.x > 1 || bytes) deliver(c);
  }

  // ---- counters in memory: lanes of one bin add once

  static KM_INL void global_counts(const call& c) {
    const i64 step = (i64)gridDim.x * blockDim.x, rounds = ceil_div(c.elements, step);
    _Pragma("unroll 1") for (int k = 0; k < channels; k++) {
      const Place p = place(c, k);
      u64* to = sums(c) + offset(c, k);
      _Pragma("unroll 1") for (i64 r = 0; r < rounds; r++) {
        const i64 i = r * step + (i64)blockIdx.x * blockDim.x + threadIdx.x;
        const bool here = i < c.elements;
        const i32 bin = here ? p.place(value_at(c, k, i)) : no_bin;
        if constexpr (Count::weights) {
          if (bin >= 0) atomic_add<relaxed>(to + bin, (u64)weight_at(c, i));
        } else {
          const u32 alike = match_any((u32)bin);
          if (bin >= 0 && (int)lane_id() == __ffs((int)alike) - 1) atomic_add<relaxed>(to + bin, (u64)__popc(alike));
        }
      }
    }
    deliver(c);
  }

  // ---- sums in a fixed order

  // Adds up the values of lanes that have the same bin, as a tree over their numbers; the first of them has the sum.
  static KM_INL S combined(S value, u32 alike) {
    const u32 lane = lane_id();
    u32 rank = (u32)__popc(alike & ((1u << lane) - 1)), rest = lane == 31 ? 0 : alike & ~((2u << lane) - 1);
    while (vote_any(rest != 0)) {
      const S other = shuffle(value, rest ? __ffs((int)rest) - 1 : (int)lane);
      if (rest && (rank & 1) == 0) value = summed(value, other);
      rest &= ~ballot((rank & 1) != 0);
      rank >>= 1;
    }
    return value;
  }
  static KM_INL void add_range(const call& c, S* table, i64 low, i64 high) {
    const Place p = place(c, 0);
    _Pragma("unroll 1") for (i64 first = low; first < high; first += warp_size) {
      const i64 i = first + (i64)lane_id();
      i32 bin = no_bin;
      S by = S();
      if (i < high) {
        bin = p.place(value_at(c, 0, i));
        by = weight_at(c, i);
      }
      const u32 alike = match_any((u32)bin);
      by = combined(by, alike);
      if (bin >= 0 && (int)lane_id() == __ffs((int)alike) - 1) table[bin] = summed(table[bin], by);
      warp_barrier();
    }
  }
  // `tables` warps of a block have a table each, in shared memory where `copies` is set; `piece` elements a block.
  static KM_INL void ordered_sums(const call& c) {
    __shared__ __align__(16) char room[table_room * 8];
    const i64 many = bins(c, 0).bins, warp = threadIdx.x / warp_size;
    S* mine = c.copies ? (S*)room : (S*)c.parts + (gridDim.x + blockIdx.x * c.tables) * many;
    for (i64 b = threadIdx.x; b < many * c.tables; b += blockDim.x) mine[b] = S();
    block_barrier();
    const i64 low = smaller(c.elements, blockIdx.x * c.piece), high = smaller(c.elements, low + c.piece);
    const i64 share = ceil_div(ceil_div(high - low, c.tables), warp_size) * warp_size;
    if (warp < c.tables)
      add_range(c, mine + warp * many, smaller(high, low + warp * share), smaller(high, low + (warp + 1) * share));
    block_barrier();
    S* part = (S*)c.parts + blockIdx.x * many;
    for (i64 b = threadIdx.x; b < many; b += blockDim.x) {
      S sum = mine[b];
      for (i64 t = 1; t < c.tables; t++) sum = summed(sum, mine[t * many + b]);
      part[b] = sum;
    }
    if (!is_last(c)) return;
    for (i64 b = threadIdx.x; b < many; b += blockDim.x) {
      S sum = ((const S*)c.parts)[b];
      _Pragma("unroll 8") for (i64 t = 1; t < (i64)gridDim.x; t++) sum = summed(sum, ((const S*)c.parts)[t * many + b]);
      store(c, 0, b, sum);
    }
  }
};

}  // namespace km
