// histogram.hpp - values counted, or their weights added up, by bins: blocks of bin numbers first, so
// that these vectorise, then counters.  What a bin is says places.hpp.
//
//   km::histogram<km::indices_of<channels>, Place, km::unweighted>::run(call)
//   km::histogram<km::indices_of<1>, Place, km::weighted<Weight, Sum, Out>>::run(call)
//
// A third struct, `Fed`, computes values and weights or takes the counts, where those are no arrays.
//
// Operands: one input a channel, the weights where there are any, the edges of each channel where Place
// takes any, then the counts of each channel.  Captures: one km::Bins a channel.  Workspace: counters of
// 8 bytes (`sizeof(Sum)`), `sets` of all bins and one more a channel; flags say how many sets.
#pragma once
#include "numbered.hpp"
#include "places.hpp"

namespace km {

constexpr i64 placed_at_once = 512, counted_task = 1 << 17, few_bins = 4096, byte_tables = 8;
constexpr i64 sets_shift = 8;  // flags: how many sets of counters the workspace has

// How bins are counted: each value counts one.
struct unweighted {
  typedef i64 sum;
  typedef i64 out;
  static constexpr bool weights = false;
};
// Each value counts what its weight says; sums are combined in a fixed order.
template <class W, class S, class O> struct weighted {
  typedef S sum;
  typedef O out;
  typedef W weight;
  static constexpr bool weights = true;
};

template <class S, class W> KM_INL S summand(W w) { return measured<S>(w); }
template <> KM_INL c128 summand<c128, c64>(c64 w) { return c128{(f64)w.re, (f64)w.im}; }
template <> KM_INL c128 summand<c128, c128>(c128 w) { return w; }
KM_INL void add_to(f64& sum, f64 x) { sum += x; }
KM_INL void add_to(i64& sum, i64 x) { sum = (i64)((u64)sum + (u64)x); }
KM_INL void add_to(c128& sum, c128 x) { sum.re += x.re, sum.im += x.im; }
template <class O> struct total_as {
  template <class S> static KM_INL O of(S sum) { return (O)sum; }
};
template <> struct total_as<bool> {
  template <class S> static KM_INL bool of(S sum) { return sum != 0; }
};
template <> struct total_as<c64> {
  static KM_INL c64 of(c128 sum) { return c64{(f32)sum.re, (f32)sum.im}; }
};

// The value that a byte stands for.
template <class T> KM_INL T of_byte(u8 byte) { return element<T>::load((const char*)&byte); }

// All are arrays.  Others are printed for a call: `before` bytes of captured scalars stand before the bins.
struct not_fed {
  static constexpr bool computes = false, hands = false;
  static constexpr int before = 0;
};

template <class Channels, class Place, class Count, class Fed = not_fed> struct histogram;

template <int... K, class Place, class Count, class Fed> struct histogram<indices<K...>, Place, Count, Fed> {
  typedef typename Place::value T;
  typedef typename Count::sum S;
  typedef typename Count::out O;
  static constexpr int channels = (int)sizeof...(K);
  static constexpr bool bytes = sizeof(T) == 1 && !Count::weights;
  // A slot before the bins, of values in no bin.
  static constexpr i64 spare = 1;

  struct Job {
    const Call* call;
    const Bins* bins;
    i64 elements, sets, slots;  // slots of one set
    KM_INL const char* edges(int k) const {
      const int at = channels + (Count::weights ? 1 : 0) + k;
      return call->operands[at < operands() ? at : 0].data;
    }
    KM_INL int operands() const { return (int)(call->flags >> 32); }
    KM_INL const Operand& out(int k) const { return call->operands[operands() - channels + k]; }
    KM_INL Place place(int k) const { return Place(bins[k], edges(k)); }
    KM_INL i64 offset(int k) const {
      i64 at = 0;
      for (int j = 0; j < k; j++) at += bins[j].bins + spare;
      return at;
    }
    KM_INL S* set(i64 number) const { return (S*)call->workspace + number * slots; }
  };

  // n values from number i on, of a channel or, behind those, the weights: where they lie, or in `room`.
  template <class V>
  static KM_INL const char* fetch(const Job& job, int k, i64 i, i64 n, char* room) {
    if constexpr (Fed::computes) {
      Fed::fill(job.call, k, i, n, room);
      return room;
    } else {
      return elements_of<V>{job.call, k}.fetch(i, n, room);
    }
  }
  // The bin of each of n values.
  static KM_INL void number(const Place& where, const char* from, i64 n, i32* KM_R to) {
    const Place p = where;
    if (p.exact) {
      for (i64 i = 0; i < n; i++) to[i] = p.place(element<T>::load(from + i * (i64)sizeof(T)));
    } else {
      KM_IVDEP
      for (i64 i = 0; i < n; i++) to[i] = p.place_near(element<T>::load(from + i * (i64)sizeof(T)));
    }
  }

  // ---- counting

  // `tables` of counters beside each other break the chain of equal neighbours.
  template <int Tables, class C>
  static KM_INL void count_block(const i32* at, i64 n, C* KM_R table, i64 step) {
    i64 i = 0;
    for (; i + Tables <= n; i += Tables) {
      KM_UNROLL_ALL
      for (int t = 0; t < Tables; t++) table[t * step + at[i + t] + spare]++;
    }
    for (; i < n; i++) table[at[i] + spare]++;
  }
  static KM_HOT void count_values(const Job& job, int k, i64 begin, i64 end, S* set, u32* small) {
    const Place p = job.place(k);
    alignas(64) i32 at[placed_at_once];
    alignas(64) char room[placed_at_once * sizeof(T)];
    const i64 step = (job.bins[k].bins + spare + 15) & ~i64(15);
    // Tables of their own are worth it where more is counted than they have to be cleared and added up.
    const bool few = job.bins[k].bins <= few_bins && end - begin >= 8 * job.bins[k].bins;
    if (few) __builtin_memset(small, 0, (usize)(4 * step) * sizeof(u32));
    for (i64 i = begin; i < end; i += placed_at_once) {
      const i64 n = smaller(placed_at_once, end - i);
      number(p, fetch<T>(job, k, i, n, room), n, at);
      if (few)
        count_block<4>(at, n, small, step);
      else
        count_block<1>(at, n, (u64*)set, 0);
    }
    if (few)
      for (i64 b = 0; b < job.bins[k].bins + spare; b++)
        for (int t = 0; t < 4; t++) set[b] += (S)small[t * step + b];
  }
  // Each byte by its value; what bin that is, is looked up at the end.
  static KM_HOT void count_bytes(const Job& job, int k, i64 begin, i64 end, u32 (*h)[256]) {
    __builtin_memset(h, 0, byte_tables * sizeof(*h));
    char room[placed_at_once];
    const bool plain = !Fed::computes && elements_of<T>{job.call, k}.plain();
    for (i64 at = begin, n; at < end; at += n) {
      n = plain ? end - at : smaller(placed_at_once, end - at);
      const char* x = fetch<T>(job, k, at, n, room);
      i64 i = 0;
      for (; i + 16 <= n; i += 16) {
        u64 a, b;
        __builtin_memcpy(&a, x + i, 8);
        __builtin_memcpy(&b, x + i + 8, 8);
        KM_UNROLL_ALL
        for (int j = 0; j < 8; j += 2) {
          const int q = j & 2;
          h[q][(u8)(a >> (8 * j))]++;
          h[q + 1][(u8)(a >> (8 * j + 8))]++;
          h[q + 4][(u8)(b >> (8 * j))]++;
          h[q + 5][(u8)(b >> (8 * j + 8))]++;
        }
      }
      for (; i < n; i++) h[0][(u8)x[i]]++;
    }
  }
  static KM_COLD void place_bytes(const Job& job, int k, u32 (*h)[256], S* set) {
    const Place p = job.place(k);
    for (int v = 0; v < 256; v++) {
      i64 sum = 0;
      for (int t = 0; t < byte_tables; t++) sum += h[t][v];
      if (sum) set[p.place(of_byte<T>((u8)v)) + spare] += (S)sum;
    }
  }
  static KM_COLD void count_range(const Job& job, int k, i64 begin, i64 end, S* set) {
    if constexpr (bytes) {
      alignas(64) u32 h[byte_tables][256];
      count_bytes(job, k, begin, end, h);
      place_bytes(job, k, h, set);
    } else {
      alignas(64) u32 small[4 * (few_bins + 16)];
      count_values(job, k, begin, end, set, small);
    }
  }

  // ---- adding weights

  template <class Weight>
  static KM_HOT void add_range(const Job& job, i64 begin, i64 end, S* set) {
    const Place p = job.place(0);
    alignas(64) i32 at[placed_at_once];
    alignas(64) char room[placed_at_once * sizeof(T)], other[placed_at_once * sizeof(Weight)];
    for (i64 i = begin; i < end; i += placed_at_once) {
      const i64 n = smaller(placed_at_once, end - i);
      const char* weights = fetch<Weight>(job, 1, i, n, other);
      number(p, fetch<T>(job, 0, i, n, room), n, at);
      for (i64 j = 0; j < n; j++)
        add_to(set[at[j] + spare],
               summand<S>(element<Weight>::load(weights + j * (i64)sizeof(Weight))));
    }
  }

  // ---- sets of counters

  // Range `number` of the elements, which are cut the same way whatever the threads.
  static KM_INL i64 cut(const Job& job, i64 number, i64 count) {
    return (i64)((__int128)job.elements * number / count);
  }
  static KM_COLD void collect_sets(const Job& job, i64 begin, i64 end, int k) {
    const i64 at = job.offset(k) + spare;
    for (i64 b = begin; b < end; b++) {
      S sum = job.set(0)[at + b];
      for (i64 s = 1; s < job.sets; s++) add_to(sum, job.set(s)[at + b]);
      if constexpr (Fed::hands)
        Fed::put(job.call, k, b, total_as<O>::of(sum));
      else
        element<O>::store(job.out(k).data + b * job.out(k).strides[0], total_as<O>::of(sum));
    }
  }
  static KM_COLD void collect_all(const Job& job) {
    for (int k = 0; k < channels; k++) {
      constexpr i64 share = 1 << 14;
      auto body = [&](i64 begin, i64 end) {
        collect_sets(job, begin * share, smaller(end * share, job.bins[k].bins), k);
      };
      for_tasks(job.call, ceil_div(job.bins[k].bins, share), body);
    }
  }
  static KM_COLD void clear(const Job& job) {
    constexpr i64 share = 1 << 15;
    const i64 size = job.sets * job.slots * (i64)sizeof(S);
    auto body = [&](i64 begin, i64 end) {
      __builtin_memset((char*)job.call->workspace + begin * share, 0,
                       (usize)(smaller(end * share, size) - begin * share));
    };
    for_tasks(job.call, ceil_div(size, share), body);
  }

  static KM_COLD void run(const Call* call) {
    Job job{call, (const Bins*)((const char*)call->captures + Fed::before), extent_of(call, 0, call->ndim), 0, 0};
    job.sets = call->flags >> sets_shift & 0xffff;
    job.slots = job.offset(channels);
    if constexpr (!Count::weights)  // of a few elements one set is all that is used
      job.sets = smaller(job.sets, larger(i64(1), ceil_div(job.elements, counted_task)));
    clear(job);
    if constexpr (Count::weights) {  // a set for each range, whoever works on it
      auto body = [&](i64 begin, i64 end) {
        for (i64 s = begin; s < end; s++)
          add_range<typename Count::weight>(job, cut(job, s, job.sets), cut(job, s + 1, job.sets),
                                            job.set(s));
      };
      for_tasks(call, job.sets, body);
    } else {  // a set for each thread: whole numbers, so that the order does not matter
      const i64 tasks = ceil_div(job.elements, counted_task);
      auto part = [&](i64 begin, i64 end, int worker) {
        for (int k = 0; k < channels; k++)
          count_range(job, k, begin * counted_task, smaller(end * counted_task, job.elements),
                      job.set(worker) + job.offset(k));
      };
      run_counted(call, tasks, smaller((i64)call->threads, job.sets), part);
    }
    collect_all(job);
  }
  // At most so many threads, each with a number of its own.
  template <class Body>
  static KM_COLD void run_counted(const Call* call, i64 tasks, i64 threads, Body& part) {
    constexpr i64 most = 64;  // tasks at a time: counters of 32 bits hold as many values
    if (threads <= 1) {
      for (i64 t = 0; t < tasks; t += most) part(t, smaller(tasks, t + most), 0);
      return;
    }
    call->runtime->parallel_for(
        tasks, (int)threads,
        [](void* context, i64 begin, i64 end, int worker) {
          for (i64 t = begin; t < end; t += most)
            (*(Body*)context)(t, smaller(end, t + most), worker);
        },
        &part);
  }
};

}  // namespace km
