// scan_keys.hpp - scans by key, for the host and for devices: values with a mark where a segment of
// equal keys begins, the operator on them, and what reads and writes them.  The scans themselves are
// scan.hpp and device/scan.cuh, which see pairs as they see any value.
#pragma once
#include "base.hpp"

namespace km {

// `heads` is how many segments begin in what the value combines, or whether one does.
template <class T, class N> struct keyed {
  T value;
  N heads;
};
template <class Op, class T, class N> struct by_segment {
  typedef keyed<T, N> pair;
  Op op;
  KM_INL pair operator()(const pair& a, const pair& b) const {
    pair made;
    made.heads = (N)(a.heads + b.heads);
    if constexpr (sizeof(N) < 8) made.heads = (N)(a.heads | b.heads);
    made.value = b.heads ? b.value : op(a.value, b.value);
    return made;
  }
};

// Values of one operand with marks made of the keys of another one: feeds of scans.
template <class Keys, class Values, class Same, class Pair> struct keyed_feed {
  typedef Pair type;
  static constexpr bool contiguous = false, plain = false;
  Keys keys;
  Values values;
  Same same;
  template <class Call>
  KM_INL keyed_feed(const Call& c, i64 unit) : keys(c, unit), values(c, unit), same(c.captures) {}
  KM_INL const Pair& of(const Pair& x) const { return x; }
  KM_INL Pair operator()(i64 i) const {
    Pair made;
    made.value = values.at(i);
    made.heads = i == 0 || !same(keys.at(i - 1), keys.at(i));
    return made;
  }
};

// Takes keys or totals where they are an array: operand K.
template <class T, int K> struct keyed_buffer {
  T* data;
  template <class Call> KM_INL keyed_buffer(const Call& c, i64) : data((T*)c.at(K)) {}
  KM_INL void operator()(i64 i, const T& value) const { element<T>::store((char*)(data + i), value); }
};

// The first key and the last value of each segment go to what takes keys and totals, at the number of the
// segment; behind the last element, the number of segments to operand At, whose step is the room of both.
// The last element of a segment writes the key that begins the next one, so that keys are compared once.
template <class Keys, class Same, class Last, class Pair, class KeysTo, class TotalsTo, class Count, int At>
struct keyed_sink {
  static constexpr bool contiguous = false;
  Keys keys;
  Same same;
  Last last;
  i64 length, room;
  KeysTo key;
  TotalsTo total;
  Count* count;
  template <class Call>
  KM_INL keyed_sink(const Call& c, i64 unit)
      : keys(c, unit),
        same(c.captures),
        last(c.captures),
        length(c.length),
        room(c.step(At)),
        key(c, unit),
        total(c, unit),
        count((Count*)c.at(At)) {}
  KM_INL void operator()(i64 i, const Pair& x) const {
    const bool is_last = i + 1 == length;
    if (i == 0 && room > 0) key(0, keys.at(0));
    if (!is_last && same(keys.at(i), keys.at(i + 1))) return;
    const i64 next = (i64)x.heads;
    if (next <= room) total(next - 1, last(x.value));
    if (is_last) *count = (Count)next;
    else if (next < room) key(next, keys.at(i + 1));
  }
  // What is written where there is nothing.
  template <class Call> static KM_INL void none(const Call& c) { *(Count*)c.at(At) = 0; }
};

}  // namespace km
