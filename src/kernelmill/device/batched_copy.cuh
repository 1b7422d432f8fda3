// batched_copy.cuh - copies of many pieces of memory in one launch: warps take parts of a fixed size, and search for the piece
// that each is of, so that pieces of all lengths are shared out alike.
//
// Operands: what sources and destinations count from (address 0 for addresses), the first element of each piece in either,
// elements of each piece, and how many parts there are up to each piece and with it.  `unit` is the bytes of an element; a
// piece that does not lie in its array, of `from_length` or `to_length` elements (less than 0 for any), is left out.
#pragma once
#include "base.hpp"

namespace km {

struct BatchedCopyCall {
  __align__(16) char captures[16];
  char* data[6];
  i64 elements, ndim, shape[8], strides[6][8];
  char* parts;
  u32* tickets;
  i64 pieces, unit, from_length, to_length;
};

template <int Part>
struct batched_copy {
  template <class Word>
  static KM_INL void move(char* to, const char* from, i64 bytes, int lane) {
    const i64 words = bytes / (i64)sizeof(Word);
    _Pragma("unroll 4") for (i64 i = lane; i < words; i += warp_size) ((Word*)to)[i] = ((const Word*)from)[i];
    for (i64 i = words * (i64)sizeof(Word) + lane; i < bytes; i += warp_size) to[i] = from[i];
  }
  // By the widest words that both sides have in the same places; what is before the first one goes by bytes.
  static KM_INL void copy(char* to, const char* from, i64 bytes, int lane) {
    const u32 apart = (u32)((uptr)to ^ (uptr)from) & 15;
    const i64 width = apart ? (i64)(apart & (0u - apart)) : 16;
    const i64 ahead = (width - (i64)((uptr)to & (uptr)(width - 1))) & (width - 1);
    const i64 lead = ahead < bytes ? ahead : bytes;
    for (i64 i = lane; i < lead; i += warp_size) to[i] = from[i];
    to += lead, from += lead, bytes -= lead;
    if (width == 16) move<packet>(to, from, bytes, lane);
    else if (width == 8) move<u64>(to, from, bytes, lane);
    else if (width == 4) move<u32>(to, from, bytes, lane);
    else if (width == 2) move<u16>(to, from, bytes, lane);
    else move<u8>(to, from, bytes, lane);
  }

  template <class Call>
  static KM_INL void run(const Call& c) {
    const i64 *from = (const i64*)c.data[2], *to = (const i64*)c.data[3];
    const i64 *count = (const i64*)c.data[4], *ends = (const i64*)c.data[5];
    const int lane = (int)lane_id();
    const i64 warps = (i64)blockDim.x / warp_size, step = gridDim.x * warps, parts = ends[c.pieces - 1];
    _Pragma("unroll 1") for (i64 p = blockIdx.x * warps + threadIdx.x / warp_size; p < parts; p += step) {
      i64 low = 0;
      _Pragma("unroll 1") for (i64 span = c.pieces - 1; span > 0;) {
        const i64 half = span / 2;
        if (ends[low + half] <= p) low += half + 1, span -= half + 1;
        else span = half;
      }
      const i64 n = count[low], first = from[low], target = to[low];
      if (c.from_length >= 0 && (first < 0 || first > c.from_length - n)) continue;
      if (c.to_length >= 0 && (target < 0 || target > c.to_length - n)) continue;
      const i64 at = (p - (low ? ends[low - 1] : 0)) * Part, left = n * c.unit - at;
      copy(c.data[1] + target * c.unit + at, c.data[0] + first * c.unit + at, left < Part ? left : (i64)Part, lane);
    }
  }
};

}  // namespace km
