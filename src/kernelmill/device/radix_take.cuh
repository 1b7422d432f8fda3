// radix_take.cuh - elements of rows in the order of their places in them, for what a radix sort does not carry along.
//
// Operands: elements, places, the elements to be written; shape is (rows, length).
#pragma once
#include "radix.cuh"

namespace km {

template <int Bytes, class Word, class Place>
struct radix_take {
  static constexpr int threads = 256, at_once = 4;
  static constexpr int words = Bytes / (int)sizeof(Word);

  template <class Call>
  static KM_INL void run(const Call& c) {
    const i64 low = (i64)blockIdx.x * threads * at_once + threadIdx.x, length = c.shape[1];
    const Word* from = (const Word*)c.data[0];
    Place place[at_once];
    KM_UNROLL_ALL for (int k = 0; k < at_once; k++)
      if (low + k * threads < c.elements) place[k] = ((const Place*)c.data[1])[low + k * threads];
    KM_UNROLL_ALL for (int k = 0; k < at_once; k++) {
      const i64 i = low + k * threads;
      if (i >= c.elements) continue;
      const Word* item = from + ((c.shape[0] > 1 ? i / length * length : 0) + (i64)place[k]) * words;
      Word* to = (Word*)c.data[2] + i * words;
      Word held[words];
      KM_UNROLL_ALL for (int w = 0; w < words; w++) held[w] = item[w];
      KM_UNROLL_ALL for (int w = 0; w < words; w++) to[w] = held[w];
    }
  }
};

}  // namespace km
