// segmented_sort.cuh - segments of any lengths sorted by their digits: the shortest by some lanes, short ones by a warp each,
// others by a block each, which goes over what it does not hold at once.  The order of elements is in radix_keys.cuh.
//
//   km::segments_listed<Order, Payload, Offset, Held>::run(call)         clears the lists by one block, then makes them
//   km::segments_of_warps<Order, Payload, Offset>::run(call)             sorts short segments
//   km::segments_of_blocks<Order, Payload, Offset, Tile>::run(call)      sorts others
//
// Operands of all: keys, payload, keys and payload to be written, offsets, the lists, keys and payload between passes; those
// that there are not have address 0.  `tiles` is how many segments there are, `pass` the length from which on they are told to
// the host, which sorts them otherwise; 0 clears.  Offsets may be any: what lies outside of the array is left out.
#pragma once
#include "radix.cuh"

namespace km {

constexpr int segment_kinds = 5;

// How many segments of each kind there are; first elements and lengths of long ones; numbers of the others.
struct segment_lists {
  char* at;
  i64 segments, longs;
  template <class Call>
  KM_INL segment_lists(const Call& c) : at(c.data[5]), segments(c.tiles), longs(c.pass ? c.elements / c.pass + 1 : 0) {}
  KM_INL u32* count(int kind) const { return (u32*)at + kind; }
  KM_INL i64* long_ones() const { return (i64*)(at + 64); }
  KM_INL u32* list(int kind) const { return (u32*)(at + 64 + 16 * longs) + kind * segments; }
};

// Segment number s: its first element, and its length.
template <class Offset>
KM_INL i64 segment_at(const Offset* offsets, i64 s, i64 elements, i64& begin) {
  const i64 end = smaller(larger((i64)offsets[s + 1], (i64)0), elements);
  begin = smaller(larger((i64)offsets[s], (i64)0), elements);
  return larger(end - begin, (i64)0);
}

template <class Call, class Payload>
KM_INL void move_element(const Call& c, i64 from, i64 to, Payload) {
  if constexpr (sizeof(Payload) > 1) {
    const Payload payload = (c.flags & payload_is_place) ? (Payload)from : ((const Payload*)c.data[1])[from];
    if (c.flags & result_is_wide) ((i64*)c.data[3])[to] = (i64)payload;
    else ((Payload*)c.data[3])[to] = payload;
  }
}

// Kinds: up to 8 elements, 32, 512, as many as a block holds, and more.
template <class Order, class Payload, class Offset, int Held>
struct segments_listed {
  typedef typename Order::U U;
  static constexpr int threads = 256;

  static KM_INL int kind_of(i64 length, i64 most) {
    if (length < 2 || length >= most) return -1;
    if (length <= 32) return length <= 8 ? 0 : 1;
    return length <= 512 ? 2 : length <= Held ? 3 : 4;
  }
  template <class Call>
  static KM_INL void copy(const Call& c, i64 from, i64 to) {
    const i64 step = (i64)gridDim.x * threads;
    for (i64 i = from + (i64)blockIdx.x * threads + threadIdx.x; i < to; i += step) {
      ((U*)c.data[2])[i] = ((const U*)c.data[0])[i];
      move_element(c, i, i, Payload());
    }
  }
  template <class Call>
  static KM_INL void run(const Call& c) {
    const segment_lists lists(c);
    if (c.pass == 0) {
      if (threadIdx.x < segment_kinds + 1) *lists.count((int)threadIdx.x) = 0;
      return;
    }
    const Offset* offsets = (const Offset*)c.data[4];
    const i64 step = (i64)gridDim.x * threads, elements = c.elements;
    for (i64 low = (i64)blockIdx.x * threads; low < c.tiles; low += step) {
      const i64 s = low + threadIdx.x;
      i64 begin = 0;
      const i64 length = s < c.tiles ? segment_at(offsets, s, elements, begin) : 0;
      const int kind = kind_of(length, c.pass);
      if (length == 1) {
        ((U*)c.data[2])[begin] = ((const U*)c.data[0])[begin];
        move_element(c, begin, begin, Payload());
      }
      for (int k = 0; k < segment_kinds; k++) {
        const u32 who = ballot(kind == k);
        if (who == 0) continue;
        u32 first = 0;
        if (lane_id() == 0) first = atomic_add<relaxed>(lists.count(k), (u32)__popc(who));
        first = shuffle(first, 0);
        if (kind == k) lists.list(k)[first + (u32)__popc(who & ((1u << lane_id()) - 1))] = (u32)s;
      }
      if (length >= c.pass) {
        const u32 at = atomic_add<relaxed>(lists.count(segment_kinds), 1u);
        if (at >= lists.longs) continue;
        lists.long_ones()[2 * at] = begin;
        lists.long_ones()[2 * at + 1] = length;
      }
    }
    copy(c, 0, smaller(larger((i64)offsets[0], (i64)0), elements));
    copy(c, smaller(larger((i64)offsets[c.tiles], (i64)0), elements), elements);
  }
};

// ---- by warps ---------------------------------------------------------------------------------------------------------------

template <class Order, class Payload, class Offset>
struct segments_of_warps {
  typedef typename Order::U U;
  static constexpr int warps = 4, threads = warps * warp_size, held = 512;
  static constexpr int room = warps * held * (2 * (int)sizeof(U) + 2);

  // Elements of one lane each: places are numbers of those in front.
  template <int Lanes, class Call>
  static KM_INL void by_lanes(const Call& c, int kind) {
    const segment_lists lists(c);
    const u32 count = *lists.count(kind), groups = warp_size / Lanes;
    const int lane = (int)lane_id(), own = lane % Lanes, base = lane - own;
    const u32 step = gridDim.x * warps * groups, warp = blockIdx.x * warps + threadIdx.x / warp_size;
    _Pragma("unroll 1") for (u32 low = warp * groups; low < count; low += step) {
      const u32 number = low + (u32)(lane / Lanes);
      i64 begin = 0;
      int length = 0;
      if (number < count) length = (int)segment_at((const Offset*)c.data[4], lists.list(kind)[number], c.elements, begin);
      U bits = 0, order = (U)~(U)0;
      if (own < length) {
        bits = ((const U*)c.data[0])[begin + own];
        order = Order::of(bits);
      }
      int place = 0;
      KM_UNROLL_ALL for (int j = 0; j < Lanes; j++) {
        const U other = shuffle(order, base + j);
        if (j < length && (other < order || (other == order && j < own))) place++;
      }
      if (own < length) {
        ((U*)c.data[2])[begin + place] = bits;
        move_element(c, begin + own, begin + place, Payload());
      }
    }
  }
  // How many of 32 in order are less than this one, or equal to it.
  template <bool Equal>
  static KM_INL int in_front(const U* sorted, U order) {
    int at = 0;
    KM_UNROLL_ALL for (int s = warp_size / 2; s > 0; s /= 2) {
      const U other = sorted[at + s - 1];
      if (Equal ? other <= order : other < order) at += s;
    }
    const U other = sorted[at];
    return at + (int)(Equal ? other <= order : other < order);
  }
  // Chunks of 32 elements are put in order first; an element goes behind all that are in front of it in each of them.
  template <class Call>
  static KM_INL void by_chunks(const Call& c, int kind, U* bits) {
    const segment_lists lists(c);
    const u32 count = *lists.count(kind), step = gridDim.x * warps;
    const int lane = (int)lane_id();
    U* sorted = bits + held;
    u16* places = (u16*)(sorted + held);
    _Pragma("unroll 1") for (u32 number = blockIdx.x * warps + threadIdx.x / warp_size; number < count; number += step) {
      i64 begin;
      const int length = (int)segment_at((const Offset*)c.data[4], lists.list(kind)[number], c.elements, begin);
      const U* from = (const U*)c.data[0] + begin;
      _Pragma("unroll 4") for (int i = lane; i < length; i += warp_size) bits[i] = from[i];
      warp_barrier();
      _Pragma("unroll 1") for (int low = 0; low < length; low += warp_size) {
        const U order = low + lane < length ? Order::of(bits[low + lane]) : (U)~(U)0;
        int at = 0;
        _Pragma("unroll 8") for (int j = 0; j < warp_size; j++) {
          const U other = shuffle(order, j);
          if (other < order || (other == order && j < lane)) at++;
        }
        sorted[low + at] = order;
        places[low + lane] = (u16)at;
      }
      warp_barrier();
      _Pragma("unroll 1") for (int i = lane; i < length; i += warp_size) {
        const U order = Order::of(bits[i]);
        const int own = i - lane;
        int at = places[i];
        _Pragma("unroll 2") for (int k = 0; k < own; k += warp_size) at += in_front<true>(sorted + k, order);
        _Pragma("unroll 2") for (int k = own + warp_size; k < length; k += warp_size) at += in_front<false>(sorted + k, order);
        ((U*)c.data[2])[begin + at] = bits[i];
        move_element(c, begin + i, begin + at, Payload());
      }
      warp_barrier();
    }
  }
  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    by_chunks(c, 2, (U*)(radix_memory + threadIdx.x / warp_size * (room / warps)));
    by_lanes<32>(c, 1);
    by_lanes<8>(c, 0);
  }
};

// ---- by blocks ----------------------------------------------------------------------------------------------------------------

template <class Order, class Payload, class Offset, class Tile>
struct segments_of_blocks {
  typedef typename Order::U U;
  typedef radix_rows<Order, Payload, Tile> Rows;
  static constexpr bool pays = sizeof(Payload) > 1;
  static constexpr int room = Rows::room;

  struct shared {
    u32 sums[radix_digits / warp_size], next[radix_digits], to[radix_digits];
  };
  struct arrays {
    const U* keys;
    const Payload* payload;
    U* to;
    Payload* payload_to;
    bool numbers, wide;
  };

  // How many elements each digit has, and where the first of them goes to.
  static KM_INL void count(const U* keys, i64 length, int shift, u32 mask, u32* counts, shared& s) {
    u32* mine = counts + threadIdx.x / warp_size * radix_digits;
    for (int i = (int)threadIdx.x; i < Tile::warps * radix_digits; i += Tile::threads) counts[i] = 0;
    block_barrier();
    _Pragma("unroll 1") for (i64 low = threadIdx.x; low < length; low += 8 * Tile::threads) {
      U key[8];
      KM_UNROLL_ALL for (int k = 0; k < 8; k++)
        if (low + k * Tile::threads < length) key[k] = keys[low + k * Tile::threads];
      KM_UNROLL_ALL for (int k = 0; k < 8; k++)
        if (low + k * Tile::threads < length) add_shared(mine + Order::digit(key[k], shift, mask), 1u);
    }
    block_barrier();
    u32 total = 0;
    if (threadIdx.x < radix_digits)
      for (int w = 0; w < Tile::warps; w++) total += counts[w * radix_digits + threadIdx.x];
    const u32 below = digits_below(total, s.sums);
    if (threadIdx.x < radix_digits) s.next[threadIdx.x] = below;
    block_barrier();
  }
  // One tile of a pass; what is behind the end of the segment stays behind in the tile.
  static KM_INL void move(const arrays& a, i64 begin, i64 low, int held, int pass, char* memory, shared& s) {
    u32* counts = (u32*)memory;
    Payload* payloads = (Payload*)(counts + Tile::warps * radix_digits);
    U* keys = (U*)(pays ? (char*)(payloads + Tile::elements) : (char*)payloads);
    const int lane = (int)lane_id(), warp = (int)threadIdx.x / warp_size, first = warp * Tile::part + lane;
    const int shift = Order::shift(pass);
    const u32 mask = Order::mask(pass);
    u32* mine = counts + warp * radix_digits;
    U key[Tile::items];
    u32 place[Tile::items], below;
    KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++)
      key[i] = first + i * warp_size < held ? a.keys[low + first + i * warp_size] : (U)0;
    KM_UNROLL_ALL for (int i = 0; i < radix_digits / warp_size; i++) mine[i * warp_size + lane] = 0;
    warp_barrier();
    KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {
      const u32 digit = first + i * warp_size < held ? Order::digit(key[i], shift, mask) : mask;
      place[i] = place_in_tile<false>(mine, nullptr, digit, lane);
    }
    block_barrier();
    const u32 total = tile_places<Tile>(counts, s.sums, below, [](u32) {});
    if (threadIdx.x < radix_digits) {
      s.to[threadIdx.x] = s.next[threadIdx.x] - below;
      s.next[threadIdx.x] += total;
    }
    KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {
      const int at = first + i * warp_size;
      const u32 digit = at < held ? Order::digit(key[i], shift, mask) : mask, in_tile = mine[digit] + place[i];
      keys[in_tile] = key[i];
      if constexpr (pays)
        payloads[in_tile] = at >= held ? (Payload)0 : a.numbers ? (Payload)(begin + low + at) : a.payload[low + at];
    }
    block_barrier();
    for (int i = (int)threadIdx.x; i < held; i += Tile::threads) {
      const u32 to = s.to[Order::digit(keys[i], shift, mask)] + (u32)i;
      a.to[to] = keys[i];
      if constexpr (pays) {
        if (a.wide) ((i64*)a.payload_to)[to] = (i64)payloads[i];
        else a.payload_to[to] = payloads[i];
      }
    }
    block_barrier();
  }
  // Passes go by turns to the memory between and to the result, and end there.
  template <class Call>
  static KM_INL void sort(const Call& c, i64 begin, i64 length, char* memory, shared& s) {
    const bool wide = (c.flags & result_is_wide) != 0;
    arrays a{(const U*)c.data[0] + begin, (const Payload*)c.data[1] + begin, nullptr, nullptr,
             (c.flags & payload_is_place) != 0, false};
    Payload* result = wide ? (Payload*)((i64*)c.data[3] + begin) : (Payload*)c.data[3] + begin;
    _Pragma("unroll 1") for (int p = 0; p < Order::passes; p++) {
      const bool ends_there = (Order::passes - 1 - p) % 2 == 0;
      a.to = (U*)c.data[ends_there ? 2 : 6] + begin;
      a.payload_to = ends_there ? result : (Payload*)c.data[7] + begin;
      a.wide = wide && ends_there;
      count(a.keys, length, Order::shift(p), Order::mask(p), (u32*)memory, s);
      _Pragma("unroll 1") for (i64 low = 0; low < length; low += Tile::elements)
        move(a, begin, low, (int)smaller<i64>(length - low, Tile::elements), p, memory, s);
      a.keys = a.to;
      a.payload = a.payload_to;
      a.numbers = false;
    }
  }
  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ shared s;
    const segment_lists lists(c);
    const u32 many = *lists.count(4), all = many + *lists.count(3);
    _Pragma("unroll 1") for (u32 number = blockIdx.x; number < all; number += gridDim.x) {
      const u32 segment = number < many ? lists.list(4)[number] : lists.list(3)[number - many];
      i64 begin;
      const i64 length = segment_at((const Offset*)c.data[4], segment, c.elements, begin);
      if (number < many) sort(c, begin, length, radix_memory, s);
      else Rows::sort(c, begin, (int)length, begin, radix_memory, s.sums);
      block_barrier();
    }
  }
};

}  // namespace km
