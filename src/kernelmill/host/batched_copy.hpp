// batched_copy.hpp - copies of many pieces of memory in one call: pieces are shared out in parts of a fixed size.
//
//   km::batched_copy::run(call)
//
// Operands: addresses of sources and of destinations, bytes of each, and how many parts there are up to each piece and with
// it.  Shape is the number of pieces, flags the parts of all, times 2.
#pragma once
#include "numbered.hpp"

namespace km {

struct batched_copy {
  static constexpr i64 part = 65536;

  static KM_COLD void run(const Call* call) {
    const u64 *from = (const u64*)call->operands[0].data, *to = (const u64*)call->operands[1].data;
    const i64 *bytes = (const i64*)call->operands[2].data, *ends = (const i64*)call->operands[3].data;
    const i64 pieces = call->shape[0];
    auto body = [&](i64 begin, i64 end) {
      i64 low = 0;
      for (i64 span = pieces; span > 0;) {  // the piece that the first part is of
        const i64 half = span / 2;
        if (ends[low + half] <= begin) low += half + 1, span -= half + 1;
        else span = half;
      }
      for (i64 p = begin; p < end; p++) {
        while (ends[low] <= p) low++;
        const i64 at = (p - (low ? ends[low - 1] : 0)) * part;
        __builtin_memcpy((char*)to[low] + at, (const char*)from[low] + at, (usize)smaller(part, bytes[low] - at));
      }
    };
    for_tasks(call, call->flags >> 1, body);
  }
};

}  // namespace km
