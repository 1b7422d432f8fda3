// radix_pass.cuh - one pass of a radix sort over many tiles: elements go to where their digit belongs.  Counts and begins of
// digits are there already: see radix.cuh.
//
// Tiles do not look back at each other.  The blocks with the first tickets are scanners, which have no tile: they read how many
// elements of each digit the tiles have, in order, and write where the first of them goes to.  Tiles say their counts before
// they rank, so that scanners work beside them.
#pragma once
#include "radix.cuh"

namespace km {

// Operands: keys, payload, keys and payload to be written, the memory of the call; those that there are not have address 0.
template <class Order, class Payload, class Place, class Tile>
struct radix_pass {
  typedef typename Order::U U;
  typedef radix_work<Place> Work;
  static constexpr bool pays = sizeof(Payload) > 1;
  static constexpr int threads = Tile::threads, items = Tile::items, batch = 16;
  static constexpr int room = Tile::elements * (int)(sizeof(U) + (pays ? sizeof(Payload) : 0)) +
                              Tile::tables * Tile::warps * radix_digits * 4;
  static constexpr int handed_bits = 40;  // of a word that scanners hand on, beside the number of a batch

  struct shared {
    Place to[radix_digits];  // where the first element of a digit goes to, less its place in the tile
    u64 handed[radix_digits];
    u32 sums[radix_digits / warp_size], ticket;
  };

  // ---- scanners ---------------------------------------------------------------------------------------------------------------

  // One digit a thread; groups of threads take batches by turns, and hand on where the next one begins.
  static KM_INL void scan(const Work& work, int pass, int scanner, shared& s) {
    constexpr int digits = radix_digits / Tile::scanners, groups = threads / digits;
    const int digit = scanner * digits + (int)threadIdx.x % digits, tiles = (int)work.tiles;
    const u32 mark = Work::mark(pass);
    const u32* counts = work.counts(0) + digit;
    Place* places = work.places(0) + digit;
    u64* const handed = s.handed + digit;
    _Pragma("unroll 1") for (int b = (int)threadIdx.x / digits; b * batch < tiles; b += groups) {
      const int left = tiles - b * batch;
      const u32* from = counts + (i64)b * (batch * radix_digits);
      Place* to = places + (i64)b * (batch * radix_digits);
      u32 count[batch], sum = 0;
      KM_UNROLL_ALL for (int u = 0; u < batch; u++)
        count[u] = u < left ? atomic_load<relaxed>(from + u * radix_digits) : mark << Work::count_bits;
      for (;;) {
        bool all = true;
        KM_UNROLL_ALL for (int u = 0; u < batch; u++) all &= count[u] >> Work::count_bits == mark;
        if (vote_all(all)) break;
        if constexpr (Tile::rest > 0) rest_for(Tile::rest);
        KM_UNROLL_ALL for (int u = 0; u < batch; u++)
          if (count[u] >> Work::count_bits != mark) count[u] = atomic_load<relaxed>(from + u * radix_digits);
      }
      KM_UNROLL_ALL for (int u = 0; u < batch; u++) {
        count[u] &= (1u << Work::count_bits) - 1;
        sum += count[u];
      }
      u64 before;
      do before = atomic_load<relaxed, block_scope>(handed);
      while ((u32)(before >> handed_bits) != (u32)b);
      Place next = (Place)(before & (((u64)1 << handed_bits) - 1));
      atomic_store<relaxed, block_scope>(handed, (u64)(b + 1) << handed_bits | (u64)(Place)(next + sum));
      next |= (Place)mark << Work::place_bits;
      KM_UNROLL_ALL for (int u = 0; u < batch; u++) {
        if (u < left) atomic_store<relaxed>(to + u * radix_digits, next);
        next += count[u];
      }
    }
  }

  // ---- tiles --------------------------------------------------------------------------------------------------------------------

  template <class T> static KM_INL T once(const T* from) {
    if constexpr (sizeof(T) == 4) return bit_cast<T>(load_stream((const u32*)from));
    else if constexpr (sizeof(T) == 8) return bit_cast<T>(load_stream((const u64*)from));
    else return *from;
  }
  // So that orders are not kept from before: registers are what there is least of.
  static KM_INL void look_afresh(U& key) {
    if constexpr (sizeof(U) >= 4) {
      settle(key);
    } else {
      u32 word = key;
      settle(word);
      key = (U)word;
    }
  }
  static KM_INL int first_of() { return (int)threadIdx.x / warp_size * Tile::part + (int)lane_id(); }

  // A tile that is not full is filled up, so that all of the filling stays behind its elements.
  template <class Call>
  static KM_INL void read(const Call& c, i64 low, int held, U (&key)[items]) {
    const int first = first_of();
    const U* from = (const U*)c.data[0] + low + first;
    if (held == Tile::elements) {
      KM_UNROLL_ALL for (int i = 0; i < items; i++) key[i] = once(from + i * warp_size);
    } else {
      const U filling = Order::filling((int)c.pass);
      KM_UNROLL_ALL for (int i = 0; i < items; i++) key[i] = first + i * warp_size < held ? from[i * warp_size] : filling;
    }
  }
  template <class Call>
  static KM_INL void read_payload(const Call& c, i64 low, int held, Payload (&payload)[items]) {
    const int first = first_of();
    if (c.flags & payload_is_place) {
      KM_UNROLL_ALL for (int i = 0; i < items; i++) payload[i] = (Payload)(low + first + i * warp_size);
      return;
    }
    const Payload* from = (const Payload*)c.data[1] + low + first;
    KM_UNROLL_ALL for (int i = 0; i < items; i++)
      payload[i] = first + i * warp_size < held ? once(from + i * warp_size) : (Payload)0;
  }
  template <class Call>
  static KM_INL void write(const Call& c, int held, const U* keys, const Payload* payload, const shared& s) {
    const int shift = Order::shift((int)c.pass);
    const u32 mask = Order::mask((int)c.pass);
    U* to = (U*)c.data[2];
    KM_UNROLL_ALL for (int i = 0; i < items; i++) {
      const int at = i * threads + (int)threadIdx.x;
      if (at < held) {
        const U key = keys[at];
        const Place place = (Place)(s.to[Order::digit(key, shift, mask)] + (Place)at);
        if (!pays || !(c.flags & keys_are_dropped)) to[place] = key;
        if constexpr (pays) {
          if (c.flags & result_is_wide) ((i64*)c.data[3])[place] = (i64)payload[at];
          else ((Payload*)c.data[3])[place] = payload[at];
        }
      }
    }
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ shared s;
    U* keys = (U*)radix_memory;
    Payload* held_payload = (Payload*)(keys + Tile::elements);
    u32* counts = (u32*)(radix_memory + Tile::elements * (sizeof(U) + (pays ? sizeof(Payload) : 0)));
    const int thread = (int)threadIdx.x, lane = (int)lane_id(), warp = thread / warp_size, pass = (int)c.pass;
    const Work work{c.data[4], c.tiles};
    u32* mine = counts + warp * radix_digits;
    u32* table = Tile::tabled ? counts + (Tile::warps + warp) * radix_digits : nullptr;
    if (thread == 0) s.ticket = atomic_add<relaxed>(work.ticket(pass), 1u);
    KM_UNROLL_ALL for (int i = 0; i < radix_digits / warp_size; i++) {
      mine[i * warp_size + lane] = 0;
      if constexpr (Tile::tabled > 0) table[i * warp_size + lane] = 0;
    }
    if (thread < radix_digits) s.handed[thread] = (u64)work.begin(pass)[thread];
    block_barrier();
    if (s.ticket < Tile::scanners) return scan(work, pass, (int)s.ticket, s);
    const int tile = (int)s.ticket - Tile::scanners;
    const i64 low = (i64)tile * Tile::elements;
    const int held = (int)smaller<i64>(c.elements - low, Tile::elements), shift = Order::shift(pass);
    const u32 mask = Order::mask(pass);

    U key[items];
    Payload payload[items];
    read(c, low, held, key);
    KM_UNROLL_ALL for (int i = 0; i < items; i++) add_shared(mine + Order::digit_apart(key[i], shift, mask), 1u);
    if constexpr (pays) read_payload(c, low, held, payload);
    block_barrier();
    u32 below;
    u32* tell = work.counts(tile) + thread;
    const u32 mark = Work::mark(pass);
    tile_places<Tile>(counts, s.sums, below, [=](u32 total) { atomic_store<relaxed>(tell, total | mark << Work::count_bits); });
    KM_UNROLL_ALL for (int i = 0; i < items; i++) {
      look_afresh(key[i]);
      const u32 digit = Order::digit(key[i], shift, mask);
      u32 at;
      if (Tile::tabled > 0 && i % (Tile::tabled > 0 ? Tile::tabled : 1) == 0) at = place_in_tile<true>(mine, table, digit, lane);
      else at = place_in_tile<false>(mine, table, digit, lane);
      keys[at] = key[i];
      if constexpr (pays) held_payload[at] = payload[i];
    }
    if (thread < radix_digits) {
      Place to;
      do to = atomic_load<relaxed>(work.places(tile) + thread);
      while (to >> Work::place_bits != mark);
      s.to[thread] = (Place)(to - ((Place)mark << Work::place_bits) - below);
    }
    block_barrier();
    write(c, held, keys, held_payload, s);
  }
};

}  // namespace km
