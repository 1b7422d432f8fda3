// merge_segments.cuh - segments of an array sorted by one merge sort of all: elements carry the number of their segment, by
// which they are compared first.  The sort is in merge_sort.cuh.
//
//   km::segments_pack<S, Offset>::run(call)      operands: elements, offsets, the elements with their numbers
//   km::segments_unpack<S>::run(call)            operands: elements with numbers, elements
//
// What lies before the first segment or behind the last one is equal to all of its kind, and so stays where it is.  Whatever
// the offsets, no place outside is read.
#pragma once
#include "merge_sort.cuh"

namespace km {

template <class S>
struct in_segment {
  S item;
  u32 segment;  // twice the number of offsets up to the element, and 1 where a segment holds it
};

template <class Op, class T, bool Descending>
struct compared_in_segment {
  typedef in_segment<typename stored<T>::type> S;
  const compared<Op, T, Descending> less;
  KM_INL explicit compared_in_segment(const char* captures) : less(captures) {}
  KM_INL bool operator()(const S& a, const S& b) const {
    if (a.segment != b.segment) return a.segment < b.segment;
    return (a.segment & 1) && less(a.item, b.item);
  }
};

template <class S, class Offset>
struct segments_pack {
  template <class Call>
  static KM_INL void run(const Call& c) {
    const Offset* offsets = (const Offset*)c.data[1];
    const i64 count = c.tiles, step = (i64)gridDim.x * blockDim.x;  // of offsets
    _Pragma("unroll 1") for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < c.elements; i += step) {
      i64 low = 0;
      _Pragma("unroll 1") for (i64 span = count; span > 0;) {
        const i64 half = span / 2;
        if ((i64)offsets[low + half] <= i) low += half + 1, span -= half + 1;
        else span = half;
      }
      in_segment<S> made{};
      made.item = ((const S*)c.data[0])[i];
      made.segment = 2 * (u32)low + (low > 0 && low < count ? 1u : 0u);
      ((in_segment<S>*)c.data[2])[i] = made;
    }
  }
};

template <class S>
struct segments_unpack {
  template <class Call>
  static KM_INL void run(const Call& c) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    _Pragma("unroll 1") for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < c.elements; i += step)
      ((S*)c.data[1])[i] = ((const in_segment<S>*)c.data[0])[i].item;
  }
};

}  // namespace km
