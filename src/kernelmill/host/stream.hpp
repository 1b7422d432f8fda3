// stream.hpp - writing finished blocks past the caches: whole 64-byte lines with non-temporal
// stores; nothing is computed. An output larger than the last-level cache then costs its own bytes
// only, not a read of every line before the write.
#pragma once
#include "base.hpp"

namespace km {

constexpr i64 line_bytes = 64;

// Copies whole lines from a cache-resident block to a multiple of 64.  A plain copy on other
// processors.
KM_INL void stream_lines(char* to, const char* from, i64 bytes) {
#if defined(__x86_64__) && defined(__AVX512F__)
  typedef long long lane __attribute__((vector_size(64), may_alias));
#elif defined(__x86_64__) && defined(__AVX__)
  typedef long long lane __attribute__((vector_size(32), may_alias));
#else
  typedef long long lane __attribute__((vector_size(16), may_alias));
#endif
  typedef lane anywhere __attribute__((aligned(1)));
#if defined(__clang__)
  for (i64 i = 0; i < bytes; i += (i64)sizeof(lane))
    __builtin_nontemporal_store(*(const anywhere*)(from + i), (lane*)(to + i));
#elif defined(__x86_64__)
  for (i64 i = 0; i < bytes; i += (i64)sizeof(lane)) {
#if defined(__AVX512F__)
    __builtin_ia32_movntdq512((lane*)(to + i), *(const anywhere*)(from + i));
#elif defined(__AVX__)
    __builtin_ia32_movntdq256((lane*)(to + i), *(const anywhere*)(from + i));
#else
    __builtin_ia32_movntdq((lane*)(to + i), *(const anywhere*)(from + i));
#endif
  }
#else
  __builtin_memcpy(to, from, (usize)bytes);
#endif
}

// Non-temporal stores become visible to other threads only after this.
KM_INL void stream_fence() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

// Copies the first or last bytes of a line, fewer than 64.
KM_INL void copy_part(char* to, const char* from, i64 bytes) {
  if (bytes & 32) __builtin_memcpy(to, from, 32), to += 32, from += 32;
  if (bytes & 16) __builtin_memcpy(to, from, 16), to += 16, from += 16;
  if (bytes & 8) __builtin_memcpy(to, from, 8), to += 8, from += 8;
  if (bytes & 4) __builtin_memcpy(to, from, 4), to += 4, from += 4;
  if (bytes & 2) __builtin_memcpy(to, from, 2), to += 2, from += 2;
  if (bytes & 1) *to = *from;
}

// Writes the bytes from `skip` to `end` of a block past the caches.  `line`, where the block's
// first byte belongs, and the block are multiples of 64.  Lines at the ends that belong to others
// too go through the caches.
KM_HOT inline void stream_part(char* line, const char* block, i64 skip, i64 end) {
  i64 from = 0, whole = end & ~(line_bytes - 1);
  if (skip) {
    from = line_bytes;
    copy_part(line + skip, block + skip, smaller(end, from) - skip);
    if (end <= from) return;
  }
  stream_lines(line + from, block + from, whole - from);
  copy_part(line + whole, block + whole, end - whole);
}

// One output's bytes on their way out.  Blocks are computed at open()'s address; adjoining blocks
// share lines, so elements whose size does not divide 64 stream as well.
template <i64 Capacity> struct stage_of {
  static constexpr i64 capacity = Capacity;
  char* line = nullptr;  // address of block[0] in the output, a multiple of 64
  i64 fill = 0;          // bytes of the block in use
  i64 skip = 0;          // bytes at its start that belong to somebody else
  alignas(64) char block[capacity + line_bytes];

  // Where the element of address `to` is to be computed.
  KM_INL char* open(char* to) {
    if (to != line + fill) {
      stream_part(line, block, skip, fill);
      skip = fill = (i64)((uptr)to & (line_bytes - 1));
      line = to - fill;
    } else if (fill > capacity / 2) {
      i64 whole = fill & ~(line_bytes - 1);
      stream_part(line, block, skip, whole);
      __builtin_memcpy(block, block + whole, line_bytes);
      line += whole;
      fill -= whole;
      skip = 0;
    }
    return block + fill;
  }
  KM_INL i64 room() const { return capacity - fill; }
  KM_INL void close() { stream_part(line, block, skip, fill); }
};

// As much as keeps the processor's prefetching busy where memory is what takes the time.
typedef stage_of<1024> Stage;

}  // namespace km
