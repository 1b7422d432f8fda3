// select.hpp - elements that a decision keeps, in their order: select, partition into two or three,
// the first of equal neighbours, and the lengths of runs.  One pass over memory: a chunk is packed
// in the cache, its place comes from the chunk before it.  How a block is packed: select_pack.hpp.
//
//   km::selection<Decide, Parts, Chunk, Count, Length, First, Deciding, Inputs,
//                 km::column<T, pattern, carried, operand, Source, Sinks>...>::run(call, decide);
//
// `Deciding` columns from number `First` on decide. A column is operand number `operand`, or where
// its pattern is `fed` what the functor gives that `Source` makes of the call (algorithms/feeds.py);
// its results go to the functors that `Sinks` makes for each part, where that is not void, and the lengths
// to those of `LengthSinks`.
// Operands: `Inputs` that are read; for each part the results of each carried column; the lengths of runs, unless `Length` is void; the counts.  The stride of a result is
// the room of its part, in elements.  `Decide` is called with the values of an element and
// returns the number of its part; what is not written has a higher one.  Where `Decide::heads` is
// set it is given the values of the element before too, in front, and part 0 means that a run of
// equals begins, as it always does with the first element.
#pragma once
#include "layout.hpp"
#include "select_pack.hpp"
#include "stream.hpp"
#include "tile.hpp"

extern "C" int sched_yield(void);

namespace km {

constexpr int fed = 100;  // a pattern of columns alone
template <class T, int P, bool Carried, int Operand, class Source = void, class Sinks = void>
struct column : arg<T, P> {
  static constexpr bool carried = Carried;
  static constexpr int operand = Operand;
  typedef Source source;
  typedef Sinks sinks;
};

template <int K, class A, class... Rest> struct nth {
  typedef typename nth<K - 1, Rest...>::type type;
};
template <class A, class... Rest> struct nth<0, A, Rest...> {
  typedef A type;
};
template <class T> struct given {
  typedef T type;
};
template <> struct given<void> {
  typedef char type;
};

// Numbers up to 65535, or to more.
template <bool Few> struct number_below {
  typedef u32 type;
};
template <> struct number_below<true> {
  typedef u16 type;
};

// Brings finished bytes to their place, past the caches where that is wanted.
KM_HOT inline void move_out(char* to, const char* from, i64 bytes, bool stream) {
  if (!stream || bytes < 1024) {
    __builtin_memcpy(to, from, (usize)bytes);
    return;
  }
  const i64 head = (i64)(-(uptr)to & 63), whole = (bytes - head) & ~(line_bytes - 1);
  copy_part(to, from, head);
  stream_lines(to + head, from + head, whole);
  copy_part(to + head + whole, from + head + whole, bytes - head - whole);
}

// What a chunk is told by those before it: how much each part holds, and where the last run began.
struct alignas(64) Link {
  i64 held[3], last;
  i32 ready;
};

template <class Decide, int Parts, i64 Chunk, class Count, class Length, class LengthSinks, int First,
          int Deciding, int Inputs, class... C>
struct selection {
  static constexpr int columns = (int)sizeof...(C), carried = (0 + ... + (int)C::carried);
  static constexpr bool runs = !__is_same(Length, void), heads = Decide::heads;
  typedef typename given<Length>::type length;
  static constexpr int counts = Parts == 3 ? 2 : 1;
  static constexpr i64 ahead = 4096;  // bytes
  static constexpr i64 width = (0 + ... + (C::carried ? C::size : 0));
  static constexpr i64 scattered = max_of((C::pattern == contiguous ? 0 : C::size)...);
  template <int K> using at = typename nth<K, C...>::type;

  // Where a run begins in its chunk: half as wide where the processor packs such numbers.
  typedef typename number_below<(packer<2>::lanes > 0 && Chunk <= 65536)>::type place;

  // The elements of a chunk, packed: for each part one column behind the other; where runs begin.
  struct Packed {
    alignas(64) char bytes[Parts][Chunk * width + carried * pack_slack + 64];
    alignas(64) place begins[runs ? Chunk + pack_slack / (i64)sizeof(place) : 1];
    length lengths[runs ? Chunk + 1 : 1];
    i64 held[3];
  };
  typedef char Brought[columns][(pack_block + 1) * larger(scattered, i64(1))];
  // Where column K starts in the packed elements of a part.
  static constexpr i64 packed_at(int k) {
    constexpr i64 sizes[] = {(C::carried ? C::size : 0)...};
    i64 place = 0;
    for (int j = 0; j < k; j++) place += sizes[j] ? Chunk * sizes[j] + pack_slack : 0;
    return place;
  }

  // ---- one block ---------------------------------------------------------------------------------

  // The address of element `low` in memory without gaps, and of `before` elements in front of it.
  template <class A>
  static KM_INL const char* near_by(const Call* call, char* brought, i64 low, i64 n, i64 before) {
    const Operand& x = call->operands[A::operand];
    if constexpr (A::pattern == contiguous) {
      // The processor's own prefetching falls behind where results are written between two blocks.
      fetch_row(x.data + low * A::size + ahead, n * A::size);
      return x.data + low * A::size;
    } else if constexpr (A::pattern == fed) {
      const auto from = A::source::make(call);
      for (i64 i = -before; i < n; i++)
        element<typename A::type>::store(brought + (before + i) * A::size, from(low + i));
      return brought + before * A::size;
    } else {
      const i64 stride = A::pattern == broadcast ? 0 : x.strides[0];
      collect<typename A::type>(brought, x.data + (low - before) * stride, stride, n + before);
      return brought + before * A::size;
    }
  }
  template <class A> using near_reader = reader<arg<typename A::type, contiguous>>;
  template <class A> static KM_INL near_reader<A> before(const char* from) {
    return near_reader<A>(from - A::size, 0);
  }

  template <int... K>
  static KM_HOT void decide(const Decide& by, Marks* marks, i64 from, i64 n, const char* const* x,
                            indices<K...>) {
    if constexpr (heads)
      sweep(by, marks, from, n, before<at<First + K>>(x[First + K])...,
            near_reader<at<First + K>>(x[First + K], 0)...);
    else
      sweep(by, marks, from, n, near_reader<at<First + K>>(x[First + K], 0)...);
  }
  template <class... R>
  static KM_INL void sweep(const Decide by, Marks* marks, i64 from, i64 n, const R... x) {
    u8* KM_R first = marks[0].byte;
    if constexpr (Parts == 1) {
      for (i64 i = from; i < n; i++) first[i] = by(x[i]...) == 0;
    } else {
      u8* KM_R second = marks[1].byte;
      u8* KM_R third = marks[Parts - 1].byte;
      for (i64 i = from; i < n; i++) {
        const u8 part = by(x[i]...);
        first[i] = part == 0;
        second[i] = part == 1;
        if constexpr (Parts == 3) third[i] = part == 2;
      }
    }
  }

  template <int K>
  static KM_INL void pack_column(Packed& packed, const Marks* marks, i64 n, const char* from) {
    if constexpr (at<K>::carried) {
      constexpr i64 size = at<K>::size, place = packed_at(K);
      for (int p = 0; p < Parts; p++)
        pack<size>(packed.bytes[p] + place + packed.held[p] * size, from, marks[p], n);
    }
  }
  template <int... K>
  static KM_INL void block(const Call* call, const Decide& by, Packed& packed, Brought& brought, i64 chunk,
                           i64 low, i64 n, indices<K...>) {
    Marks marks[Parts];
    const i64 before = heads && low > 0 ? 1 : 0;
    const char* x[] = {near_by<at<K>>(call, brought[K], low, n, before)...};
    if (heads && !before) marks[0].byte[0] = 1;
    decide(by, marks, heads && !before ? 1 : 0, n, x, indices_of<Deciding>());
    i64 found[Parts];
    for (int p = 0; p < Parts; p++) found[p] = count_marks(marks[p], n);
    (pack_column<K>(packed, marks, n, x[K]), ...);
    if constexpr (runs) {
      alignas(64) place places[pack_block];
      for (i64 i = 0; i < n; i++) places[i] = (place)(low - chunk + i);
      pack<sizeof(place)>((char*)(packed.begins + packed.held[0]), (const char*)places, marks[0], n);
    }
    for (int p = 0; p < Parts; p++) packed.held[p] += found[p];
  }

  // ---- one chunk ---------------------------------------------------------------------------------

  template <int K> static KM_INL void leave(const Call* call, const Packed& packed, const Link& link, bool stream) {
    if constexpr (at<K>::carried) {
      constexpr i64 size = at<K>::size, place = packed_at(K);
      constexpr bool flags[] = {C::carried...};
      int number = Inputs;
      for (int j = 0; j < K; j++) number += flags[j];
      if constexpr (!__is_same(typename at<K>::sinks, void))
        return hand_all<K>(call, packed, link, number, indices_of<Parts>());
      for (int p = 0; p < Parts; p++, number += carried) {
        const Operand& to = call->operands[number];
        const i64 fits = smaller(packed.held[p], to.strides[0] - link.held[p]);
        if (fits > 0) move_out(to.data + link.held[p] * size, packed.bytes[p] + place, fits * size, stream);
      }
    }
  }
  // Results that go to functors, one by one.
  template <int K, int... P>
  static KM_INL void hand_all(const Call* call, const Packed& packed, const Link& link, int number, indices<P...>) {
    (hand<typename at<K>::sinks, typename at<K>::type, P>(call, packed.bytes[P] + packed_at(K), packed.held[P],
                                                          link.held[P], number + P * carried), ...);
  }
  // `held` values behind the `before` that are there; operand number `room` knows how many fit.
  template <class Sinks, class T, int P>
  static KM_INL void hand(const Call* call, const char* from, i64 held, i64 before, int room) {
    const i64 fits = smaller(held, call->operands[room].strides[0] - before);
    const auto to = Sinks::template make<P>(call);
    for (i64 i = 0; i < fits; i++) to(before + i, element<T>::load(from + i * (i64)sizeof(T)));
  }
  // A run ends where the next one begins, so the first beginning of a chunk ends a run of an earlier
  // one, and the last run of all ends with the array.  They are written in their place at once where they fit.
  static KM_INL void leave_lengths(const Call* call, Packed& packed, const Link& link, i64 low, bool ends,
                                   bool stream) {
    if constexpr (runs) {
      const Operand& to = call->operands[Inputs + Parts * carried];
      constexpr bool handed = !__is_same(LengthSinks, void);
      constexpr i64 size = (i64)sizeof(length);
      const place* begins = packed.begins;
      const i64 n = packed.held[0], first = link.held[0] > 0 ? 0 : 1, count = n + ends - first;
      const i64 run = link.held[0] + first - 1, fits = smaller(count, to.strides[0] - run);
      const bool direct = !handed && !stream && fits == count;
      char* made = direct ? to.data + run * size : (char*)packed.lengths;
      if (n > 0 && !first) element<length>::store(made, (length)(low + begins[0] - link.last));
      for (i64 j = 1; j < n; j++)
        element<length>::store(made + (j - first) * size, (length)(begins[j] - begins[j - 1]));
      if (ends)
        element<length>::store(made + (n - first) * size,
                               (length)(call->shape[0] - (n > 0 ? low + begins[n - 1] : link.last)));
      if constexpr (handed)
        return hand<LengthSinks, length, 0>(call, made, count, run, Inputs + Parts * carried);
      if (!direct && fits > 0) move_out(to.data + run * size, made, fits * size, stream);
    }
  }
  template <int... K>
  static KM_HOT void chunk(const Call* call, const Decide& by, Packed& packed, Link* links, i64 number,
                           indices<K...> each) {
    Brought brought;
    const i64 n = call->shape[0], low = number * Chunk, high = smaller(n, low + Chunk);
    for (int p = 0; p < Parts; p++) packed.held[p] = 0;
    for (i64 b = low; b < high; b += pack_block)
      block(call, by, packed, brought, low, b, smaller(pack_block, high - b), each);
    Link &mine = links[number], &next = links[number + 1];
    for (int turns = 0; !__atomic_load_n(&mine.ready, __ATOMIC_ACQUIRE);)
      if (++turns > 4096) sched_yield();  // its thread may have no core
    for (int p = 0; p < Parts; p++) next.held[p] = mine.held[p] + packed.held[p];
    next.last = runs && packed.held[0] ? low + packed.begins[packed.held[0] - 1] : mine.last;
    __atomic_store_n(&next.ready, 1, __ATOMIC_RELEASE);
    const bool stream = call->flags & flag_stream;
    (leave<K>(call, packed, mine, stream), ...);
    leave_lengths(call, packed, mine, low, high == n, stream);
  }

  static KM_COLD void run(const Call* call, const Decide& by) {
    const i64 chunks = ceil_div(call->shape[0], Chunk);
    Link* links = (Link*)(((uptr)call->workspace + 63) & ~(uptr)63);
    for (i64 k = 0; k <= chunks; k++) links[k].ready = 0;
    links[0] = Link{{0, 0, 0}, 0, 1};
    i64 taken = 0;
    auto work = [&](i64, i64) {
      Packed packed;
      for (;;) {
        const i64 number = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
        if (number >= chunks) break;
        chunk(call, by, packed, links, number, indices_of<columns>());
      }
      if (call->flags & flag_stream) stream_fence();
    };
    for_tasks(call, smaller((i64)call->threads, chunks), work);
    for (int k = 0; k < counts; k++)
      element<Count>::store(call->operands[Inputs + Parts * carried + runs].data + k * (i64)sizeof(Count),
                            (Count)links[chunks].held[k]);
  }
};

}  // namespace km
