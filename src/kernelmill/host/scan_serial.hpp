// scan_serial.hpp - scans by key on the host in the order that is quickest there: element after
// element inside fixed chunks, which are joined from left to right.  The order of all devices is
// scan.hpp, which is given the same structs.
#pragma once
#include "scan.hpp"

namespace km {

template <class S, class Feed, class Sink> struct scan_serial {
  typedef typename S::value T;
  static constexpr i64 chunk = 32768;

  // Results of elements first .. end - 1 behind `before`, where there is any; returns their total.
  static KM_HOT T results(const S& scan, const Feed& feed, const Sink& sink, i64 first, i64 end, bool any,
                          const T& before) {
    const S s = scan;
    const Feed from = feed;
    const Sink to = sink;
    T sum;
    for (i64 i = first; i < end; i++) {
      const T x = from(i);
      if constexpr (S::exclusive) {
        // Of an element that nothing is before, only its mark counts.
        const T left = i == first ? (any ? before : x) : any ? s.op(before, sum) : sum;
        sum = i == first ? x : s.op(sum, x);
        to(i, s.finish(left, S::begins(x)));
      } else {
        sum = i == first ? x : s.op(sum, x);
        to(i, s.finish(any ? s.op(before, sum) : sum, false));
      }
    }
    return sum;
  }
  static KM_HOT T total(const S& scan, const Feed& feed, i64 first, i64 end) {
    const S s = scan;
    const Feed from = feed;
    T sum = from(first);
    for (i64 i = first + 1; i < end; i++) sum = s.op(sum, from(i));
    return sum;
  }

  struct Chain {
    alignas(64) i64 next = 0;
    alignas(64) i64 done = 0;
    T before;
    KM_INL void push(const S& s, i64 number, const T& sum) { before = number ? s.op(before, sum) : sum; }
  };
  static KM_RARE void take_chunks(const ScanCall& c, const S& s, const Feed& from, const Sink& to, Chain& chain) {
    const i64 chunks = ceil_div(c.length, chunk);
    for (;;) {
      const i64 number = __atomic_fetch_add(&chain.next, 1, __ATOMIC_RELAXED), first = number * chunk;
      if (number >= chunks) return;
      const i64 end = smaller(first + chunk, c.length);
      T sum, before;
      if (end < c.length) sum = total(s, from, first, end);
      wait_for_turn(&chain.done, number);
      if (number) before = chain.before;
      if (end < c.length) chain.push(s, number, sum);
      __atomic_store_n(&chain.done, number + 1, __ATOMIC_RELEASE);
      results(s, from, to, first, end, number > 0, before);
    }
  }
  static KM_RARE void run(const ScanCall& c, const S& s) {
    const Feed from(c, 0);
    const Sink to(c, 0);
    Chain chain;
    if (c.call->threads > 1 && c.length > 4 * chunk) {
      auto body = [&](i64, i64) { take_chunks(c, s, from, to, chain); };
      for_tasks(c.call, c.call->threads, body);
      return;
    }
    for (i64 first = 0, number = 0; first < c.length; first += chunk, number++)
      chain.push(s, number, results(s, from, to, first, smaller(first + chunk, c.length), number > 0, chain.before));
  }
};

}  // namespace km
