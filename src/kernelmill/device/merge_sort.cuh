// merge_sort.cuh - stable merge sort on a device by any operator: tiles that a block sorts, then passes that merge four sorted
// runs at a time.  How a block merges is in merge_tile.cuh, where tiles begin in their runs in merge_splits.cuh.
//
//   typedef km::compared<Op, T, descending> Less;
//   km::merge_tiles<Less, T, Payload, Shape>::run(call)    sorts tiles; all there is to do for rows of one tile
//   km::merge_splits<Less, T, Shape, Runs>::run(call)      then by turns: where the tiles of a pass begin in their runs
//   km::merge_pass<Less, T, Payload, Shape, Runs>::run(call)   and the pass
//
// Payload is u32, u64 or km::no_payload; where none is read, it is the number of the element in its row.  Shape is (rows,
// length); operands are those of km::row_runs.  With km::array_runs one pass merges two arrays.
#pragma once
#include "merge_splits.cuh"

namespace km {

// ---- tiles ---------------------------------------------------------------------------------------------------------------

// What tiles and passes have in common: shared memory, and how elements come and go.
template <class T, class Payload, class Shape>
struct merge_block {
  typedef typename stored<T>::type S;
  static constexpr bool pays = sizeof(Payload) > 1;
  static constexpr int threads = Shape::threads, items = Shape::items, elements = Shape::elements, warps = Shape::warps;
  static constexpr int size = (int)sizeof(S), bytes = (elements * size + 15) / 16 * 16;
  static constexpr int places_bytes = pays ? (2 * elements + 15) / 16 * 16 : 0;
  // Elements twice, with what the copy engine brings beside each run, and their places twice.
  static constexpr int first_bytes = bytes + 32 * merged_runs, keys_bytes = 2 * first_bytes;
  // Whether payloads fit in what elements have left.
  static constexpr bool beside = pays && Shape::bulk && (int)sizeof(Payload) <= size;
  static constexpr int room = keys_bytes + 2 * places_bytes;

  struct rooms {
    char* memory;
    int turn = 0;
    KM_INL char* keys(int other) const { return memory + ((turn ^ other) ? first_bytes : 0); }
    KM_INL u16* places(int other) const { return (u16*)(memory + keys_bytes + ((turn ^ other) ? places_bytes : 0)); }
  };

  // Brings elements to `to`, which has their place in a packet, out of an array that lies between `low` and `high`.  All
  // threads call it; it makes one arrival at `word`, and what the copy engine brings is there when that says so.
  template <class Item = S>
  static KM_INL void bring(char* to, const char* from, int count, const char* low, const char* high, u64* word) {
    const int tid = (int)threadIdx.x;
    if constexpr (Shape::bulk) {
      const char* end = from + count * (int)sizeof(Item);
      const char *first = (const char*)((uptr)from & ~(uptr)15), *last = (const char*)(((uptr)end + 15) & ~(uptr)15);
      if (first < low) first += 16;
      if (last > high) last -= 16;
      if (count <= 0 || last <= first) first = last = end;  // threads copy all there is
      if (tid == 0) {
        if (last > first) {
          copy_barrier_expect(word, (u32)(last - first));
          bulk_load(to + (first - from), first, (u32)(last - first), word);
        } else {
          copy_barrier_arrive(word);
        }
      }
      _Pragma("unroll 1") for (const char* p = from + tid; p < first && p < end; p += threads) to[p - from] = *p;
      _Pragma("unroll 1") for (const char* p = last + tid; p < end; p += threads) to[p - from] = *p;
    } else {
      _Pragma("unroll 4") for (int i = tid; i < count; i += threads) ((Item*)to)[i] = ((const Item*)from)[i];
    }
  }
  static KM_INL void take_away(char* to, const char* from, int count) {
    // Packets end where an element does.
    constexpr int most = size % 16 ? 16 / (size & -size) : 1;  // elements that fill packets
    const int tid = (int)threadIdx.x, whole = ((uptr)to & 15) ? 0 : count / most * most, packets = whole * size / 16;
    _Pragma("unroll 4") for (int i = tid; i < packets; i += threads) store_packet(to + 16 * i, load_packet(from + 16 * i));
    _Pragma("unroll 4") for (int i = whole + tid; i < count; i += threads) ((S*)to)[i] = ((const S*)from)[i];
  }
  template <class Call>
  static KM_INL void pay(const Call& c, char* result, i64 at, Payload value) {
    if (c.flags & merge_wide) ((i64*)result)[at] = (i64)value;
    else ((Payload*)result)[at] = value;
  }
};

template <class Less, class T, class Payload, class Shape>
struct merge_tiles : merge_block<T, Payload, Shape> {
  typedef merge_block<T, Payload, Shape> base;
  typedef typename base::S S;
  using base::elements, base::items, base::threads, base::size, base::pays, base::warps;

  // Elements of a thread, exchanged with their neighbours, which is stable.
  static KM_INL void exchange(char* to, u16* places, const char* from, int first, const Less& less) {
    S own[items];
    u16 place[items];
    KM_UNROLL_ALL for (int i = 0; i < items; i++) own[i] = *(const S*)(from + i * size), place[i] = (u16)(first + i);
    _Pragma("unroll 1") for (int turn = 0; turn < items; turn += 2)
      KM_UNROLL_ALL for (int odd = 0; odd < 2; odd++)
        KM_UNROLL_ALL for (int i = odd; i + 1 < items; i += 2) {
          const S x = own[i], y = own[i + 1];
          const u16 p = place[i], q = place[i + 1];
          const bool turned = less(y, x);
          own[i] = turned ? y : x, own[i + 1] = turned ? x : y;
          place[i] = turned ? q : p, place[i + 1] = turned ? p : q;
        }
    KM_UNROLL_ALL for (int i = 0; i < items; i++) *(S*)(to + i * size) = own[i];
    if constexpr (pays)
      KM_UNROLL_ALL for (int i = 0; i < items; i++) places[i] = place[i];
  }
  // Those of the one thread that has some and not all, a lane each.
  static KM_INL void exchange_lanes(char* to, u16* places, const char* from, int first, int count, const Less& less) {
    const int lane = (int)lane_id();
    S own;
    int place = first + lane;
    if (lane < count) own = *(const S*)(from + lane * size);
    _Pragma("unroll 1") for (int turn = 0; turn < count; turn++) {
      const bool upper = ((lane ^ turn) & 1) != 0;  // the one behind, of a pair
      const int other = upper ? lane - 1 : lane + 1;
      const S seen = shuffle(own, other & 31);
      const int seen_place = shuffle(place, other & 31);
      const bool pairs = other >= 0 && other < count && lane < count;
      if (pairs && (upper ? less(own, seen) : less(seen, own))) own = seen, place = seen_place;
    }
    if (lane < count) {
      *(S*)(to + lane * size) = own;
      if constexpr (pays) places[lane] = (u16)place;
    }
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(128) char merge_memory[];
    __shared__ u64 word;
    __shared__ part_ends<warps> told[2];  // by turns, as memory
    const Less less(c.captures);
    const int tid = (int)threadIdx.x;
    const u32 row = c.shape[0] > 1 ? blockIdx.x / (u32)c.tiles : 0;
    const i64 first = (i64)(blockIdx.x - row * (u32)c.tiles) * elements, start = row * c.shape[1] + first;
    const int valid = (int)smaller<i64>(elements, c.shape[1] - first);
    if (c.tiles > 1 && blockIdx.x == 0 && tid < merge_work::passes) *merge_work{c.data[4]}.broken(tid) = 0;
    typename base::rooms rooms{merge_memory};
    const char* from = c.data[0] + start * size;
    const int shift = (int)((uptr)from & 15);
    if constexpr (Shape::bulk) {
      if (tid == 0) {
        copy_barrier_init(&word, 1);
        copy_barriers_made();
      }
      block_barrier();
    }
    base::bring(rooms.keys(0) + shift, from, valid, c.data[0], c.data[0] + c.elements * size, &word);
    if constexpr (Shape::bulk) copy_barrier_wait(&word, 0);
    block_barrier();
    const int mine = tid * items, odd = valid / items;  // the thread that has some, where one has
    const char* seen = rooms.keys(0) + shift;
    if (tid < odd) exchange(rooms.keys(1) + mine * size, rooms.places(1) + mine, seen + mine * size, mine, less);
    if (valid % items && tid / warp_size == odd / warp_size) {
      const int at = odd * items;
      exchange_lanes(rooms.keys(1) + at * size, rooms.places(1) + at, seen + at * size, at, valid - at, less);
    }
    rooms.turn ^= 1;
    block_barrier();
    _Pragma("unroll 1") for (int width = items; width < valid; width *= 2) {
      const int each = 2 * width / items, index = tid & (each - 1), low = (tid - index) * items, high = low + width;
      const merging m{low * size, at_most(valid - low, width), high * size, at_most(valid - high, width), low, high, low};
      if (each == 2 * warp_size) block_barrier();
      merge_level<S, items, warps, pays>(rooms.keys(0), rooms.places(0), rooms.keys(1), rooms.places(1), m, tid, index,
                                         told[rooms.turn], each <= warp_size, less);
      rooms.turn ^= 1;
    }
    block_barrier();
    if (!(c.flags & merge_drops)) base::take_away(c.data[2] + start * size, rooms.keys(0), valid);
    if constexpr (pays) give(c, rooms, start, first, valid);
  }

  template <class Call>
  static KM_INL void give(const Call& c, const typename base::rooms& rooms, i64 start, i64 first, int valid) {
    const int tid = (int)threadIdx.x;
    const u16* places = rooms.places(0);
    if (c.flags & merge_places) {
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads)
        base::pay(c, c.data[3], start + j, (Payload)(first + places[j]));
    } else if constexpr (elements * sizeof(Payload) <= base::bytes) {  // through the memory that elements have left
      Payload* held = (Payload*)rooms.keys(1);
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) held[j] = ((const Payload*)c.data[1])[start + j];
      block_barrier();
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) base::pay(c, c.data[3], start + j, held[places[j]]);
    } else {
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads)
        base::pay(c, c.data[3], start + j, ((const Payload*)c.data[1])[start + places[j]]);
    }
  }
};

// ---- passes --------------------------------------------------------------------------------------------------------------

template <class Less, class T, class Payload, class Shape, template <int> class Runs>
struct merge_pass : merge_block<T, Payload, Shape> {
  typedef merge_block<T, Payload, Shape> base;
  typedef Runs<Shape::elements> runs;
  typedef typename base::S S;
  using base::elements, base::items, base::threads, base::size, base::pays, base::warps;

  // What a tile takes of each run: where that begins in its array and in the run, and how much.
  struct taken {
    i64 offset[merged_runs], begin[merged_runs], to;
    int count[merged_runs];
  };
  template <class Call>
  static KM_INL void take(const Call& c, taken& told) {
    const int r = (int)threadIdx.x;
    if (r >= merged_runs) return;
    const runs at(c, blockIdx.x);
    i64 length = 0, before = 0;
    KM_UNROLL_ALL for (int q = 0; q < merged_runs; q++) {
      if (q < r) before += at.length[q];
      if (q == r) length = at.length[q];
    }
    const i64 end = smaller<i64>(at.begin + elements, at.total);
    const u32 is_broken = *runs::work(c).broken(c.pass);
    i64 low = runs::work(c).split(blockIdx.x)[r], high = length;
    if (end < at.total) high = runs::work(c).split((i64)blockIdx.x + 1)[r];
    if (is_broken) {  // nothing is merged but within tiles
      low = clamp(at.begin - before, 0, length);
      high = clamp(end - before, 0, length);
    }
    told.offset[r] = at.offset(r) + low;
    told.begin[r] = runs::number(c, r) + low;
    told.count[r] = (int)(high - low);
    if (r == 0) told.to = at.to;
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    extern __shared__ __align__(128) char merge_memory[];
    __shared__ u64 word, payload_word;
    __shared__ part_ends<warps> ends[2];
    __shared__ taken told;
    const Less less(c.captures);
    const int tid = (int)threadIdx.x;
    if constexpr (Shape::bulk)
      if (tid == 0) {
        copy_barrier_init(&word, merged_runs);
        copy_barrier_init(&payload_word, merged_runs);
        copy_barriers_made();
      }
    take(c, told);
    block_barrier();
    typename base::rooms rooms{merge_memory};
    int at[merged_runs], before[merged_runs + 1] = {0}, end = 0;
    KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) {
      const char *low = runs::keys(c, r), *run = low + told.offset[r] * size;
      before[r + 1] = before[r] + told.count[r];
      at[r] = (end + 15) / 16 * 16 + (int)((uptr)run & 15);
      end = at[r] + told.count[r] * size;
      base::bring(rooms.keys(0) + at[r], run, told.count[r], low, low + runs::elements(c, r) * size, &word);
    }
    if constexpr (Shape::bulk) copy_barrier_wait(&word, 0);
    block_barrier();
    // The first run with the second, the third with the fourth; then what is made of these.
    const int all = before[merged_runs], half = before[2], lead = (half + items - 1) / items;
    const bool other = tid >= lead;
    merging m{other ? at[2] : at[0], told.count[other ? 2 : 0], other ? at[3] : at[1], told.count[other ? 3 : 1],
              other ? half : 0, other ? before[3] : before[1], other ? half : 0};
    const u16* places = nullptr;
    int index = other ? tid - lead : tid;
    const int levels = half > 0 && half < all ? 2 : 1;
    _Pragma("unroll 1") for (int level = 0; level < levels; level++) {
      merge_level<S, items, warps, pays>(rooms.keys(0), places, rooms.keys(1), rooms.places(1), m, tid, index, ends[level],
                                         false, less);
      rooms.turn ^= 1;
      m = {0, half, half * size, all - half, 0, half, 0};
      places = rooms.places(0);
      index = tid;
    }
    [[maybe_unused]] int lies[merged_runs] = {0};  // where payloads are, less what is before them
    [[maybe_unused]] bool staged = false;
    if constexpr (base::beside)
      if (!(c.flags & merge_places)) {
        staged = true;
        seen_by_copies();
        block_barrier();
        end = 0;
        KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) {
          constexpr int item = (int)sizeof(Payload);
          const char *low = runs::payload(c, r), *run = low + told.offset[r] * item;
          const int to = (end + 15) / 16 * 16 + (int)((uptr)run & 15);
          end = to + told.count[r] * item;
          lies[r] = to - before[r] * item;
          const char* high = low + runs::elements(c, r) * item;
          base::template bring<Payload>(rooms.keys(1) + to, run, told.count[r], low, high, &payload_word);
        }
      }
    if (!(c.flags & merge_drops)) base::take_away(runs::result(c) + told.to * size, rooms.keys(0), all);
    if constexpr (base::beside)
      if (staged) {
        copy_barrier_wait(&payload_word, 0);
        block_barrier();
        _Pragma("unroll 4") for (int j = tid; j < all; j += threads) {
          const int p = rooms.places(0)[j];
          int at = lies[0];
          KM_UNROLL_ALL for (int r = 1; r < merged_runs; r++) at = p >= before[r] ? lies[r] : at;
          base::pay(c, runs::payload_result(c), told.to + j, *(const Payload*)(rooms.keys(1) + at + p * (int)sizeof(Payload)));
        }
        return;
      }
    if constexpr (pays)
      _Pragma("unroll 4") for (int j = tid; j < all; j += threads) {
        const int p = rooms.places(0)[j], r = (p >= before[1]) + (p >= before[2]) + (p >= before[3]);
        Payload value;
        const int at = p - (r > 1 ? (r > 2 ? before[3] : before[2]) : (r > 0 ? before[1] : 0));
        if (c.flags & merge_places) value = (Payload)(told.begin[r] + at);
        else value = ((const Payload*)runs::payload(c, r))[told.offset[r] + at];
        base::pay(c, runs::payload_result(c), told.to + j, value);
      }
  }
};

}  // namespace km
