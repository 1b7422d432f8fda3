// merge_tile.cuh - merging in shared memory by a block, stable, by any operator: a thread finds where its part of a merge
// begins, and writes it element by element to other shared memory.  Sorts of arrays are in merge_sort.cuh.
//
// Elements lie at byte offsets of a piece of memory.  An operator that is no order gives some permutation: every search is
// bounded by lengths, and where the parts of neighbours do not fit, what would be merged stays in the order that it had.
#pragma once
#include "operands.cuh"
#include "warp.cuh"

namespace km {

// Threads of a block, of which the last four have nothing to do when a tile is full; elements of each, an odd number, so that
// neighbours write to different banks; blocks that share a multiprocessor; whether the copy engine brings elements.
template <int Threads, int Items, int Resident, bool Bulk>
struct merge_shape {
  static constexpr int threads = Threads, items = Items, resident = Resident, warps = Threads / warp_size;
  static constexpr int elements = (Threads - 4) * Items;
  static constexpr bool bulk = Bulk;
  static_assert(Items % 2 == 1 && Items < warp_size && elements < 65536, "an odd number of elements, 16 bits for a place");
};

// Whether the first comes before the second, for elements as they are stored.
template <class Op, class T, bool Descending>
struct compared {
  typedef typename stored<T>::type S;
  const Op op;
  KM_INL explicit compared(const char* captures) : op(captures) {}
  KM_INL bool operator()(const S& a, const S& b) const {
    const T x = widened(T(), a), y = widened(T(), b);
    return Descending ? op(y, x) : op(x, y);
  }
};

KM_INL int at_most(int x, int high) { return x < 0 ? 0 : x < high ? x : high; }

// One merge in shared memory: two runs, and the number of the first element of each, by which `places` has it, or which is
// its place; what is made goes to other memory, as numbers from `to` on.
struct merging {
  int a, na, b, nb;    // byte offsets, how many
  int a_place, b_place, to;
};

// How many elements of the first run are among the first `diagonal` of both.
template <class S, class Less>
KM_INL int first_of(const char* memory, const merging& m, int diagonal, const Less& less) {
  int low = larger(0, diagonal - m.nb), high = smaller(diagonal, m.na);
  _Pragma("unroll 1") while (low < high) {
    const int middle = (low + high) >> 1;
    const S& x = *(const S*)(memory + m.a + middle * (int)sizeof(S));
    const S& y = *(const S*)(memory + m.b + (diagonal - 1 - middle) * (int)sizeof(S));
    if (less(y, x)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Writes `count` elements of a merge from `diagonal` on, of which `begin` of the first run are before; returns how many of
// that run are before the end.
template <class S, bool Pays, class Less>
KM_INL int merge_part(const char* memory, const u16* places, char* made, u16* made_places, const merging& m, int diagonal,
                      int begin, int count, const Less& less) {
  constexpr int size = (int)sizeof(S);
  int a = m.a + begin * size, b = m.b + (diagonal - begin) * size;
  [[maybe_unused]] int a_place = m.a_place + begin, b_place = m.b_place + diagonal - begin;
  const int a_end = m.a + m.na * size, b_end = m.b + m.nb * size;
  char* to = made + (m.to + diagonal) * size;
  [[maybe_unused]] u16* to_place = made_places + m.to + diagonal;
  if (count > 0) {
    // An element that has been taken stands in until its run goes on, so that operators see nothing but elements.
    S x, y;
    if (a < a_end) x = *(const S*)(memory + a);
    if (b < b_end) y = *(const S*)(memory + b);
    if (a >= a_end) x = y;
    if (b >= b_end) y = x;
    const int a_last = a_end - size, b_last = b_end - size;
    _Pragma("unroll 4") for (int i = 0; i < count; i++) {
      const bool second = (b < b_end) & ((a >= a_end) | less(y, x));
      if constexpr (Pays) {
        const int place = second ? b_place : a_place;
        to_place[i] = places ? places[place] : (u16)place;
        b_place += second, a_place += !second;
      }
      *(S*)(to + i * size) = second ? y : x;
      const int next = (second ? b : a) + size;
      const S then = *(const S*)(memory + smaller(next, second ? b_last : a_last));
      a = second ? a : next, x = second ? x : then;
      b = second ? next : b, y = second ? then : y;
    }
  }
  return (a - m.a) / size;
}

// Where the parts of the threads of a block begin and end; each begins where the one before ended, or they are torn.  Two
// levels that follow each other take two of them.
template <int Warps>
struct part_ends {
  int begin[Warps], end[Warps], bad[Warps];
};
constexpr int no_end = -1;  // of the last part of a merge

KM_INL bool torn_in_warp(int begin, int end) {
  const int next = shuffle_down(begin, 1);
  return vote_any((int)lane_id() < warp_size - 1 && end != no_end && next != end);
}
// Ends with a barrier.
template <int Warps>
KM_INL bool torn_in_block(part_ends<Warps>& told, int rank, int begin, int end) {
  const int warp = rank / warp_size, lane = rank % warp_size;
  const bool torn = torn_in_warp(begin, end);
  if (lane == 0) told.begin[warp] = begin, told.bad[warp] = torn;
  if (lane == warp_size - 1) told.end[warp] = end;
  block_barrier();
  bool bad = false;
  if (lane < Warps) bad = told.bad[lane] != 0;
  if (lane + 1 < Warps) bad |= told.end[lane] != no_end && told.end[lane] != told.begin[lane + 1];
  return vote_any(bad);
}

// A level: the thread of a rank makes its part, number `index` of merge `m`, and everything is there behind it.  By warps, or
// by the whole block, where merges are of more threads.
template <class S, int Items, int Warps, bool Pays, class Less>
KM_INL void merge_level(const char* memory, const u16* places, char* made, u16* made_places, const merging& m, int rank,
                        int index, part_ends<Warps>& told, bool by_warps, const Less& less) {
  const int total = m.na + m.nb, diagonal = smaller(index * Items, total), count = smaller(Items, total - diagonal);
  const int begin = first_of<S>(memory, m, diagonal, less);
  const int end = merge_part<S, Pays>(memory, places, made, made_places, m, diagonal, begin, count, less);
  const int told_end = diagonal + Items < total ? end : no_end;
  const bool torn = by_warps ? torn_in_warp(begin, told_end) : torn_in_block<Warps>(told, rank, begin, told_end);
  if (KM_UNLIKELY(torn)) {
    _Pragma("unroll 1") for (int at = diagonal; at < diagonal + count; at++) {
      const bool second = at >= m.na;
      const int number = second ? at - m.na : at, place = (second ? m.b_place : m.a_place) + number;
      *(S*)(made + (m.to + at) * (int)sizeof(S)) = *(const S*)(memory + (second ? m.b : m.a) + number * (int)sizeof(S));
      if constexpr (Pays) made_places[m.to + at] = places ? places[place] : (u16)place;
    }
    if (!by_warps) block_barrier();
  }
  if (by_warps) warp_barrier();
}

}  // namespace km
