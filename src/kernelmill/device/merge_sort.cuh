// merge_sort.cuh - stable merge sort on a device by any operator: tiles that a block sorts, then passes that merge four sorted
// runs at a time.  How a block merges is in merge_tile.cuh.
//
//   typedef km::compared<Op, T, descending> Less;
//   km::merge_tiles<Less, T, Payload, Shape>::run(call)    sorts tiles; all there is to do for rows of one tile
//   km::merge_splits<Less, T, Shape, Runs>::run(call)      then by turns: where the tiles of a pass begin in their runs
//   km::merge_pass<Less, T, Payload, Shape, Runs>::run(call)   and the pass
//
// Payload is u32, u64 or km::no_payload; where none is read, it is the number of the element in its row.  Shape is (rows,
// length); operands are those of km::row_runs.  With km::array_runs one pass merges two arrays.
#pragma once
#include "merge_tile.cuh"

namespace km {

struct no_payload {};

template <int Bytes, int Operands>
struct MergeCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 tiles, width, pass, flags, pass_tiles;  // tiles of a row, elements of a sorted run; tiles of all rows
};
enum merge_flag : int { merge_places = 1, merge_wide = 2, merge_drops = 4, merge_spread = 8 };
constexpr int merged_runs = 4;

// Memory of a call: a word a pass that says whether its operator contradicted itself, then for each tile how many elements of
// each of the four runs are before it.
struct merge_work {
  static constexpr int passes = 32, words = passes * 4;
  char* at;
  KM_INL u32* broken(i64 pass) const { return (u32*)at + pass; }
  KM_INL i64* split(i64 tile) const { return (i64*)(at + words) + tile * merged_runs; }
};

// The runs that a tile is merged of: sorted parts of a row, or two arrays.  `begin` is where the tile begins in their merge,
// which has `total` elements, and `to` where in the results.  Operands of rows: elements, payload, those to be written, the
// memory of the call.
template <int Elements>
struct row_runs {
  static constexpr int operands = 5;
  i64 begin, total, to, width, low;
  i64 length[merged_runs];
  template <class Call>
  KM_INL row_runs(const Call& c, i64 tile) {
    const i64 row = tile / c.tiles, inside = tile - row * c.tiles, group = merged_runs * c.width / Elements;
    const i64 base = inside / group * group * Elements;
    width = c.width;
    low = row * c.shape[1] + base;
    begin = inside * Elements - base;
    to = low + begin;
    total = 0;
    KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) {
      length[r] = clamp(c.shape[1] - base - r * c.width, 0, c.width);
      total += length[r];
    }
  }
  KM_INL i64 offset(int r) const { return low + r * width; }  // of a run in its array
  template <class Call> static KM_INL const char* keys(const Call& c, int) { return c.data[0]; }
  template <class Call> static KM_INL i64 elements(const Call& c, int) { return c.elements; }  // of that array
  template <class Call> static KM_INL const char* payload(const Call& c, int) { return c.data[1]; }
  template <class Call> static KM_INL i64 number(const Call&, int) { return 0; }  // from which places of a run count
  template <class Call> static KM_INL char* result(const Call& c) { return c.data[2]; }
  template <class Call> static KM_INL char* payload_result(const Call& c) { return c.data[3]; }
  template <class Call> static KM_INL merge_work work(const Call& c) { return {c.data[4]}; }
};
// Operands: two arrays, their payloads, the results, the memory of the call; shape is their lengths.
template <int Elements>
struct array_runs {
  static constexpr int operands = 7;
  i64 begin, total, to;
  i64 length[merged_runs];
  template <class Call>
  KM_INL array_runs(const Call& c, i64 tile) : begin(tile * Elements), total(c.shape[0] + c.shape[1]), to(begin) {
    length[0] = c.shape[0], length[1] = c.shape[1], length[2] = length[3] = 0;
  }
  KM_INL i64 offset(int) const { return 0; }
  template <class Call> static KM_INL const char* keys(const Call& c, int r) { return c.data[r & 1]; }
  template <class Call> static KM_INL i64 elements(const Call& c, int r) { return c.shape[r & 1]; }
  template <class Call> static KM_INL const char* payload(const Call& c, int r) { return c.data[2 + (r & 1)]; }
  template <class Call> static KM_INL i64 number(const Call& c, int r) { return r & 1 ? c.shape[0] : 0; }
  template <class Call> static KM_INL char* result(const Call& c) { return c.data[4]; }
  template <class Call> static KM_INL char* payload_result(const Call& c) { return c.data[5]; }
  template <class Call> static KM_INL merge_work work(const Call& c) { return {c.data[6]}; }
};

// ---- where tiles begin ------------------------------------------------------------------------------------------------------

// One thread a tile, or a warp where `flags` has merge_spread; the last one of a block stands for the first of the next, so
// that all neighbours are compared.
template <class Less, class T, class Shape, template <int> class Runs>
struct merge_splits {
  typedef Runs<Shape::elements> runs;
  typedef typename stored<T>::type S;
  static constexpr int threads = 64;
  static constexpr i64 long_from = 1 << 22;  // elements

  // Of the first `left` elements of all runs merged, as many as are of each.  The element that is the smallest of those so
  // many steps ahead, one in each run, is one of them, with all that are before it in its run.  In long arrays
  // steps are powers of two, so that what is looked at is the same for many tiles, and what is not gone by is looked at once.
  static KM_INL void search(const S* const (&run)[merged_runs], const i64 (&length)[merged_runs], i64 left, bool is_long,
                            const Less& less, i64 (&taken)[merged_runs]) {
    KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) taken[r] = 0;
    int runs = 0, best = -1;
    i64 known = 0;
    KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) runs += length[r] > 0;
    const int share = runs > 2 ? 2 : runs > 1 ? 1 : 0;
    S item[merged_runs];
    i64 step[merged_runs];
    _Pragma("unroll 1") while (left > 0) {
      i64 ahead = ((left - 1) >> share) + 1;
      if (is_long) ahead = (i64)1 << (63 - __clzll(ahead));
      KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++)
        if (ahead != known || r == best) {
          step[r] = smaller(ahead, length[r] - taken[r]);
          if (step[r] > 0) item[r] = run[r][taken[r] + step[r] - 1];
        }
      known = ahead, best = -1;
      S least;
      KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++)
        if (step[r] > 0 && (best < 0 || less(item[r], least))) best = r, least = item[r];
      KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++)
        if (r == best) taken[r] += step[r], left -= step[r];
    }
  }

  // The same by a warp, which wants fewer turns: eight lanes look at elements one, two ... eight steps ahead in each run.  Those
  // in order are gone by as long as no run has none left to look at, and all that may lie between them is among the first.
  static KM_INL i64 search_by_warp(const S* run, i64 length, i64 left, const Less& less) {
    constexpr int each = warp_size / merged_runs, turns = 27;
    const int lane = (int)lane_id(), ahead = lane % each;
    i64 taken = 0;
    _Pragma("unroll 1") while (left > 0) {
      const i64 step = larger<i64>(1, (left + merged_runs - 1) / turns);
      const i64 rest = length - taken - ahead * step, size = clamp(rest, 0, step);
      S own;
      if (size > 0) own = run[taken + ahead * step + size - 1];
      const u32 there = ballot(size > 0);
      int before = 0;
      _Pragma("unroll 4") for (int d = 1; d < warp_size; d++) {
        const S seen = shuffle_xor(own, d);
        if (size > 0 && (there >> (lane ^ d) & 1)) before += (lane ^ d) < lane ? !less(own, seen) : less(seen, own);
      }
      int sure = ahead == each - 1 && rest > step ? before + 1 : warp_size;
      KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) sure = smaller(sure, shuffle_xor(sure, d));
      sure = (int)smaller<i64>(sure, (left - (merged_runs - 1) * (step - 1)) / step);
      i64 of_run = size > 0 && before < sure ? size : 0;
      KM_UNROLL_ALL for (int d = 1; d < each; d *= 2) of_run += shuffle_xor(of_run, d);
      i64 all = of_run;
      KM_UNROLL_ALL for (int d = each; d < warp_size; d *= 2) all += shuffle_xor(all, d);
      const int first = (__ffs((int)there) - 1) & (warp_size - 1);
      const i64 some = smaller(shuffle(size, first), left);
      if (all <= 0 || all > left) all = some, of_run = lane / each == first / each ? some : 0;  // no order: one run goes on
      if (all <= 0) break;
      taken += of_run, left -= all;
    }
    return taken;
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    if (c.flags & merge_spread) by_warps(c);
    else by_threads(c);
  }
  template <class Call>
  static KM_INL void by_warps(const Call& c) {
    constexpr int each = warp_size / merged_runs, warps = threads / warp_size;
    __shared__ i64 found[warps][merged_runs];
    const Less less(c.captures);
    const int warp = (int)threadIdx.x / warp_size, lane = (int)threadIdx.x % warp_size, r = lane / each;
    const i64 tile = (i64)blockIdx.x * (warps - 1) + warp;
    i64 taken = 0, begin = 0;
    if (tile < c.pass_tiles) {
      const runs at(c, tile);
      i64 length = 0;
      KM_UNROLL_ALL for (int q = 0; q < merged_runs; q++)
        if (q == r) length = at.length[q];
      begin = at.begin;
      taken = search_by_warp((const S*)runs::keys(c, r) + at.offset(r), length, begin, less);
      if (lane % each == 0) {
        found[warp][r] = taken;
        if (warp < warps - 1) runs::work(c).split(tile)[r] = taken;
      }
    }
    if (gridDim.x == 1 && threadIdx.x == 0) *runs::work(c).broken(c.pass) = 0;
    block_barrier();
    if (warp > 0 && begin > 0 && found[warp - 1][r] > taken) atomic_or<relaxed>(runs::work(c).broken(c.pass), 1u);
  }
  template <class Call>
  static KM_INL void by_threads(const Call& c) {
    __shared__ i64 found[threads][merged_runs];
    const Less less(c.captures);
    const i64 tile = (i64)blockIdx.x * (threads - 1) + threadIdx.x;
    i64 taken[merged_runs] = {0, 0, 0, 0}, begin = 0;
    if (tile < c.pass_tiles) {
      const runs at(c, tile);
      const S* run[merged_runs];
      KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) run[r] = (const S*)runs::keys(c, r) + at.offset(r);
      begin = at.begin;
      search(run, at.length, begin, c.elements > long_from, less, taken);
      if (threadIdx.x < threads - 1)
        KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) runs::work(c).split(tile)[r] = taken[r];
    }
    KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) found[threadIdx.x][r] = taken[r];
    if (gridDim.x == 1 && threadIdx.x == 0) *runs::work(c).broken(c.pass) = 0;  // else launches before have done that
    block_barrier();
    // The tile before this one is of the same runs unless this is their first.
    if (threadIdx.x > 0 && begin > 0) {
      bool fits = true;
      KM_UNROLL_ALL for (int r = 0; r < merged_runs; r++) fits &= found[threadIdx.x - 1][r] <= taken[r];
      if (!fits) atomic_or<relaxed>(runs::work(c).broken(c.pass), 1u);
    }
  }
};

// Before the splits of a call that sorts no tiles: nothing has contradicted itself yet.
template <class Runs>
struct merge_begin {
  template <class Call>
  static KM_INL void run(const Call& c) {
    if (threadIdx.x < merge_work::passes) *Runs::work(c).broken(threadIdx.x) = 0;
  }
};

// ---- tiles ---------------------------------------------------------------------------------------------------------------------

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
    const int tid = (int)threadIdx.x, packets = ((uptr)to & 15) ? 0 : count * size / 16;
    _Pragma("unroll 4") for (int i = tid; i < packets; i += threads) store_packet(to + 16 * i, load_packet(from + 16 * i));
    _Pragma("unroll 4") for (int i = packets * 16 / size + tid; i < count; i += threads) ((S*)to)[i] = ((const S*)from)[i];
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
      if (other >= 0 && other < count && lane < count && (upper ? less(own, seen) : less(seen, own))) own = seen, place = seen_place;
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
    const i64 row = blockIdx.x / c.tiles, first = (blockIdx.x - row * c.tiles) * elements, start = row * c.shape[1] + first;
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
    if (tid < odd) exchange(rooms.keys(1) + mine * size, rooms.places(1) + mine, rooms.keys(0) + shift + mine * size, mine, less);
    if (valid % items && tid / warp_size == odd / warp_size) {
      const int at = odd * items;
      exchange_lanes(rooms.keys(1) + at * size, rooms.places(1) + at, rooms.keys(0) + shift + at * size, at, valid - at, less);
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
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) base::pay(c, c.data[3], start + j, (Payload)(first + places[j]));
    } else if constexpr (elements * sizeof(Payload) <= base::bytes) {  // through the memory that elements have left
      Payload* held = (Payload*)rooms.keys(1);
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) held[j] = ((const Payload*)c.data[1])[start + j];
      block_barrier();
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) base::pay(c, c.data[3], start + j, held[places[j]]);
    } else {
      _Pragma("unroll 4") for (int j = tid; j < valid; j += threads) base::pay(c, c.data[3], start + j, ((const Payload*)c.data[1])[start + places[j]]);
    }
  }
};

// ---- passes ---------------------------------------------------------------------------------------------------------------------

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
    i64 low, high;
    if (*runs::work(c).broken(c.pass)) {  // nothing is merged but within tiles
      low = clamp(at.begin - before, 0, length), high = clamp(end - before, 0, length);
    } else {
      low = runs::work(c).split(blockIdx.x)[r];
      high = end == at.total ? length : runs::work(c).split(blockIdx.x + 1)[r];
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
          base::template bring<Payload>(rooms.keys(1) + to, run, told.count[r], low, low + runs::elements(c, r) * item, &payload_word);
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
