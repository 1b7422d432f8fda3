// tile.hpp - turning a tile of a transposed operand into rows, in the first-level cache; nothing
// else is computed.
#pragma once
#include "base.hpp"

namespace km {

constexpr i64 tile_bytes = 16384;

// Rows of a tile are adjacent in the transposed operand; four lines of them make a miss worth its
// while.
constexpr i64 tile_rows(i64 size) { return clamp(256 / size, 8, 128); }
constexpr i64 tile_columns(i64 size) {
  return clamp(tile_bytes / (tile_rows(size) * size), 8, 128);
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

// A Square of N x N elements in 16-byte registers: log2(N) rounds of interleaving row i with row i
// + N/2.
template <int Size> struct Square {
  typedef typename word<Size>::type W;
  static constexpr int N = 16 / Size;
  typedef W V __attribute__((vector_size(16)));

  template <int... K> static KM_INL void interleave(V a, V b, V& low, V& high, indices<K...>) {
#if defined(__clang__)
    low = __builtin_shufflevector(a, b, (K / 2 + K % 2 * N)...);
    high = __builtin_shufflevector(a, b, (N / 2 + K / 2 + K % 2 * N)...);
#else
    low = __builtin_shuffle(a, b, V{(W)(K / 2 + K % 2 * N)...});
    high = __builtin_shuffle(a, b, V{(W)(N / 2 + K / 2 + K % 2 * N)...});
#endif
  }
  static KM_INL void turn(char* to, i64 pitch, const char* from, i64 stride) {
    V a[N], b[N];
    KM_UNROLL_ALL
    for (int k = 0; k < N; k++) __builtin_memcpy(&a[k], from + k * stride, 16);
    KM_UNROLL_ALL
    for (int round = 1; round < N; round *= 2) {
      KM_UNROLL_ALL
      for (int k = 0; k < N / 2; k++)
        interleave(a[k], a[k + N / 2], b[2 * k], b[2 * k + 1], indices_of<N>());
      KM_UNROLL_ALL
      for (int k = 0; k < N; k++) a[k] = b[k];
    }
    KM_UNROLL_ALL
    for (int k = 0; k < N; k++) __builtin_memcpy(to + k * pitch, &a[k], 16);
  }
};

// to[r * pitch + c] = from(r, c): rows are adjacent and columns `stride` bytes apart in `from`.
template <int Size>
KM_HOT void turn(char* to, i64 pitch, const char* from, i64 stride, i64 rows, i64 columns) {
  i64 c = 0;
  if constexpr (word<Size>::turns) {
    constexpr i64 N = Square<Size>::N;
    for (; c + N <= columns; c += N) {
      i64 r = 0;
      for (; r + N <= rows; r += N)
        Square<Size>::turn(to + (r * pitch + c) * Size, pitch * Size, from + c * stride + r * Size,
                           stride);
      for (; r < rows; r++)
        for (i64 k = c; k < c + N; k++)
          __builtin_memcpy(to + (r * pitch + k) * Size, from + k * stride + r * Size, Size);
    }
  }
  for (; c < columns; c++)
    for (i64 r = 0; r < rows; r++)
      __builtin_memcpy(to + (r * pitch + c) * Size, from + c * stride + r * Size, Size);
}

// Asks for the lines of `count` pieces of `bytes` bytes each, `stride` bytes apart.
KM_HOT inline void prefetch(const char* at, i64 stride, i64 count, i64 bytes) {
  for (i64 k = 0; k < count; k++)
    for (i64 b = 0; b < bytes; b += 64) __builtin_prefetch(at + k * stride + b);
}

}  // namespace km
