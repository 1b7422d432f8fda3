// topk.cuh - the first elements of an order, and where they are, without a sort of all.  The order of elements is in
// radix_keys.cuh; of equal ones those in front come first, so that no two have the same place in the order.
//
//   typedef km::topk_block<Order, Place, threads, capacity> Block;   Order goes upwards: the largest are those of one turned over
//   km::topk_first<Block>::run(call)     a block for each row, of which it reads all, or what the two before left of it
//   km::topk_limit<Block>::run(call)     a limit for each row, from a sample
//   km::topk_below<Block>::run(call)     what is below the limits
//
// A limit leaves more than are asked for, and few enough to be kept, unless chance or the data are against it: then a row is
// read by its block alone.
#pragma once
#include "radix.cuh"

namespace km {

// Memory of a call: for each row its limit, how many elements are below, then these: `capacity` of them at most.
template <class U, class Place>
struct topk_work {
  char* at;
  i64 rows, capacity;
  KM_INL U* limit(i64 row) const { return (U*)(at + 24 * row); }
  KM_INL Place* limit_place(i64 row) const { return (Place*)(at + 24 * row + 8); }
  KM_INL u32* count(i64 row) const { return (u32*)(at + 24 * row + 16); }
  KM_INL U* orders(i64 row) const { return (U*)(at + 24 * rows) + row * capacity; }
  KM_INL Place* places(i64 row) const { return (Place*)((U*)(at + 24 * rows) + rows * capacity) + row * capacity; }
};

template <class U, class Place> KM_INL bool comes_first(U a, Place a_place, U b, Place b_place) {
  return a < b || (a == b && a_place < b_place);
}

// Holds so many elements in shared memory, of which it keeps the first when they are too many.
template <class Ordered, class Where, int Threads, int Capacity>
struct topk_block {
  typedef Ordered Order;
  typedef Where Place;
  typedef typename Order::U U;
  static constexpr int threads = Threads, capacity = Capacity, at_once = 8;
  static constexpr int room = Capacity * (int)(sizeof(U) + sizeof(Place));

  u32* counters;  // how many are held, how many of the next ones are to be
  Place* places;
  U* orders;
  U limit = (U)~(U)0;  // the last of those asked for
  Place limit_place = (Place)~(Place)0;

  KM_INL topk_block(char* memory, u32* two) : counters(two), places((Place*)memory), orders((U*)(places + Capacity)) {
    if (threadIdx.x < 2) counters[threadIdx.x] = 0;
    block_barrier();
  }
  KM_INL bool wants(U order, Place place) const { return !comes_first(limit, limit_place, order, place); }

  // By all threads; each lane may have one.
  KM_INL void put(bool wanted, U order, Place place) {
    const u32 who = ballot(wanted), lane = lane_id();
    u32 first = 0;
    if (who == 0) return;
    if (lane == 0) first = fetch_add_shared(counters, (u32)__popc(who));
    first = shuffle(first, 0);
    if (!wanted) return;
    const u32 at = first + (u32)__popc(who & ((1u << lane) - 1));
    orders[at] = order;
    places[at] = place;
  }
  // Sorts what is held, and keeps the first `many` of it; behind a barrier.
  KM_INL void keep(int many) {
    const int held = (int)counters[0], me = (int)threadIdx.x;
    if (held <= Threads) {
      int whole = 2;
      while (whole < held) whole *= 2;
      const bool mine = me < held;
      const U order = mine ? orders[me] : (U)~(U)0;
      const Place place = mine ? places[me] : (Place)~(Place)0;
      block_barrier();
      sort_threads(order, place, whole);
      if (me == 0) counters[0] = (u32)smaller(held, many);
      block_barrier();
    } else {
      sort(counters, places, orders, many);
    }
    if ((int)counters[0] < many) return;
    limit = orders[many - 1];
    limit_place = places[many - 1];
  }
  static KM_HOT void sort(u32* counters, Place* places, U* orders, int many) {
    const int held = (int)counters[0];
    int whole = 2;
    while (whole < held) whole *= 2;
    for (int i = held + (int)threadIdx.x; i < whole; i += Threads) {
      orders[i] = (U)~(U)0;
      places[i] = (Place)~(Place)0;
    }
    block_barrier();
    _Pragma("unroll 1") for (int size = 2; size <= whole; size *= 2)
      _Pragma("unroll 1") for (int apart = size / 2; apart > 0; apart /= 2) {
        for (int i = (int)threadIdx.x; i < whole / 2; i += Threads) {
          const int low = 2 * i - (i & (apart - 1)), high = low + apart;
          const U a = orders[low], b = orders[high];
          const Place a_place = places[low], b_place = places[high];
          if (comes_first(b, b_place, a, a_place) == ((low & size) == 0)) {
            orders[low] = b;
            orders[high] = a;
            places[low] = b_place;
            places[high] = a_place;
          }
        }
        block_barrier();
      }
    if (threadIdx.x == 0) counters[0] = (u32)smaller(held, many);
    block_barrier();
  }
  // Sorts one element of each thread by so many threads of theirs at a time, a power of 2; they lie in order behind it.
  KM_INL void sort_threads(U order, Place place, int whole) {
    const int me = (int)threadIdx.x;
    int turn = 0;
    _Pragma("unroll 1") for (int size = 2; size <= whole; size *= 2)
      _Pragma("unroll 1") for (int apart = size / 2; apart > 0; apart /= 2) {
        U other;
        Place other_place;
        if (apart < warp_size) {
          other = shuffle_xor(order, apart);
          other_place = shuffle_xor(place, apart);
        } else {
          turn ^= Threads;
          orders[turn + me] = order;
          places[turn + me] = place;
          block_barrier();
          other = orders[turn + (me ^ apart)];
          other_place = places[turn + (me ^ apart)];
        }
        const bool takes_first = ((me & apart) == 0) == ((me & size) == 0);
        if (comes_first(other, other_place, order, place) == takes_first) {
          order = other;
          place = other_place;
        }
      }
    block_barrier();
    orders[me] = order;
    places[me] = place;
    block_barrier();
  }
  // A limit behind which none of the first `many` lie: each thread has the first one of its own elements, and no two have the
  // same.  It is not far behind the last one that is asked for, where these are few.
  template <class Source>
  KM_INL void limit_by_threads(i64 count, int many, const Source& from) {
    U first = (U)~(U)0;
    Place first_place = (Place)~(Place)0;
    _Pragma("unroll 1") for (i64 low = threadIdx.x; low < count; low += at_once * Threads) {
      U order[at_once];
      Place place[at_once];
      KM_UNROLL_ALL for (int j = 0; j < at_once; j++)
        if (low + j * Threads < count) from(low + j * Threads, order[j], place[j]);
      KM_UNROLL_ALL for (int j = 0; j < at_once; j++)
        if (low + j * Threads < count && comes_first(order[j], place[j], first, first_place)) {
          first = order[j];
          first_place = place[j];
        }
    }
    sort_threads(first, first_place, Threads);
    limit = orders[many - 1];
    limit_place = places[many - 1];
    block_barrier();
  }
  // As many at a time as there is always room for.
  template <class Source>
  KM_INL void read_slowly(i64 low, i64 count, int many, const Source& from) {
    _Pragma("unroll 1") for (int j = 0; j < at_once; j++) {
      const bool there = low + j * Threads < count;
      U order = 0;
      Place place = 0;
      if (there) from(low + j * Threads, order, place);
      block_barrier();
      if (counters[0] + Threads > (u32)Capacity) keep(many);
      block_barrier();
      put(there && wants(order, place), order, place);
    }
  }
  // The first `many` of `count` elements, which `from(i, order, place)` gives; they end up in order.
  template <class Source>
  KM_INL void read(i64 count, int many, const Source& from) {
    if (count > Threads && many <= Threads / 2) limit_by_threads(count, many, from);
    _Pragma("unroll 1") for (i64 low = threadIdx.x; low - threadIdx.x < count; low += at_once * Threads) {
      U order[at_once];
      Place place[at_once];
      u32 wanted = 0, together = 0;
      KM_UNROLL_ALL for (int j = 0; j < at_once; j++)
        if (low + j * Threads < count) from(low + j * Threads, order[j], place[j]);
      KM_UNROLL_ALL for (int j = 0; j < at_once; j++) {
        const bool one = low + j * Threads < count && wants(order[j], place[j]);
        wanted |= (u32)one << j;
        together += (u32)__popc(ballot(one));
      }
      if (lane_id() == 0 && together) add_shared(counters + 1, together);
      block_barrier();
      const u32 held = counters[0], more = counters[1];
      block_barrier();
      if (threadIdx.x == 0) counters[1] = 0;
      if (held + more <= (u32)Capacity) {
        KM_UNROLL_ALL for (int j = 0; j < at_once; j++) put(wanted >> j & 1, order[j], place[j]);
      } else {
        read_slowly(low, count, many, from);
      }
      block_barrier();
    }
    keep(many);
  }
};

// ---- the launches -----------------------------------------------------------------------------------------------------------

// A number that looks random.
KM_INL u32 scattered(u32 number) {
  number = (number ^ number >> 16) * 0x7feb352du;
  number = (number ^ number >> 15) * 0x846ca68bu;
  return number ^ number >> 16;
}

// Operands: keys, the memory of the call.  `tiles` is the capacity, `pass` which of a sample of 2^`flags` is the limit.
template <class Block>
struct topk_limit {
  typedef typename Block::U U;
  typedef typename Block::Place Place;

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ u32 counters[2];
    const i64 row = blockIdx.x, length = c.shape[1];
    const int size = (int)c.flags;
    const U* keys = (const U*)c.data[0] + row * length;
    Block block(radix_memory, counters);
    block.limit_by_threads((i64)1 << size, (int)c.pass, [=](i64 i, U& order, Place& place) {
      const i64 low = i * length >> size, high = (i + 1) * length >> size;
      place = (Place)(low + (i64)scattered((u32)i) % (high - low));
      order = Block::Order::of(keys[place]);
    });
    if (threadIdx.x > 0) return;
    const topk_work<U, Place> work{c.data[1], c.shape[0], c.tiles};
    *work.limit(row) = block.limit;
    *work.limit_place(row) = block.limit_place;
    *work.count(row) = 0;
  }
};

// Operands: keys, the memory of the call.  `tiles` is the capacity, `pass` how many blocks a row has.
template <class Block>
struct topk_below {
  typedef typename Block::U U;
  typedef typename Block::Place Place;
  static constexpr int threads = 512, wide = 16 / (int)sizeof(U), at_once = 4;
  struct several { U key[wide]; };

  struct row_below {
    U* orders;
    Place* places;
    u32* count;
    u32 capacity;
    U limit;
    Place limit_place;
    KM_INL void test(U bits, i64 at) const {
      const U order = Block::Order::of(bits);
      if (KM_LIKELY(order > limit)) return;
      if (order == limit && (Place)at > limit_place) return;
      const u32 to = atomic_add<relaxed>(count, 1u);
      if (to >= capacity) return;
      orders[to] = order;
      places[to] = (Place)at;
    }
    KM_INL void test(const packet& from, i64 at) const {
      const several keys = bit_cast<several>(from);
      KM_UNROLL_ALL for (int v = 0; v < wide; v++) test(keys.key[v], at + v);
    }
  };

  template <class Call>
  static KM_INL void run(const Call& c) {
    const u32 blocks = (u32)c.pass, part = blockIdx.x % blocks;
    const i64 row = blockIdx.x / blocks, length = c.shape[1];
    const topk_work<U, Place> work{c.data[1], c.shape[0], c.tiles};
    const row_below below{work.orders(row), work.places(row), work.count(row), (u32)c.tiles, *work.limit(row),
                          *work.limit_place(row)};
    const U* keys = (const U*)c.data[0] + row * length;
    const i64 ahead = (i64)((16 - (uptr)keys % 16) % 16) / (i64)sizeof(U), lead = smaller(ahead, length);
    const i64 packets = (length - lead) / wide, step = (i64)blocks * threads;
    const packet* from = (const packet*)(keys + lead);
    i64 i = (i64)part * threads + threadIdx.x;
    _Pragma("unroll 1") for (; i + (at_once - 1) * step < packets; i += at_once * step) {
      packet p[at_once];
      KM_UNROLL_ALL for (int q = 0; q < at_once; q++) p[q] = load_packet_once(from + i + q * step);
      KM_UNROLL_ALL for (int q = 0; q < at_once; q++) below.test(p[q], lead + (i + q * step) * wide);
    }
    _Pragma("unroll 1") for (; i < packets; i += step) below.test(load_packet_once(from + i), lead + i * wide);
    if (part > 0) return;
    const i64 behind = lead + packets * wide, at = behind + threadIdx.x;
    if ((i64)threadIdx.x < lead) below.test(keys[threadIdx.x], threadIdx.x);
    if (at < length) below.test(keys[at], at);
  }
};

// Operands: keys, the memory of the call, values and places to be written.  `tiles` is the capacity, 0 where nothing was
// chosen before, `pass` how many are asked for.
template <class Block>
struct topk_first {
  typedef typename Block::U U;
  typedef typename Block::Place Place;

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(16) char radix_memory[];
    __shared__ u32 counters[2];
    const i64 row = blockIdx.x, length = c.shape[1];
    const int many = (int)c.pass;
    const U* keys = (const U*)c.data[0] + row * length;
    const topk_work<U, Place> work{c.data[1], c.shape[0], c.tiles};
    const i64 chosen = c.tiles ? (i64)*work.count(row) : 0;
    const bool is_chosen = chosen >= many && chosen <= c.tiles;
    const U* orders = work.orders(row);
    const Place* places = work.places(row);
    Block block(radix_memory, counters);
    block.read(is_chosen ? chosen : length, many, [=](i64 i, U& order, Place& place) {
      order = is_chosen ? orders[i] : Block::Order::of(keys[i]);
      place = is_chosen ? places[i] : (Place)i;
    });
    for (int i = (int)threadIdx.x; i < many; i += Block::threads) {
      const Place place = block.places[i];
      ((U*)c.data[2])[row * many + i] = keys[place];
      ((i64*)c.data[3])[row * many + i] = (i64)place;
    }
  }
};

}  // namespace km
