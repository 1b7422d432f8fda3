// tile.hpp - turning a tile of a transposed operand into rows, in the first two caches; nothing
// else is computed.
#pragma once
#include "base.hpp"

namespace km {

// A tile is as wide as makes a row of it, which is written at once, worth its while, and lies in the
// first-level cache, or little more of arrays that no cache holds: their lines are asked for two
// tiles ahead, and the processor's own prefetching follows the rows of the source better.
constexpr i64 tile_bytes = 1 << 15;
constexpr i64 tiles_ahead = 2;
constexpr i64 tile_columns(i64 size) { return clamp(512 / size, 4, 256); }
constexpr i64 tile_rows(i64 all_sizes, i64 columns, bool streams) {
  return all_sizes == 0 ? 1 : clamp((streams ? tile_bytes : tile_bytes / 2) / (columns * all_sizes), 4, 64);
}

template <int Size> struct word {
  static constexpr bool turns = false;
};
template <> struct word<1> {
  typedef u8 type;
  static constexpr bool turns = true;
};
template <> struct word<2> {
  typedef u16 type;
  static constexpr bool turns = true;
};
template <> struct word<4> {
  typedef u32 type;
  static constexpr bool turns = true;
};
template <> struct word<8> {
  typedef u64 type;
  static constexpr bool turns = true;
};

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define KM_SHUFFLES 1
#endif
#endif

// Turns `across` source rows of N elements: lane L of a register holds N elements of row N * L + k, and log2(N) rounds
// of interleaving register k with k + N/2 turn all lanes at once.
template <int Size, int Lanes> struct Square {
  typedef typename word<Size>::type W;
  static constexpr int N = 16 / Size;
  static constexpr int lanes = Lanes;
  static constexpr int across = N * lanes;
  typedef W V __attribute__((vector_size(16 * Lanes)));
  typedef W V1 __attribute__((vector_size(16)));

  static KM_INL V1 load(const char* from) {
    V1 value;
    __builtin_memcpy(&value, from, 16);
    return value;
  }
#if defined(KM_SHUFFLES)
  template <class A, int... K> static KM_INL auto join(A a, A b, indices<K...>) {
    return __builtin_shufflevector(a, b, K...);
  }
  static KM_INL V gather(const char* from, i64 stride) {
    if constexpr (lanes == 1)
      return load(from);
    else if constexpr (lanes == 2)
      return join(load(from), load(from + N * stride), indices_of<2 * N>());
    else
      return join(join(load(from), load(from + N * stride), indices_of<2 * N>()),
                  join(load(from + 2 * N * stride), load(from + 3 * N * stride), indices_of<2 * N>()),
                  indices_of<4 * N>());
  }
  template <int... K> static KM_INL void interleave(V a, V b, V& low, V& high, indices<K...>) {
    low = __builtin_shufflevector(a, b, (K / N * N + K % N / 2 + K % 2 * across)...);
    high = __builtin_shufflevector(a, b, (K / N * N + N / 2 + K % N / 2 + K % 2 * across)...);
  }
#else
  static KM_INL V gather(const char* from, i64) { return load(from); }
  template <int... K> static KM_INL void interleave(V a, V b, V& low, V& high, indices<K...>) {
    low = __builtin_shuffle(a, b, V{(W)(K / 2 + K % 2 * N)...});
    high = __builtin_shuffle(a, b, V{(W)(N / 2 + K / 2 + K % 2 * N)...});
  }
#endif
  static KM_INL void turn(char* to, i64 pitch, const char* from, i64 stride) {
    V a[N], b[N];
    KM_UNROLL_ALL
    for (int k = 0; k < N; k++) a[k] = gather(from + k * stride, stride);
    KM_UNROLL_ALL
    for (int round = 1; round < N; round *= 2) {
      KM_UNROLL_ALL
      for (int k = 0; k < N / 2; k++)
        interleave(a[k], a[k + N / 2], b[2 * k], b[2 * k + 1], indices_of<across>());
      KM_UNROLL_ALL
      for (int k = 0; k < N; k++) a[k] = b[k];
    }
    KM_UNROLL_ALL
    for (int k = 0; k < N; k++) __builtin_memcpy(to + k * pitch, &a[k], 16 * lanes);
  }
};

// Eight source rows at a time: more of them, a power of two apart, would not fit the sets of a cache.
template <int Size> constexpr int lanes_of() {
#if defined(KM_SHUFFLES)
  return clamp(Size / 2, 1, KM_VECTOR_BYTES / 16);
#else
  return 1;
#endif
}
// Row r of a tile begins at to + r * pitch, its column c is at from + r * Size + c * stride: rows
// are adjacent in `from`, columns `stride` bytes apart.
template <int Size>
KM_COLD void turn_each(char* to, i64 pitch, const char* from, i64 stride, i64 rows, i64 columns) {
  for (i64 c = 0; c < columns; c++)
    for (i64 r = 0; r < rows; r++)
      __builtin_memcpy(to + r * pitch + c * Size, from + c * stride + r * Size, Size);
}
template <int Size, int Lanes>
KM_HOT i64 turn_squares(char* to, i64 pitch, const char* from, i64 stride, i64 rows, i64 columns) {
  typedef Square<Size, Lanes> S;
  i64 c = 0;
  for (; c + S::across <= columns; c += S::across) {
    const char* at = from + c * stride;
    i64 r = 0;
    for (; r + S::N <= rows; r += S::N) S::turn(to + r * pitch + c * Size, pitch, at + r * Size, stride);
    if (r < rows) turn_each<Size>(to + r * pitch + c * Size, pitch, at + r * Size, stride, rows - r, S::across);
  }
  return c;
}
template <int Size>
KM_COLD void turn(char* to, i64 pitch, const char* from, i64 stride, i64 rows, i64 columns) {
  i64 c = 0;
  if constexpr (word<Size>::turns) {
    c = turn_squares<Size, lanes_of<Size>()>(to, pitch, from, stride, rows, columns);
    if constexpr (lanes_of<Size>() > 1)
      c += turn_squares<Size, 1>(to + c * Size, pitch, from + c * stride, stride, rows, columns - c);
  }
  turn_each<Size>(to + c * Size, pitch, from + c * stride, stride, rows, columns - c);
}

// Asks for the lines of a row, for the second-level cache.
KM_INL void fetch_row(const char* next, i64 bytes) {
  for (i64 b = 0; b < bytes; b += 64) __builtin_prefetch(next + b, 0, 2);
}
// Asks for the lines of elements to come, while n of them are worked on: as far ahead in bytes of lines
// that are read whole, of others those of the next n.
KM_INL void fetch_strided(const char* at, i64 stride, i64 n) {
  if (stride < 0 && stride >= -8)
    fetch_row(at + n * stride - 8192, -n * stride);
  else if (stride >= 0 && stride <= 64)
    for (i64 b = 0; b < n * stride; b += 64) __builtin_prefetch(at + 4096 + b);
  else
    for (i64 i = 0; i < n; i++) __builtin_prefetch(at + (n + i) * stride);
}

}  // namespace km
