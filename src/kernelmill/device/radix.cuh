// radix.cuh - stable radix sort on a device, least digit first: what a call is, the count of all digits, and rows that one
// block sorts in one launch.  A pass over many tiles is in radix_pass.cuh, the order of elements in radix_keys.cuh.
//
//   typedef km::radix_order<Key, first bit, bit behind the last, descending> Order;
//   km::radix_count<Order, Place, copies>::run(call)          once, then
//   km::radix_pass<Order, Payload, Place, Tile>::run(call)    for each digit; or
//   km::radix_rows<Order, Payload, Tile>::run(call)           for rows of one tile at most, a block each
//
// Place is u32, or u64 for more elements than that counts.  Payload is u32, u64 or km::no_payload; where none is read, it is
// the number of the element.  Nothing of one launch is left for the next call, so that a sort that was given up spoils none.
#pragma once
#include "operands.cuh"
#include "radix_keys.cuh"

namespace km {

struct no_payload {};

// What a launch passes, by value.  `work` of many tiles: see `radix_work`.
template <int Operands>
struct RadixCall {
  __align__(16) char captures[16];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 tiles, pass, flags;
};
enum radix_flag : int { payload_is_place = 1, result_is_wide = 2, keys_are_dropped = 4 };

// Threads of a block, elements of each; blocks that hand out places; rows of a warp of which one is matched by a table (0 for
// none); how long a scanner waits before it asks again.
template <int Warps, int Items, int Scanners, int Tabled, int Rest>
struct radix_tile {
  static constexpr int warps = Warps, items = Items, threads = Warps * warp_size, elements = threads * Items;
  static constexpr int scanners = Scanners, tabled = Tabled, rest = Rest, part = warp_size * Items;
  static constexpr int tables = Tabled ? 2 : 1;  // of a word for each digit, a warp
  static_assert(threads >= radix_digits && elements <= 32768, "a thread for each digit, and 15 bits for a place");
};

// Memory of a call of several tiles: where digits of each pass begin, tickets, then words for each digit of each tile: how many
// a tile has, and where its first one goes to.  Words are 0 at first; the upper two bits of those of a pass are its mark, which
// that of the pass before is not.
template <class Place>
struct radix_work {
  static constexpr int most_passes = 8, begins = most_passes * radix_digits * 8, tickets = 64;
  static constexpr int count_row = radix_digits * 4, place_row = radix_digits * (int)sizeof(Place);
  static constexpr int count_bits = 30, place_bits = 8 * (int)sizeof(Place) - 2;
  char* at;
  i64 tiles;
  KM_INL Place* begin(int pass) const { return (Place*)at + pass * radix_digits; }
  KM_INL u32* ticket(int pass) const { return (u32*)(at + begins) + pass; }
  KM_INL char* table() const { return at + begins + tickets; }
  KM_INL u32* counts(i64 tile) const { return (u32*)(table() + tile * count_row); }
  KM_INL Place* places(i64 tile) const { return (Place*)(table() + tiles * count_row + tile * place_row); }
  static KM_INL u32 mark(int pass) { return 1u + (u32)(pass & 1); }
};

// The sum of the values of lower digits, one value a thread of the first 256; all threads call it, `sums` is shared.
KM_INL u32 digits_below(u32 value, u32* sums) {
  const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id();
  u32 sum = value;
  KM_UNROLL_ALL for (int s = 1; s < warp_size; s *= 2) {
    const u32 other = shuffle_up(sum, s);
    if (lane >= s) sum += other;
  }
  if (warp < radix_digits / warp_size && lane == warp_size - 1) sums[warp] = sum;
  block_barrier();
  sum -= value;
  if (warp < radix_digits / warp_size)
    for (int w = 0; w < warp; w++) sum += sums[w];
  return sum;
}

// Places in a tile for elements of one digit of a warp: those of a row are found by who is alike, and their leader asks for all.
template <bool Tabled>
KM_INL u32 place_in_tile(u32* next, u32* table, u32 digit, int lane) {
  u32 alike;
  if constexpr (Tabled) alike = match_by_table(table, digit, lane);
  else alike = match_byte(digit);
  const u32 before = (u32)__popc(alike & ((1u << lane) - 1));
  u32 first = 0;
  if (before == 0) first = fetch_add_shared(next + digit, (u32)__popc(alike));
  return shuffle(first, __ffs((int)alike) - 1) + before;
}

// Each warp's counts of digits become where its elements begin in the tile; returns how many there are of the thread's digit,
// and puts into `below` how many there are of lower ones.
template <class Tile, class Tell>
KM_INL u32 tile_places(u32* counts, u32* sums, u32& below, Tell tell) {
  const int digit = (int)threadIdx.x;
  u32 total = 0;
  if (digit < radix_digits) {
    KM_UNROLL_ALL for (int w = 0; w < Tile::warps; w++) {
      const u32 own = counts[w * radix_digits + digit];
      counts[w * radix_digits + digit] = total;
      total += own;
    }
    tell(total);
  }
  below = digits_below(total, sums);
  if (digit < radix_digits)
    KM_UNROLL_ALL for (int w = 0; w < Tile::warps; w++) counts[w * radix_digits + digit] += below;
  block_barrier();
  return total;
}

// ---- counts of all digits ---------------------------------------------------------------------------------------------------

// Operands: keys, the memory of the call.  `tickets` are a counter, one unused, and a Place for each digit of each pass.
template <class Order, class Place, int Copies>
struct radix_count {
  typedef typename Order::U U;
  static constexpr int threads = 1024, passes = Order::passes, bins = passes * radix_digits;
  static constexpr int wide = 16 / (int)sizeof(U), at_once = 4;

  static KM_INL void add(u32* counts, int copy, U bits) {
    const U order = Order::of(bits);
    KM_UNROLL_ALL for (int p = 0; p < passes; p++) {
      const u32 digit = (u32)(order >> Order::shift(p)) & Order::mask(p);
      add_shared(counts + (p * radix_digits + (int)digit) * Copies + copy, 1u);
    }
  }
  static KM_INL void add_packet(u32* counts, int copy, const packet& from) {
    struct several { U key[wide]; };
    const several keys = bit_cast<several>(from);
    KM_UNROLL_ALL for (int v = 0; v < wide; v++) add(counts, copy, keys.key[v]);
  }

  template <class Call>
  static KM_INL void read(const Call& c, u32* counts) {
    const int copy = (int)threadIdx.x & (Copies - 1);
    const U* keys = (const U*)c.data[0];
    const i64 ahead = (i64)((16 - (uptr)keys % 16) % 16) / (i64)sizeof(U), lead = smaller(ahead, c.elements);
    const i64 packets = (c.elements - lead) / wide, step = (i64)gridDim.x * threads;
    const packet* from = (const packet*)(keys + lead);
    i64 i = (i64)blockIdx.x * threads + threadIdx.x;
    _Pragma("unroll 1") for (; i + (at_once - 1) * step < packets; i += at_once * step) {
      packet p[at_once];
      KM_UNROLL_ALL for (int q = 0; q < at_once; q++) p[q] = load_packet_once(from + i + q * step);
      KM_UNROLL_ALL for (int q = 0; q < at_once; q++) add_packet(counts, copy, p[q]);
    }
    _Pragma("unroll 1") for (; i < packets; i += step) add_packet(counts, copy, load_packet_once(from + i));
    const i64 behind = lead + packets * wide;
    if (blockIdx.x == 0) {
      if ((i64)threadIdx.x < lead) add(counts, copy, keys[threadIdx.x]);
      if (behind + (i64)threadIdx.x < c.elements) add(counts, copy, keys[behind + threadIdx.x]);
    }
  }
  // The words of all tiles, and the tickets of all passes.
  template <class Call>
  static KM_INL void clear(const Call& c) {
    const radix_work<Place> work{c.data[1], c.tiles};
    const i64 words = c.tiles * (work.count_row + work.place_row) / 16, step = (i64)gridDim.x * threads;
    for (i64 i = (i64)blockIdx.x * threads + threadIdx.x; i < words; i += step) store_packet(work.table() + 16 * i, packet{});
    if (blockIdx.x == 0 && threadIdx.x < work.most_passes) *work.ticket((int)threadIdx.x) = 0;
  }
  // By the block that is the last to add its counts: sums over lower digits; what is in `tickets` becomes 0 again.
  template <class Call>
  static KM_INL void begins(const Call& c, Place* totals) {
    __shared__ Place sums[threads / warp_size];
    const radix_work<Place> work{c.data[1], c.tiles};
    const int warp = (int)threadIdx.x / warp_size, lane = (int)lane_id(), each = radix_digits / warp_size;
    _Pragma("unroll 1") for (int low = 0; low < bins; low += threads) {
      const int bin = low + (int)threadIdx.x;
      Place own = 0;
      if (bin < bins) {
        own = atomic_load<relaxed>(totals + bin);
        totals[bin] = 0;
      }
      Place sum = own;
      KM_UNROLL_ALL for (int s = 1; s < warp_size; s *= 2) {
        const Place other = shuffle_up(sum, s);
        if (lane >= s) sum += other;
      }
      if (lane == warp_size - 1) sums[warp] = sum;
      block_barrier();
      sum -= own;
      for (int w = warp / each * each; w < warp; w++) sum += sums[w];
      if (bin < bins) work.begin(0)[bin] = sum;
      block_barrier();
    }
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ bool is_last;
    u32* counts = (u32*)radix_memory;
    for (int i = (int)threadIdx.x; i < bins * Copies; i += threads) counts[i] = 0;
    block_barrier();
    read(c, counts);
    clear(c);
    block_barrier();
    Place* totals = (Place*)(c.tickets + 2);
    for (int b = (int)threadIdx.x; b < bins; b += threads) {
      u32 sum = 0;
      KM_UNROLL_ALL for (int k = 0; k < Copies; k++) sum += counts[b * Copies + ((k + (int)threadIdx.x) & (Copies - 1))];
      if (sum) atomic_add<relaxed>(totals + b, (Place)sum);
    }
    fence();
    block_barrier();
    if (threadIdx.x == 0) {
      is_last = atomic_add<acquire_release>(c.tickets, 1u) == gridDim.x - 1;
      if (is_last) *c.tickets = 0;
    }
    block_barrier();
    if (!is_last) return;
    fence();
    begins(c, totals);
  }
};

// ---- rows of one tile at most -------------------------------------------------------------------------------------------------

// Operands: keys, payload, keys and payload to be written; those that there are not have address 0.
template <class Order, class Payload, class Tile>
struct radix_rows {
  typedef typename Order::U U;
  static constexpr bool pays = sizeof(Payload) > 1;
  static constexpr int room = Tile::elements * (int)(sizeof(U) + (pays ? sizeof(Payload) : 0)) + Tile::warps * radix_digits * 4;

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ u32 sums[radix_digits / warp_size];
    sort(c, (i64)blockIdx.x * c.shape[1], (int)c.shape[1], 0, radix_memory, sums);
  }
  // The elements from number `row` on, of which the first has number `origin`, where numbers are the payload.
  template <class Call>
  static KM_INL void sort(const Call& c, i64 row, int length, i64 origin, char* memory, u32* sums) {
    u32* counts = (u32*)memory;
    Payload* held = (Payload*)(counts + Tile::warps * radix_digits);
    U* keys = (U*)(pays ? (char*)(held + Tile::elements) : (char*)held);
    const int lane = (int)lane_id(), warp = (int)threadIdx.x / warp_size, first = warp * Tile::part + lane;
    u32* mine = counts + warp * radix_digits;
    U key[Tile::items];
    Payload payload[Tile::items];
    KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {
      const int at = first + i * warp_size;
      key[i] = at < length ? ((const U*)c.data[0])[row + at] : (U)0;
      if constexpr (pays)
        payload[i] = (c.flags & payload_is_place) ? (Payload)(origin + at) : at < length ? ((const Payload*)c.data[1])[row + at] : (Payload)0;
    }
    _Pragma("unroll 1") for (int p = 0; p < Order::passes; p++) {
      const int shift = Order::shift(p);
      const u32 mask = Order::mask(p);
      KM_UNROLL_ALL for (int i = 0; i < radix_digits / warp_size; i++) mine[i * warp_size + lane] = 0;
      warp_barrier();
      u32 place[Tile::items], below;
      KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {  // what is behind the end stays there
        const u32 digit = first + i * warp_size < length ? Order::digit(key[i], shift, mask) : mask;
        place[i] = place_in_tile<false>(mine, nullptr, digit, lane);
      }
      block_barrier();
      tile_places<Tile>(counts, sums, below, [](u32) {});
      KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {
        const u32 digit = first + i * warp_size < length ? Order::digit(key[i], shift, mask) : mask;
        const u32 at = mine[digit] + place[i];
        keys[at] = key[i];
        if constexpr (pays) held[at] = payload[i];
      }
      block_barrier();
      if (p + 1 < Order::passes)
        KM_UNROLL_ALL for (int i = 0; i < Tile::items; i++) {
          key[i] = keys[first + i * warp_size];
          if constexpr (pays) payload[i] = held[first + i * warp_size];
        }
    }
    write(c, row, length, keys, held);
  }
  template <class Call>
  static KM_INL void write(const Call& c, i64 row, int length, const U* keys, const Payload* held) {
    for (int i = (int)threadIdx.x; i < length; i += Tile::threads) {
      if (!(c.flags & keys_are_dropped)) ((U*)c.data[2])[row + i] = keys[i];
      if constexpr (pays) {
        if (c.flags & result_is_wide) ((i64*)c.data[3])[row + i] = (i64)held[i];
        else ((Payload*)c.data[3])[row + i] = held[i];
      }
    }
  }
};

}  // namespace km
