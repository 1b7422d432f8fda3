// select_part.cuh - what one warp does with its part of a tile of a selection: which elements go where, moving them together
// inside shared memory, and from there to the results.  The ways through the tiles are in select.cuh; what is counted comes
// from lookback.cuh.  The decision is described in host/select.hpp, the host's twin.
#pragma once
#include "operands.cuh"
#include "warp.cuh"

namespace km {

constexpr int fed = 100;  // a pattern of columns alone
template <class T, int P, bool Carried, int Operand, class Source = void, class Sinks = void>
struct column : arg<T, P> {
  typedef typename stored<T>::type raw;  // moved as it is
  typedef Source source;
  typedef Sinks sinks;
  static constexpr bool carried = Carried;
  static constexpr int operand = Operand;
};
template <class T> constexpr bool is_void = false;
template <> constexpr bool is_void<void> = true;
template <int K, class A, class... Rest> struct nth { typedef typename nth<K - 1, Rest...>::type type; };
template <class A, class... Rest> struct nth<0, A, Rest...> { typedef A type; };

// What a launch passes, by value.  The stride of a result is the room of its part, in elements.
template <int Operands, int Bytes>
struct SelectCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 tiles;
};

// How many elements there are of each kind, and where the last run began (0 where none did), in integers I that hold the number
// of elements.  They combine in any order.
template <class I, int Kinds> struct tally { I held[Kinds]; };
template <class I> struct run_tally { I held[1], last; };
struct add_tallies {
  template <class I, int Kinds>
  KM_INL tally<I, Kinds> operator()(const tally<I, Kinds>& a, const tally<I, Kinds>& b) const {
    tally<I, Kinds> sum;
    KM_UNROLL_ALL for (int k = 0; k < Kinds; k++) sum.held[k] = a.held[k] + b.held[k];
    return sum;
  }
  template <class I>
  KM_INL run_tally<I> operator()(const run_tally<I>& a, const run_tally<I>& b) const {
    return run_tally<I>{{I(a.held[0] + b.held[0])}, larger(a.last, b.last)};
  }
};

KM_INL u32 warp_sum(u32 value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(full_warp, value);
#else
  KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) value += shuffle_xor(value, d);
  return value;
#endif
}

// ---- from shared memory to results --------------------------------------------------------------------------------------------

// The 4 bytes that begin in the middle of a word.
KM_INL u32 across(u32 low, u32 high, u32 shift) { return (u32)(((u64)high << 32 | low) >> shift); }

// Copies bytes from anywhere in shared memory; a whole warp.  Both addresses and the number are multiples of `Unit`.
template <int Unit>
KM_INL void leave(char* to, const char* from, int bytes) {
  const int lane = (int)lane_id();
  typedef chunk<Unit> unit;
  const int head = smaller((int)(-(uptr)to & 15), bytes), body = (bytes - head) & ~15;
  // Less than a packet stands in front of the packets, and behind them: no more than lanes.
  if (lane * Unit < head) *(unit*)(to + lane * Unit) = *(const unit*)(from + lane * Unit);
  to += head, from += head;
  if constexpr (Unit >= 4) {
    typedef batch<unit, 16 / Unit> wide;
    _Pragma("unroll 4") for (int b = lane * 16; b < body; b += warp_size * 16) {
      wide w;
      KM_UNROLL_ALL for (int k = 0; k < 16 / Unit; k++) w.item[k] = ((const unit*)(from + b))[k];
      store_packet_once(to + b, __builtin_bit_cast(packet, w));
    }
  } else {
    const u32 shift = 8 * (u32)((uptr)from & 3);
    const u32* words = (const u32*)((uptr)from & ~(uptr)3);
    _Pragma("unroll 2") for (int b = lane * 16; b < body; b += warp_size * 16) {
      packet p;
      u32 low = words[b / 4];
      KM_UNROLL_ALL for (int k = 0; k < 4; k++) {
        const u32 high = shift || k < 3 ? words[b / 4 + k + 1] : 0;
        p.word[k] = across(low, high, shift);
        low = high;
      }
      store_packet_once(to + b, p);
    }
  }
  const int last = body + lane * Unit;
  if (last < bytes - head) *(unit*)(to + last) = *(const unit*)(from + last);
}

// ---- a part -------------------------------------------------------------------------------------------------------------------

// `Run` neighbours of a lane in each of `Rows` rows make a warp's part, `Workers` of them a tile.  Stages hold the columns, each
// with the last elements of the tile before in front where neighbours decide; the marks; and where runs begin.
template <class Decide, int Parts, class I, class Count, class Length, class LengthSinks, int First, int Deciding, int Inputs,
          int Run, int Rows, int Workers, class... C>
struct selection {
  static constexpr int columns = (int)sizeof...(C), carried = (0 + ... + (int)C::carried);
  static constexpr bool heads = Decide::heads, lengths = !is_void<Length>;
  static constexpr int V = Run, R = Rows, size = V * R, elements = warp_size * size, workers = Workers, tile = elements * workers;
  static constexpr int marks = Parts == 3 ? 2 : 1;  // words of bits a lane has
  static constexpr int counts = marks, lengths_at = Inputs + Parts * carried, counts_at = lengths_at + lengths;
  static_assert(size <= 32 && V <= 4, "a bit an element, and the counts of four rows in a word");
  template <int K> using at = typename nth<K, C...>::type;

  template <bool Runs, class = void> struct tally_for { typedef tally<I, marks> type; };
  template <class X> struct tally_for<true, X> { typedef run_tally<I> type; };
  typedef typename tally_for<lengths>::type value;

  // ---- a stage ------------------------------------------------------------------------------------------------------------

  // Bytes in front of a column for the element before; a multiple of 16.
  template <int K> static constexpr int lead = heads && K >= First && K < First + Deciding ? (at<K>::size + 15) / 16 * 16 : 0;
  template <int K> static constexpr int room = lead<K> + tile * at<K>::size;
  template <int K> static KM_INL constexpr int room_before() {
    if constexpr (K == 0) return 0;
    else return room_before<K - 1>() + (room<K - 1> + 15) / 16 * 16;
  }
  template <int K> static constexpr int column_at = room_before<K>() + lead<K>;
  static constexpr int marks_at = room_before<columns>();
  static constexpr int begins_at = marks_at + marks * workers * warp_size * 4;
  static constexpr int stage_bytes = (begins_at + (lengths ? tile * 4 : 0) + 127) / 128 * 128;

  // The place of item i in the part, and of the part in the array.
  static KM_INL int place(int i) { return (i / V * warp_size + (int)lane_id()) * V + i % V; }
  static KM_INL i64 first(i64 number, int worker) { return number * tile + worker * elements; }
  static KM_INL u32* mark(const char* stage, int m, int worker) {
    return (u32*)(stage + marks_at) + (m * workers + worker) * warp_size + lane_id();
  }

  // ---- deciding -------------------------------------------------------------------------------------------------------------

  template <int K, class T> struct seen { T item[V], left; };
  template <class Is> struct row;
  template <int... K>
  struct row<indices<K...>> : seen<K, typename at<First + K>::type>... {
    template <int J> using cell = seen<J, typename at<First + J>::type>;
    template <int J> KM_INL void read(const char* stage, int worker, int r, bool begins) {
      typedef at<First + J> A;
      typedef typename A::type T;
      cell<J>& c = *this;
      const char* mine = stage + column_at<First + J> + (worker * elements + (r * warp_size + (int)lane_id()) * V) * A::size;
      load_packets<T, V>(mine, c.item);
      if constexpr (heads) {
        c.left = shuffle_up(c.item[V - 1], 1);
        if (lane_id() == 0) c.left = begins ? c.item[0] : element<T>::load(mine - A::size);
      }
    }
    KM_INL row(const char* stage, int worker, int r, bool begins) { (read<K>(stage, worker, r, begins), ...); }
    template <int J> KM_INL auto before(int v) const {
      const cell<J>& c = *this;
      return v ? c.item[v - 1] : c.left;
    }
    template <int J> KM_INL auto here(int v) const {
      const cell<J>& c = *this;
      return c.item[v];
    }
    KM_INL u8 part(const Decide& by, int v) const {
      if constexpr (heads) return by(before<K>(v)..., here<K>(v)...);
      else return by(here<K>(v)...);
    }
  };

  // The part of one element, whose neighbours are looked up by themselves.
  template <int K> static KM_INL auto element_at(const char* stage, int worker, int i) {
    typedef at<First + K> A;
    return element<typename A::type>::load(stage + column_at<First + K> + (worker * elements + i) * A::size);
  }
  template <int... K>
  static KM_INL u8 part_of(const Decide& by, const char* stage, int worker, int i, indices<K...>) {
    if constexpr (heads) return by(element_at<K>(stage, worker, i - 1)..., element_at<K>(stage, worker, i)...);
    else return by(element_at<K>(stage, worker, i)...);
  }

  // Marks the elements of a part, and counts them: the result is that of lane 0.
  static KM_INL value count(const Decide& by, char* stage, i64 number, int worker, i64 length) {
    u32 bits[marks] = {};
    const i64 low = first(number, worker);
    if (low + elements <= length) {
      KM_UNROLL_ALL for (int r = 0; r < R; r++) {
        const row<indices_of<Deciding>> seen(stage, worker, r, r == 0 && low == 0);
        KM_UNROLL_ALL for (int v = 0; v < V; v++) {
          const u8 part = seen.part(by, v);
          KM_UNROLL_ALL for (int m = 0; m < marks; m++) {
            bits[m] |= (u32)(part == m) << (r * V + v);
            settle(bits[m]);
          }
        }
      }
      if (heads && low == 0 && lane_id() == 0) bits[0] |= 1;
    } else {
      _Pragma("unroll 1") for (int i = 0; i < size; i++) {
        const int here = place(i);
        if (low + here >= length) break;
        const bool begins = heads && low + here == 0;
        const u8 part = begins ? (u8)0 : part_of(by, stage, worker, here, indices_of<Deciding>());
        KM_UNROLL_ALL for (int m = 0; m < marks; m++) bits[m] |= (u32)(part == m) << i;
      }
    }
    u32 sum = 0;
    KM_UNROLL_ALL for (int m = 0; m < marks; m++) {
      *mark(stage, m, worker) = bits[m];
      sum |= (u32)__popc(bits[m]) << (16 * m);
    }
    sum = warp_sum(sum);
    value found;
    KM_UNROLL_ALL for (int m = 0; m < marks; m++) found.held[m] = (I)(sum >> (16 * m) & 0xffff);
    if constexpr (lengths) {
      int last = bits[0] ? place(31 - __clz((int)bits[0])) : 0;
      KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) last = larger(last, shuffle_xor(last, d));
      found.last = sum ? (I)(low + last) : I(0);
    }
    return found;
  }

  // ---- moving together ----------------------------------------------------------------------------------------------------------

  // Where the elements of a lane go in the part: those of a kind follow each other, kind by kind.
  struct ranks {
    u32 bits[marks], base[marks][R];
    int held[marks], valid;

    KM_INL ranks(const char* stage, int worker, i64 left) {
      valid = (int)smaller<i64>(left, elements);
      KM_UNROLL_ALL for (int m = 0; m < marks; m++) {
        bits[m] = *mark(stage, m, worker);
        u32 sum = 0;
        KM_UNROLL_ALL for (int g = 0; g < R; g += 4) {  // counts of four rows in the bytes of a word: one scan serves them
          u32 mine = 0;
          KM_UNROLL_ALL for (int r = g; r < R && r < g + 4; r++) mine |= (u32)__popc(row_bits(m, r)) << (8 * (r - g));
          u32 through = mine;
          KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) {
            const u32 other = shuffle_up(through, d);
            if ((int)lane_id() >= d) through += other;
          }
          const u32 all = shuffle(through, warp_size - 1), before = through - mine;
          KM_UNROLL_ALL for (int r = g; r < R && r < g + 4; r++) {
            base[m][r] = sum + (before >> (8 * (r - g)) & 255);
            sum += all >> (8 * (r - g)) & 255;
          }
        }
        held[m] = (int)sum;
      }
    }
    KM_INL u32 row_bits(int m, int r) const { return bits[m] >> (r * V) & ((1u << V) - 1); }
    KM_INL bool has(int m, int i) const { return bits[m] >> i & 1; }
    // Calls f(item, rank) for each item that is written.
    template <class F>
    KM_INL void each(const F& f) const {
      KM_UNROLL_ALL for (int r = 0; r < R; r++) {
        int zero = (int)base[0][r], one = held[0] + (int)base[marks - 1][r];
        KM_UNROLL_ALL for (int v = 0; v < V; v++) {
          const int i = r * V + v, here = selection::place(i);
          if (has(0, i)) {
            f(i, zero++);
          } else if constexpr (Parts == 2) {
            if (here < valid) f(i, held[0] + here - zero);
          } else if constexpr (Parts == 3) {
            if (has(marks - 1, i)) f(i, one++);
            else if (here < valid) f(i, 2 * held[0] + held[marks - 1] + here - zero - one);
          }
        }
      }
    }
  };
  // How many elements of each part a worker holds.
  struct held_parts {
    int held[Parts];
  };

  template <class T>
  struct put_items {
    char* to;
    const T* item;
    KM_INL void operator()(int i, int rank) const { element<T>::store(to + rank * (int)sizeof(T), item[i]); }
  };
  struct put_places {
    u32* to;
    KM_INL void operator()(int i, int rank) const { to[rank] = (u32)place(i); }
  };
  template <int K>
  static KM_INL void pack(const ranks& to, char* stage, int worker) {
    if constexpr (at<K>::carried) {
      typedef typename at<K>::raw T;
      constexpr int bytes = at<K>::size;
      char* mine = stage + column_at<K> + worker * elements * bytes;
      T item[size];
      if (to.valid == elements) {
        KM_UNROLL_ALL for (int r = 0; r < R; r++)
          load_packets<T, V>(mine + (r * warp_size + (int)lane_id()) * V * bytes, item + r * V);
      } else {
        KM_UNROLL_ALL for (int i = 0; i < size; i++)
          if (place(i) < to.valid) item[i] = element<T>::load(mine + place(i) * bytes);
      }
      warp_barrier();
      to.each(put_items<T>{mine, item});
    }
  }
  // Moves what is kept of a part together, in its place in the stage.  A whole warp, when the part is marked and nobody reads it.
  template <int... K>
  static KM_INL held_parts gather(char* stage, i64 number, int worker, i64 length, indices<K...>) {
    held_parts found;
    const i64 low = first(number, worker);
    KM_UNROLL_ALL for (int p = 0; p < Parts; p++) found.held[p] = 0;
    if (low >= length) return found;
    const ranks to(stage, worker, length - low);
    (pack<K>(to, stage, worker), ...);
    if constexpr (lengths) to.each(put_places{(u32*)(stage + begins_at) + worker * elements});
    warp_barrier();
    int rest = to.valid;
    KM_UNROLL_ALL for (int m = 0; m < marks; m++) {
      found.held[m] = to.held[m];
      rest -= to.held[m];
    }
    if constexpr (Parts > marks) found.held[Parts - 1] = rest;
    return found;
  }

  // ---- leaving --------------------------------------------------------------------------------------------------------------------

  template <class Call, int K>
  static KM_INL void move(const Call& c, const held_parts& found, const char* stage, int worker, const i64 (&before)[Parts]) {
    if constexpr (at<K>::carried) {
      constexpr int bytes = at<K>::size;
      [[maybe_unused]] constexpr int unit = smallest_unit(bytes, (int)alignof(typename at<K>::raw));
      constexpr bool carries[] = {C::carried...};
      const char* from = stage + column_at<K> + worker * elements * bytes;
      int number = Inputs;
      KM_UNROLL_ALL for (int j = 0; j < K; j++) number += carries[j];
      if constexpr (!is_void<typename at<K>::sinks>) {
        hand_all<K>(c, found, from, number, before, indices_of<Parts>());
      } else {
        KM_UNROLL_ALL for (int p = 0; p < Parts; p++) {
          const int output = number + p * carried;
          const i64 fits = smaller<i64>(found.held[p], c.strides[output][0] - before[p]);
          if (fits > 0) leave<unit>(c.data[output] + before[p] * bytes, from, (int)fits * bytes);
          from += found.held[p] * bytes;
        }
      }
    }
  }
  // Results that go to functors, one by one.
  template <int K, class Call, int... P>
  static KM_INL void hand_all(const Call& c, const held_parts& found, const char* from, int number, const i64 (&before)[Parts],
                              indices<P...>) {
    (hand<K, P>(c, found, from, number, before), ...);
  }
  template <int K, int P, class Call>
  static KM_INL void hand(const Call& c, const held_parts& found, const char* from, int number, const i64 (&before)[Parts]) {
    typedef at<K> A;
    KM_UNROLL_ALL for (int p = 0; p < P; p++) from += found.held[p] * A::size;
    const i64 fits = smaller<i64>(found.held[P], c.strides[number + P * carried][0] - before[P]);
    const auto to = A::sinks::template make<P>(c);
    for (i64 j = (i64)lane_id(); j < fits; j += warp_size)
      to(before[P] + j, element<typename A::type>::load(from + j * A::size));
  }
  static KM_INL constexpr int smallest_unit(int bytes, int alignment) {
    int unit = bytes & -bytes;
    if (alignment < unit) unit = alignment;
    return unit > 16 ? 16 : unit;
  }

  // A run ends where the next one begins: the first beginning of a part ends a run of an earlier one.
  template <class Call>
  static KM_INL void move_lengths(const Call& c, int held, const char* stage, i64 low, int worker, i64 before, i64 last) {
    if constexpr (lengths) {
      const u32* begins = (const u32*)(stage + begins_at) + worker * elements;
      const auto put = [&](i64 run, i64 value) {
        if constexpr (is_void<LengthSinks>) ((Length*)c.data[lengths_at])[run] = (Length)value;
        else LengthSinks::template make<0>(c)(run, (Length)value);
      };
      const i64 room = c.strides[lengths_at][0] - before + 1;
      for (int j = (int)lane_id(); j < held; j += warp_size) {
        const i64 begin = low + begins[j], previous = j ? low + begins[j - 1] : last;
        if (before + j > 0 && j < room) put(before - 1 + j, begin - previous);
      }
      if (low + elements >= c.shape[0] && lane_id() == 0 && held < room)
        put(before - 1 + held, c.shape[0] - (held ? low + begins[held - 1] : last));
    }
  }

  // Writes what was gathered of a part, of which `tallied` elements stand before it.  A whole warp.
  template <class Call, int... K>
  static KM_INL void write(const Call& c, const held_parts& found, const char* stage, i64 number, int worker,
                           const value& tallied, indices<K...>) {
    const i64 low = first(number, worker), length = c.shape[0];
    if (low >= length) return;
    i64 before[Parts], rest = low;
    KM_UNROLL_ALL for (int m = 0; m < marks; m++) {
      before[m] = (i64)tallied.held[m];
      rest -= before[m];
    }
    if constexpr (Parts > marks) before[Parts - 1] = rest;
    (move<Call, K>(c, found, stage, worker, before), ...);
    if constexpr (lengths) move_lengths(c, found.held[0], stage, low, worker, before[0], (i64)tallied.last);
    if (low + elements >= length && lane_id() == 0)
      KM_UNROLL_ALL for (int m = 0; m < counts; m++) set_count(c, m, before[m] + found.held[m]);
  }
  template <class Call> static KM_INL void set_count(const Call& c, int m, i64 value) { ((Count*)c.data[counts_at])[m] = (Count)value; }
};

}  // namespace km
