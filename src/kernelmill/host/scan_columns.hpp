// scan_columns.hpp - scans of sequences whose elements lie apart, as along the first axis of an array
// in C order: some neighbouring sequences at a time, each tile of them brought into adjoining
// buffers, scanned there, and brought back.  The scans are those of scan.hpp.
#pragma once
#include "scan.hpp"

namespace km {

template <class T> struct buffer_feed {
  typedef T type;
  static constexpr bool plain = true;
  const char* data;
  KM_INL T operator()(i64 i) const { return ((const T*)data)[i]; }
};
template <class T> struct buffer_sink {
  typedef T type;
  static constexpr bool contiguous = true;
  char* data;
  KM_INL char* at(i64 i) const { return data + i * (i64)sizeof(T); }
  KM_INL void operator()(i64 i, const T& value) const { ((T*)data)[i] = value; }
};

template <class S, class Feed, class Sink> struct scan_columns {
  typedef typename S::value T;
  typedef typename S::stored stored;
  typedef scan<S, buffer_feed<T>, buffer_sink<stored>> inner;
  static constexpr i64 tile = inner::tile;
  // Sequences at a time: their elements side by side fill half a line of the cache at least.
  static constexpr int beside = sizeof(T) <= 16 ? 8 : 4;

  // The sequences from `unit` on, `count` of them; N is that number where it is `beside`.
  template <int N>
  static KM_HOT void group(const ScanCall& c, const S& s, i64 unit, int count) {
    alignas(64) T taken[beside * tile];
    alignas(64) stored made[beside * tile];
    typename inner::past past[beside];
    const int many = N ? N : count;
    for (i64 low = 0; low < c.length; low += tile) {
      const i64 rows = smaller(tile, c.length - low);
      bring<N>(c, unit, many, low, rows, taken);
      for (int k = 0; k < many; k++) {
        T before;
        const bool any = inner::start(s, past[k], before);
        const buffer_feed<T> from{(const char*)(taken + k * tile)};
        const buffer_sink<stored> to{(char*)(made + k * tile)};
        past[k].push(inner::scan_tile(s, from, to, 0, rows, any, before, nullptr), s.op);
      }
      take_back<N>(c, unit, many, low, rows, made);
    }
  }
  template <int N>
  static KM_INL void bring(const ScanCall& c, i64 unit, int many, i64 low, i64 rows, T* taken) {
    const char* at[beside];
    for (int k = 0; k < many; k++) at[k] = Feed(c, unit + k).data;
    const Feed first(c, unit);
    for (i64 r = 0; r < rows; r++)
      for (int k = 0; k < many; k++) {
        Feed from = first;
        from.data = at[k];
        taken[k * tile + r] = from(low + r);
      }
  }
  template <int N>
  static KM_INL void take_back(const ScanCall& c, i64 unit, int many, i64 low, i64 rows, const stored* made) {
    char* at[beside];
    for (int k = 0; k < many; k++) at[k] = Sink(c, unit + k).data;
    const Sink first(c, unit);
    for (i64 r = 0; r < rows; r++)
      for (int k = 0; k < many; k++) {
        Sink to = first;
        to.data = at[k];
        to(low + r, made[k * tile + r]);
      }
  }

  static KM_RARE void run(const ScanCall& c, const S& s) {
    auto body = [&](i64 begin, i64 end) {
      for (i64 number = begin; number < end; number++) {
        const i64 unit = number * beside, count = smaller<i64>(beside, c.units - unit);
        if (count == beside) group<beside>(c, s, unit, beside);
        else group<0>(c, s, unit, (int)count);
      }
    };
    for_tasks(c.call, ceil_div(c.units, beside), body);
  }
};

}  // namespace km
