// scan_sequences.hpp - what the templates of scans on the host share: the record of a call as they
// see it, and its sequences over threads.  What is computed is in scan.hpp and scan_*.hpp.
#pragma once
#include "layout.hpp"
#include "stream.hpp"
#include "tile.hpp"

extern "C" int sched_yield(void);

// Control flow around the loops, and rows that are few: g++ is told to spend its time elsewhere.
#if defined(__clang__)
#define KM_RARE KM_COLD
#else
#define KM_RARE __attribute__((noinline, noclone, cold, optimize("O1")))
#endif

namespace km {

// The record of a call as scans see it: the last dimension is the one that is scanned.
struct ScanCall {
  const Call* call;
  const char* captures;
  i64 length, units = 1;

  explicit KM_INL ScanCall(const Call* c)
      : call(c), captures((const char*)c->captures), length(c->shape[c->ndim - 1]) {
    for (int d = 0; d < c->ndim - 1; d++) units *= c->shape[d];
  }
  KM_INL char* at(int k) const { return call->operands[k].data; }
  KM_INL i64 step(int k) const { return call->operands[k].strides[call->ndim - 1]; }
  // Where operand k begins in a sequence.
  KM_INL char* row(int k, i64 unit) const {
    char* at = call->operands[k].data;
    for (int d = call->ndim - 2; d >= 0; d--) {
      const i64 extent = call->shape[d];
      at += unit % extent * call->operands[k].strides[d];
      unit /= extent;
    }
    return at;
  }
};

// Waits until what is before piece `number` of a sequence has been handed on.
static inline void wait_for_turn(const i64* done, i64 number) {
  for (int turn = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) != number; turn++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (turn > 200) sched_yield();
  }
}

// Where the elements of a sequence from number `first` on lie, if they adjoin; else 0.
template <class Feed> KM_INL const char* lines_of(const Feed& from, i64 first) {
  if constexpr (Feed::plain) return from.data + first * (i64)sizeof(typename Feed::type);
  else return nullptr;
}
// Asks, while n elements are scanned out of the cache, for as many of those that come next.
template <class Feed> KM_INL void ask_ahead(const char*& lines, i64 n) {
  if (!lines) return;
  fetch_row(lines, n * (i64)sizeof(typename Feed::type));
  lines += n * (i64)sizeof(typename Feed::type);
}

// `Way` is a template around a Scan: `one_thread` scans a sequence; of one of `together` elements or
// more, threads `take_turns` at pieces, in an order that a `Chain` keeps.  Where it `streams`, results
// may leave past the caches.
template <class Way, class Feed, class Sink> struct scan_sequences {
  template <class F> static KM_INL void with_stage(bool stream, F f) {
    if (Way::streams && stream) {
      Stage out;
      f(&out);
      out.close();
      stream_fence();
    } else {
      f((Stage*)nullptr);
    }
  }

  template <class S> static KM_RARE void run(const ScanCall& c, const S& s) {
    const bool stream = c.call->flags & flag_stream;
    if (c.units == 1 || (c.length >= Way::together && c.units < 4 * c.call->threads)) {
      for (i64 unit = 0; unit < c.units; unit++) {
        const Feed from(c, unit);
        const Sink to(c, unit);
        const bool alone = c.call->threads <= 1 || c.length < Way::together;
        typename Way::Chain chain = Way::chain_of(s);
        auto body = [&](i64, i64) {
          with_stage(stream, [&](Stage* out) {
            if (alone) Way::one_thread(s, from, to, c.length, out);
            else Way::take_turns(s, from, to, c.length, chain, out);
          });
        };
        if (alone) body(0, 1);
        else for_tasks(c.call, c.call->threads, body);
      }
      return;
    }
    auto body = [&](i64 begin, i64 end) {
      with_stage(stream, [&](Stage* out) {
        for (i64 unit = begin; unit < end; unit++) Way::one_thread(s, Feed(c, unit), Sink(c, unit), c.length, out);
      });
    };
    for_tasks(c.call, c.units, body);
  }
};

}  // namespace km
