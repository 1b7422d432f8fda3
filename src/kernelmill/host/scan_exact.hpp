// scan_exact.hpp - scans of integers with operators of which every order gives the same bits: element after element, behind the
// total of what is before a chunk.  The order of all other scans is scan.hpp, which is given the same structs.
#pragma once
#include "scan.hpp"

namespace km {

template <class S, class Feed, class Sink> struct scan_exact {
  typedef typename S::value T;
  typedef typename S::stored stored;
  // Elements that a thread takes at a time, which stay in its cache; those of one block on their way out.
  static constexpr i64 chunk = 16384, row = 64;
  static constexpr bool streams = Sink::contiguous && row * (i64)sizeof(stored) <= Stage::capacity / 2;

  // What is before an element, where there is anything.
  struct Before {
    T value;
    bool any;
    KM_INL void add(const S& s, const T& x) {
      value = any ? s.op(value, x) : x;
      any = true;
    }
  };
  static KM_INL Before begin(const S& s) {
    if constexpr (S::seeded) return {s.seed, true};
    return {T(), false};
  }

  static KM_HOT T total(const S& scan, const Feed& feed, i64 first, i64 end) {
    const S s = scan;
    const Feed from = feed;
    constexpr int lanes = 32;
    T sum[lanes];
    for (int l = 0; l < lanes; l++) sum[l] = from(first + l);
    for (i64 i = first + lanes; i < end; i += lanes) {
      KM_IVDEP
      for (int l = 0; l < lanes; l++) sum[l] = s.op(sum[l], from(i + l));
    }
    for (int l = 1; l < lanes; l++) sum[0] = s.op(sum[0], sum[l]);
    return sum[0];
  }

  // The result of an element, which `past` takes in.
  static KM_INL stored next(const S& s, T& past, const T& x) {
    const T before = past;
    past = s.op(past, x);
    return s.finish(S::exclusive ? before : past, false);
  }
  // Results of elements first .. end - 1 behind `before`, which takes them in.
  static KM_HOT void results(const S& scan, const Feed& feed, const Sink& sink, i64 first, i64 end, Before& before,
                             Stage* out, const char* ahead = nullptr) {
    const S s = scan;
    const Feed from = feed;
    const Sink to = sink;
    if (!before.any && first < end) {  // an exclusive scan begins with a seed
      before.add(s, from(first));
      to(first++, s.finish(before.value, false));
    }
    T past = before.value;
    if constexpr (Sink::contiguous) {
      for (; first + row <= end; first += row) {
        char* at = to.at(first);
        ask_ahead<Feed>(ahead, row);
        if constexpr (streams)
          if (out) {
            at = out->open(at);
            out->fill += row * (i64)sizeof(stored);
          }
        for (int i = 0; i < row; i++)
          element<stored>::store(at + i * (i64)sizeof(stored), next(s, past, from(first + i)));
      }
    }
    for (; first < end; first++) to(first, next(s, past, from(first)));
    before.value = past;
  }

  struct Chain {
    alignas(64) i64 next = 0;
    alignas(64) i64 done = 0;
    Before before;
  };
  // Chunks are taken in their order, and what is before them is handed on in it.
  static KM_RARE void take_turns(const S& s, const Feed& from, const Sink& to, i64 length, Chain& chain, Stage* out) {
    const i64 chunks = ceil_div(length, chunk);
    for (i64 number = __atomic_fetch_add(&chain.next, 1, __ATOMIC_RELAXED), following;; number = following) {
      const i64 first = number * chunk;
      if (number >= chunks) return;
      const i64 end = smaller(first + chunk, length);
      T sum = T();
      if (end < length) sum = total(s, from, first, end);
      wait_for_turn(&chain.done, number);
      Before before = chain.before;
      if (end < length) chain.before.add(s, sum);
      __atomic_store_n(&chain.done, number + 1, __ATOMIC_RELEASE);
      following = __atomic_fetch_add(&chain.next, 1, __ATOMIC_RELAXED);
      const i64 next = following * chunk;
      results(s, from, to, first, end, before, out, out && next < length ? lines_of(from, next) : nullptr);
    }
  }
  static KM_RARE void one_thread(const S& s, const Feed& from, const Sink& to, i64 length, Stage* out) {
    Before before = begin(s);
    results(s, from, to, 0, length, before, out);
  }

  static constexpr i64 together = 4 * chunk;
  static KM_INL Chain chain_of(const S& s) { return {0, 0, begin(s)}; }
  static KM_INL void run(const ScanCall& c, const S& s) { scan_sequences<scan_exact, Feed, Sink>::run(c, s); }
};

}  // namespace km
