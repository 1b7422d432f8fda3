// sort_radix.hpp - stable radix sort of keys, with a payload of 4 or 8 bytes or with their places, least digit first.
// Orders are in sort_keys.hpp.
//
//   km::radix_sort<Key, Payload, Result, places, keys>::run(call)
//
// Operands: keys, the payload unless it is `places`; then the sorted keys where `keys` is set, the payload as Result
// where it is not km::nothing.  All are contiguous rows, shape is (rows, length), and no output overlaps an input.
// flags: the first bit that counts << 1, the bit behind the last << 9, descending << 17.
// Workspace: see radix_workspace in algorithms/sort_host.py.
#pragma once
#include "sort_keys.hpp"
#include "stream.hpp"

namespace km {

struct nothing {};
template <class P> constexpr bool is_some = true;
template <> constexpr bool is_some<nothing> = false;

// Elements on their way to 256 places: whole lines are gathered in the cache and then written at once.
template <class T> struct Lines {
  static constexpr i64 slots = line_bytes / (i64)sizeof(T);
  alignas(64) T block[256][slots];
  T* to;
  i64 phase;    // elements by which the array lies behind the start of a line
  bool stream;  // past the caches
  KM_INL void open(T* array, bool past) {
    to = array, stream = past;
    phase = (i64)((uptr)array / sizeof(T)) & (slots - 1);
  }
  KM_INL void put(u32 v, i64 place, i64 begin, const T& value) {
    const i64 j = (place + phase) & (slots - 1);
    block[v][j] = value;
    if (KM_UNLIKELY(j == slots - 1)) flush(v, place, begin);
  }
  KM_INL void flush(u32 v, i64 last, i64 begin) {
    const i64 first = last - (slots - 1);
    if (KM_LIKELY(first >= begin)) {
      if (stream)
        stream_lines((char*)(to + first), (const char*)block[v], line_bytes);
      else
        __builtin_memcpy(to + first, block[v], line_bytes);
    } else
      some(v, begin, last + 1);
  }
  KM_INL void some(u32 v, i64 from, i64 end) {
    for (i64 i = from; i < end; i++) to[i] = block[v][(i + phase) & (slots - 1)];
  }
  // What is left of place v, which begins and ends there.
  KM_INL void close(u32 v, i64 begin, i64 end) {
    const i64 line = ((end + phase) & ~(slots - 1)) - phase;
    some(v, larger(line, begin), end);
  }
};
template <> struct Lines<nothing> {};

template <class Key, class P, class Result, bool Places, bool Keys> struct radix_sort {
  typedef bits_of<Key> U;
  static constexpr bool pays = is_some<P>;
  static constexpr int most_digits = (int)sizeof(U);
  static constexpr i64 most_ranges = 16;
  static constexpr i64 cached_bytes = 1 << 20;  // what is scattered without lines: a cache of a core holds it
  static constexpr i64 shared_from = 1 << 15;     // elements of a row on which threads work together

  struct Digit {
    int shift;
    u32 mask;
    U flip;
    KM_INL u32 of(U bits) const { return (u32)((U)(order<Key>::of(bits) ^ flip) >> shift) & mask; }
  };
  struct Row {
    const U* keys;
    const P* payload;
    U *key[2];      // the second is where the last pass goes to
    P* pay[2];
    Result* result;
    i64 length;
  };
  struct Job {
    const Call* call;
    i64 ranges;
    int digits;
    Digit digit[most_digits];
    i64 (*count)[most_digits][256];  // of each range
    bool stream, cached;
  };

  // ---- counting

  static KM_HOT void count_all(const Job& job, const U* keys, i64 begin, i64 end, i64 (*count)[256]) {
    __builtin_memset(count, 0, sizeof(i64) * 256 * (usize)job.digits);
    for (i64 i = begin; i < end; i++) {
      const U bits = keys[i];
      for (int d = 0; d < job.digits; d++) count[d][job.digit[d].of(bits)]++;
    }
  }
  static KM_HOT void count_one(const Digit& digit, const U* keys, i64 begin, i64 end, i64* count) {
    i64 four[4][256];
    __builtin_memset(four, 0, sizeof four);
    i64 i = begin;
    for (; i + 4 <= end; i += 4)
      for (int k = 0; k < 4; k++) four[k][digit.of(keys[i + k])]++;
    for (; i < end; i++) four[0][digit.of(keys[i])]++;
    for (int v = 0; v < 256; v++) count[v] = four[0][v] + four[1][v] + four[2][v] + four[3][v];
  }

  // ---- one pass over a range

  template <bool First> static KM_INL P payload_at(const Row& row, const P* from, i64 i) {
    if constexpr (First && Places)
      return (P)i;
    else
      return from[i];
  }
  template <bool First, bool Last>
  static KM_HOT void scatter_cached(const Digit& digit, const Row& row, const U* keys, const P* payload, U* key,
                                    P* pay, i64* place, i64 begin, i64 end) {
    for (i64 i = begin; i < end; i++) {
      const U bits = keys[i];
      const i64 to = place[digit.of(bits)]++;
      if constexpr (Keys || !Last) key[to] = bits;
      if constexpr (pays) {
        if constexpr (Last)
          row.result[to] = (Result)payload_at<First>(row, payload, i);
        else
          pay[to] = payload_at<First>(row, payload, i);
      }
    }
  }
  template <bool First, bool Last>
  static KM_HOT void scatter_lines(const Digit& digit, const Row& row, const U* keys, const P* payload, U* key, P* pay,
                                   i64* place, i64 begin, i64 end, bool stream) {
    Lines<U> keys_to;
    Lines<P> payload_to;
    Lines<Result> result_to;
    i64 first[256];
    __builtin_memcpy(first, place, sizeof first);
    if constexpr (Keys || !Last) keys_to.open(key, stream);
    if constexpr (pays && Last) result_to.open(row.result, stream);
    if constexpr (pays && !Last) payload_to.open(pay, stream);
    for (i64 i = begin; i < end; i++) {
      const U bits = keys[i];
      const u32 v = digit.of(bits);
      const i64 to = place[v]++;
      if constexpr (Keys || !Last) keys_to.put(v, to, first[v], bits);
      if constexpr (pays && Last) result_to.put(v, to, first[v], (Result)payload_at<First>(row, payload, i));
      if constexpr (pays && !Last) payload_to.put(v, to, first[v], payload_at<First>(row, payload, i));
    }
    for (u32 v = 0; v < 256; v++) {
      if constexpr (Keys || !Last) keys_to.close(v, first[v], place[v]);
      if constexpr (pays && Last) result_to.close(v, first[v], place[v]);
      if constexpr (pays && !Last) payload_to.close(v, first[v], place[v]);
    }
    if (stream) stream_fence();
  }
  static KM_COLD void copy(const Row& row) {
    if constexpr (Keys) __builtin_memcpy(row.key[1], row.keys, (usize)row.length * sizeof(U));
    if constexpr (pays)
      for (i64 i = 0; i < row.length; i++) row.result[i] = (Result)payload_at<true>(row, row.payload, i);
  }

  // ---- a row

  // Fills `pass` with the digits in which keys differ; returns how many there are.
  static KM_COLD int differing(const Job& job, i64 ranges, i64 length, int* pass) {
    int passes = 0;
    for (int d = 0; d < job.digits; d++) {
      i64 most = 0;
      for (int v = 0; v < 256; v++) {
        i64 total = 0;
        for (i64 r = 0; r < ranges; r++) total += job.count[r][d][v];
        most = larger(most, total);
      }
      if (most < length) pass[passes++] = d;
    }
    return passes;
  }
  // Where the elements of a range go to: behind all of smaller digits, and those of ranges before.
  static KM_COLD void places(const Job& job, int d, i64 range, i64 ranges, i64* place) {
    i64 before = 0;
    for (int v = 0; v < 256; v++) {
      i64 mine = before;
      for (i64 r = 0; r < ranges; r++) {
        if (r < range) mine += job.count[r][d][v];
        before += job.count[r][d][v];
      }
      place[v] = mine;
    }
  }
  struct From {
    const U* keys;
    const P* payload;
  };
  static KM_INL From read_by(const Row& row, int k, int passes) {
    const int buffer = (passes - k) & 1;  // what pass k - 1 wrote
    return k ? From{row.key[buffer ^ 1], row.pay[buffer ^ 1]} : From{row.keys, row.payload};
  }

  template <bool First, bool Last>
  static KM_INL void scatter_some(const Job& job, const Digit& digit, const Row& row, const From& from, U* key, P* pay,
                                  i64* place, i64 begin, i64 end) {
    if (job.cached)
      scatter_cached<First, Last>(digit, row, from.keys, from.payload, key, pay, place, begin, end);
    else
      scatter_lines<First, Last>(digit, row, from.keys, from.payload, key, pay, place, begin, end, job.stream);
  }
  static KM_COLD void scatter(const Job& job, bool first, bool last, const Digit& digit, const Row& row, const From& from,
                              U* key, P* pay, i64* place, i64 begin, i64 end) {
    if (first && last)
      scatter_some<true, true>(job, digit, row, from, key, pay, place, begin, end);
    else if (first)
      scatter_some<true, false>(job, digit, row, from, key, pay, place, begin, end);
    else if (last)
      scatter_some<false, true>(job, digit, row, from, key, pay, place, begin, end);
    else
      scatter_some<false, false>(job, digit, row, from, key, pay, place, begin, end);
  }

  // By one thread, in its caches.
  static KM_COLD void alone(const Job& job, const Row& row) {
    i64 count[most_digits][256], place[256];
    int pass[most_digits];
    Job mine = job;
    mine.count = &count;
    count_all(mine, row.keys, 0, row.length, count);
    const int passes = differing(mine, 1, row.length, pass);
    if (!passes) copy(row);
    for (int k = 0; k < passes; k++) {
      const Digit& digit = job.digit[pass[k]];
      places(mine, pass[k], 0, 1, place);
      const From from = read_by(row, k, passes);
      const int to = (passes - 1 - k) & 1 ? 0 : 1;
      U* key = row.key[to];
      P* pay = row.pay[to];
      const bool last = k == passes - 1;
      scatter(mine, !k, last, digit, row, from, key, pay, place, 0, row.length);
    }
  }
  // By all threads, in ranges.
  static KM_COLD void together(const Job& job, const Row& row) {
    const i64 n = row.length, ranges = job.ranges;
    int pass[most_digits];
    auto all = [&](i64 low, i64 high) {
      for (i64 r = low; r < high; r++) count_all(job, row.keys, n * r / ranges, n * (r + 1) / ranges, job.count[r]);
    };
    for_tasks(job.call, ranges, all);
    const int passes = differing(job, ranges, n, pass);
    if (!passes) copy(row);
    for (int k = 0; k < passes; k++) {
      const int d = pass[k];
      const From from = read_by(row, k, passes);
      auto count = [&](i64 low, i64 high) {
        for (i64 r = low; r < high; r++)
          count_one(job.digit[d], from.keys, n * r / ranges, n * (r + 1) / ranges, job.count[r][d]);
      };
      if (k && ranges > 1) for_tasks(job.call, ranges, count);
      const int to = (passes - 1 - k) & 1 ? 0 : 1;
      U* key = row.key[to];
      P* pay = row.pay[to];
      const bool last = k == passes - 1;
      auto move = [&](i64 low, i64 high) {
        for (i64 r = low; r < high; r++) {
          i64 place[256];
          places(job, d, r, ranges, place);
          const i64 begin = n * r / ranges, end = n * (r + 1) / ranges;
          scatter(job, !k, last, job.digit[d], row, from, key, pay, place, begin, end);
        }
      };
      for_tasks(job.call, ranges, move);
    }
  }

  // ---- all rows

  static KM_COLD void digits_of(Job& job, i64 flags) {
    int low = (int)(flags >> 1) & 255, high = (int)(flags >> 9) & 255;
    const U flip = flags >> 17 & 1 ? (U)~(U)0 : (U)0;
    job.digits = 0;
    for (; low < high; low += 8)
      job.digit[job.digits++] = Digit{low, (1u << smaller(8, high - low)) - 1, flip};
  }
  static KM_COLD void run(const Call* call) {
    const i64 rows = call->shape[0], n = call->shape[1];
    constexpr int payload_at = Places || !pays ? 0 : 1, keys_at = 1 + payload_at, result_at = keys_at + Keys;
    Pieces pieces{(char*)call->workspace};
    Job job;
    job.call = call;
    digits_of(job, call->flags);
    job.count = (i64(*)[most_digits][256])pieces.template take<i64>(most_ranges * most_digits * 256);
    U* spare = pieces.template take<U>(rows * n);
    U* other = Keys ? (U*)call->operands[keys_at].data : pieces.template take<U>(rows * n);
    P* held = pays ? pieces.template take<P>(rows * n) : nullptr;
    Result* result = pays ? (Result*)call->operands[result_at].data : nullptr;
    auto row_of = [&](i64 r) {
      const i64 at = r * n;
      // The result, of at least that size, holds payloads between passes too.
      P* last = pays ? (P*)(result + at) : nullptr;
      const P* payload = payload_at ? (const P*)call->operands[payload_at].data + at : nullptr;
      return Row{(const U*)call->operands[0].data + at, payload, {spare + at, other + at},
                 {pays ? held + at : nullptr, last}, pays ? result + at : nullptr, n};
    };
    const i64 bytes = n * (i64)(sizeof(U) + (pays ? sizeof(Result) : 0));
    job.cached = bytes <= cached_bytes;
    job.stream = rows * bytes > call->runtime->nontemporal_bytes;
    job.ranges = call->threads > 1 && n >= shared_from ? smaller((i64)call->threads * 2, most_ranges) : 1;
    if (bytes > cached_bytes || (job.ranges > 1 && rows == 1)) {
      for (i64 r = 0; r < rows; r++) together(job, row_of(r));
      return;
    }
    auto body = [&](i64 low, i64 high) {
      for (i64 r = low; r < high; r++) alone(job, row_of(r));
    };
    for_tasks(call, rows, body);
  }
};

}  // namespace km
