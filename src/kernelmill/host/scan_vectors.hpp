// scan_vectors.hpp - one row of a scan in registers, for well-known operators on numbers of 4 and 8
// bytes: the tree of scan.hpp, bit for bit, with lanes side by side.  Which rows make a tile, and
// threads, are in scan.hpp.
//
// A row is 32 lanes of V neighbours.  Column v, element v of each lane, is made by transposing
// blocks of 16 bytes, which leaves the lanes of a register in another order; only what goes from
// lane to lane is brought into theirs.
#pragma once
#include "fold.hpp"

namespace km {

// Lane At::at(j) of two registers, one behind the other, in lane j.
template <class At, class V, int... J> KM_INL V lanes_by(V a, V b, indices<J...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, At::at(J)...);
#else
  typedef decltype(a == a) numbers;
  return __builtin_shuffle(a, b, numbers{At::at(J)...});
#endif
}

template <class T, int Run> struct row_registers {
  static constexpr int lanes = 32, W = KM_VECTOR_BYTES / (int)sizeof(T), G = lanes / W, V = Run;
  typedef T word __attribute__((vector_size(KM_VECTOR_BYTES)));
  typedef indices_of<W> every;
  static_assert(V * (int)sizeof(T) == 16, "a lane takes 16 bytes");

  // Neighbours of two registers in turn, those of the lower or the upper half of each block.
  template <int Step, bool Upper> struct unpack {
    static constexpr int block = 16 / (int)sizeof(T);
    static constexpr int at(int j) {
      const int in = j % block, pair = in / Step;
      return j - in + (Upper ? block / 2 : 0) + pair / 2 * Step + in % Step + (pair % 2 ? W : 0);
    }
  };
  struct to_lanes {
    static constexpr int at(int j) { return V * (j % (W / V)) + j / (W / V); }
  };
  struct to_blocks {
    static constexpr int at(int j) { return j % V * (W / V) + j / V; }
  };
  template <int D> struct up {
    static constexpr int at(int j) { return W - D + j; }
  };
  template <int D> struct keep_first {
    static constexpr int at(int j) { return j < D ? j : W + j; }
  };
  template <int Odd> struct every_second {
    static constexpr int at(int j) { return 2 * j + Odd; }
  };
  struct last {
    static constexpr int at(int) { return W - 1; }
  };
  template <class At> static KM_INL word by(word a, word b) { return lanes_by<At>(a, b, every()); }

  // Columns of W lanes from V registers of neighbours, and back.
  static KM_INL void transpose(word* x) {
    if constexpr (V == 4) {
      const word a = by<unpack<1, false>>(x[0], x[1]), b = by<unpack<1, true>>(x[0], x[1]);
      const word c = by<unpack<1, false>>(x[2], x[3]), d = by<unpack<1, true>>(x[2], x[3]);
      x[0] = by<unpack<2, false>>(a, c);
      x[1] = by<unpack<2, true>>(a, c);
      x[2] = by<unpack<2, false>>(b, d);
      x[3] = by<unpack<2, true>>(b, d);
    } else {
      const word a = by<unpack<1, false>>(x[0], x[1]), b = by<unpack<1, true>>(x[0], x[1]);
      x[0] = a;
      x[1] = b;
    }
  }

  // Lane l takes in lane l - D.
  template <int D, class Op> static KM_INL void reach(const Op& op, word (&x)[G]) {
    for (int g = G - 1; g >= 0; g--) {
      if constexpr (D >= W) {
        if (g >= D / W) x[g] = op.vec(x[g - D / W], x[g]);
      } else {
        const word made = op.vec(by<up<D>>(x[g ? g - 1 : 0], x[g]), x[g]);
        x[g] = g ? made : by<keep_first<D>>(x[g], made);
      }
    }
  }

  // Scans a row behind `before`; `from` and `to` are neighbours in memory.  Returns its total.
  template <bool Exclusive, class Op>
  static KM_INL T scan(const Op& op, const char* from, char* to, T before) {
    word x[G][V], through[G];
    for (int g = 0; g < G; g++) {
      __builtin_memcpy(x[g], from + g * V * KM_VECTOR_BYTES, sizeof x[g]);
      transpose(x[g]);
      for (int v = 1; v < V; v++) x[g][v] = op.vec(x[g][v - 1], x[g][v]);
      through[g] = by<to_lanes>(x[g][V - 1], x[g][V - 1]);
    }
    reach<1>(op, through);
    reach<2>(op, through);
    reach<4>(op, through);
    reach<8>(op, through);
    reach<16>(op, through);
    const word past = word{} + before;
    for (int g = 0; g < G; g++) {
      word left = op.vec(past, by<up<1>>(through[g ? g - 1 : 0], through[g]));
      if (g == 0) left = by<keep_first<1>>(past, left);
      left = by<to_blocks>(left, left);
      if constexpr (Exclusive) {
        for (int v = V - 1; v > 0; v--) x[g][v] = op.vec(left, x[g][v - 1]);
        x[g][0] = left;
      } else {
        for (int v = 0; v < V; v++) x[g][v] = op.vec(left, x[g][v]);
      }
      transpose(x[g]);
      __builtin_memcpy(to + g * V * KM_VECTOR_BYTES, x[g], sizeof x[g]);
    }
    return through[G - 1][W - 1];
  }

  // The totals of W rows, as adjacent pairs of lanes; row r begins at row(r).
  template <class Op, class Row> static KM_INL word totals(const Op& op, Row row) {
    word sums[lanes];
    for (int r = 0; r < W; r++) {
      const char* from = row(r);
      for (int g = 0; g < G; g++) {
        word x[V];
        __builtin_memcpy(x, from + g * V * KM_VECTOR_BYTES, sizeof x);
        transpose(x);
        for (int v = 1; v < V; v++) x[v] = op.vec(x[v - 1], x[v]);
        sums[r * G + g] = by<to_lanes>(x[V - 1], x[V - 1]);
      }
    }
    for (int count = lanes; count > 1; count /= 2)
      for (int k = 0; k < count / 2; k++)
        sums[k] = op.vec(by<every_second<0>>(sums[2 * k], sums[2 * k + 1]),
                         by<every_second<1>>(sums[2 * k], sums[2 * k + 1]));
    return sums[0];
  }
};

}  // namespace km
