// stream.hpp - writing finished blocks past the caches: whole 64-byte lines with non-temporal
// stores; nothing is computed. An output larger than the last-level cache then costs its own bytes
// only, not a read of every line before the write.
#pragma once
#include "base.hpp"

namespace km {

constexpr i64 line_bytes = 64;

// Copies whole lines from a cache-resident block; both addresses are multiples of 64.  A plain copy
// on other processors.
KM_INL void stream_lines(char* to, const char* from, i64 bytes) {
#if defined(__x86_64__) && defined(__AVX512F__)
  typedef long long lane __attribute__((vector_size(64), may_alias));
#elif defined(__x86_64__) && defined(__AVX__)
  typedef long long lane __attribute__((vector_size(32), may_alias));
#else
  typedef long long lane __attribute__((vector_size(16), may_alias));
#endif
#if defined(__clang__)
  for (i64 i = 0; i < bytes; i += (i64)sizeof(lane))
    __builtin_nontemporal_store(*(const lane*)(from + i), (lane*)(to + i));
#elif defined(__x86_64__)
  for (i64 i = 0; i < bytes; i += (i64)sizeof(lane)) {
#if defined(__AVX512F__)
    __builtin_ia32_movntdq512((lane*)(to + i), *(const lane*)(from + i));
#elif defined(__AVX__)
    __builtin_ia32_movntdq256((lane*)(to + i), *(const lane*)(from + i));
#else
    __builtin_ia32_movntdq((lane*)(to + i), *(const lane*)(from + i));
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

// One output's bytes on their way out.  Blocks are computed at open()'s address; adjoining blocks
// share lines, so elements whose size does not divide 64 stream as well.  Only the first and the
// last line of a run are written through the cache.
struct Stage {
  static constexpr i64 capacity = 1024;
  char* line = nullptr;  // address of block[0] in the output, a multiple of 64
  i64 fill = 0;          // bytes of the block in use
  i64 skip = 0;          // bytes at its start that belong to somebody else
  alignas(64) char block[capacity + line_bytes];

  // Where the element of address `to` is to be computed.
  KM_COLD char* open(char* to) {
    if (to != line + fill) {
      if (line) close();
      skip = fill = (i64)((uptr)to & (line_bytes - 1));
      line = to - fill;
    } else if (fill > capacity / 2) {
      flush();
    }
    return block + fill;
  }
  KM_INL i64 room() const { return capacity - fill; }

  KM_HOT void flush() {
    i64 whole = fill & ~(line_bytes - 1), from = skip ? line_bytes : 0;
    if (!whole) return;
    if (skip) __builtin_memcpy(line + skip, block + skip, (usize)(line_bytes - skip));
    stream_lines(line + from, block + from, whole - from);
    __builtin_memcpy(block, block + whole, line_bytes);
    line += whole;
    fill -= whole;
    skip = 0;
  }
  KM_COLD void close() {
    flush();
    __builtin_memcpy(line + skip, block + skip, (usize)(fill - skip));
    line = nullptr;
    fill = skip = 0;
  }
};

}  // namespace km
