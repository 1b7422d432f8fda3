// merge_splits.cuh - what a merge sort on a device is of: its call and its memory, the runs that tiles are merged of, and
// where each tile begins in them.  Tiles and passes are in merge_sort.cuh.
//
//   km::merge_splits<Less, T, Shape, Runs>::run(call)      before a pass; Runs is km::row_runs or km::array_runs
//   km::merge_begin<Runs<elements>>::run(call)             before the splits of two arrays, unless one block finds them
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
    const u32 row = c.shape[0] > 1 ? (u32)tile / (u32)c.tiles : 0, inside = (u32)tile - row * (u32)c.tiles;
    const u32 group = (u32)(merged_runs * c.width / Elements);
    const i64 base = (i64)(inside / group * group) * Elements;
    width = c.width;
    low = row * c.shape[1] + base;
    begin = (i64)inside * Elements - base;
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

  // The same by a warp, which wants fewer turns: eight lanes look at elements one, two ... eight steps ahead in each run.
  // Those in order are gone by as long as no run has none left to look at, and all that may lie between them is among the
  // first.
  // Arrays of so few tiles have less than 2^31 elements.
  static KM_INL int search_by_warp(const S* run, int length, int left, const Less& less) {
    constexpr int each = warp_size / merged_runs, turns = 24;
    const int lane = (int)lane_id(), ahead = lane % each;
    int taken = 0;
    _Pragma("unroll 1") while (left > 0) {
      // As long as this, so many elements that lanes look at are among the first: turns steps, and what lies in between.
      const int far = (left + merged_runs - 1) / (turns + merged_runs - 1), step = larger(far, 1);
      const int rest = length - taken - ahead * step, size = at_most(rest, step);
      S own;
      if (size > 0) own = run[taken + ahead * step + size - 1];
      const u32 there = ballot(size > 0);
      int before = 0;
      _Pragma("unroll 8") for (int d = 1; d < warp_size; d++) {
        const S seen = shuffle_xor(own, d);
        const bool is_there = size > 0 && (there >> (lane ^ d) & 1);
        before += is_there && ((lane ^ d) < lane ? !less(own, seen) : less(seen, own));
      }
      int sure = ahead == each - 1 && rest > step ? before + 1 : far > 0 ? turns : left;
      KM_UNROLL_ALL for (int d = 1; d < warp_size; d *= 2) sure = smaller(sure, shuffle_xor(sure, d));
      int of_run = size > 0 && before < sure ? size : 0;
      KM_UNROLL_ALL for (int d = 1; d < each; d *= 2) of_run += shuffle_xor(of_run, d);
      int all = of_run;
      KM_UNROLL_ALL for (int d = each; d < warp_size; d *= 2) all += shuffle_xor(all, d);
      if (all <= 0 || all > left) {  // no order: one run goes on
        const int first = __ffs((int)there) - 1;
        all = first < 0 ? left : smaller(shuffle(size, first & (warp_size - 1)), left);
        of_run = lane / each == first / each ? all : 0;
      }
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
    i64 begin = 0, length = 0;
    int taken = 0;
    if (tile < c.pass_tiles) {
      const runs at(c, tile);
      KM_UNROLL_ALL for (int q = 0; q < merged_runs; q++)
        if (q == r) length = at.length[q];
      begin = at.begin;
      taken = search_by_warp((const S*)runs::keys(c, r) + at.offset(r), (int)length, (int)begin, less);
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

}  // namespace km
