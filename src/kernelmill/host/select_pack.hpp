// select_pack.hpp - the elements of a block that a byte mask marks, moved together: by the
// processor's compressing instructions where there are some, else by a loop without branches, with
// the same result.  Which elements are marked, and where they go, is in select.hpp.
#pragma once
#include "base.hpp"

namespace km {

constexpr i64 pack_block = 512;  // elements of a block at most
constexpr i64 pack_slack = 64;   // bytes behind the packed elements that may be overwritten

// The marks of a block, a byte each and a bit each.
struct Marks {
  alignas(64) u8 byte[pack_block];
  u64 bits[pack_block / 64];
};

// 64 bytes of 0 and 1 as bits.
KM_INL u64 bits_of(const u8* marks) {
#if defined(__AVX512BW__)
  typedef char vector __attribute__((vector_size(64)));
  vector v;
  __builtin_memcpy(&v, marks, 64);
  return __builtin_ia32_ucmpb512_mask(v, vector{}, 4, ~0ull);  // not equal
#else
  u64 bits = 0;
  for (int k = 0; k < 8; k++) {
    u64 eight;
    __builtin_memcpy(&eight, marks + 8 * k, 8);
    bits |= ((eight * 0x0102040810204080ull) >> 56) << (8 * k);
  }
  return bits;
#endif
}

// Fills in the bits of n marks; returns how many are set.  Marks behind them become 0.
KM_HOT inline i64 count_marks(Marks& marks, i64 n) {
  const i64 whole = (n + 63) & ~(i64)63;
  for (i64 i = n; i < whole; i++) marks.byte[i] = 0;
  i64 count = 0;
  for (i64 i = 0; i < whole; i += 64) {
    marks.bits[i / 64] = bits_of(marks.byte + i);
    count += __builtin_popcountll(marks.bits[i / 64]);
  }
  return count;
}

// ---- one register of elements at a time --------------------------------------------------------

template <i64 Size> struct packer {
  static constexpr i64 lanes = 0;  // none: element by element
};
#if defined(__AVX512F__) && defined(__AVX512BW__)
template <> struct packer<4> {
  static constexpr i64 lanes = 16;
  static KM_INL void put(char* to, const char* from, u64 bits) {
    typedef int vector __attribute__((vector_size(64)));
    vector v;
    __builtin_memcpy(&v, from, 64);
    v = __builtin_ia32_compresssi512_mask(v, vector{}, (u16)bits);
    __builtin_memcpy(to, &v, 64);
  }
};
template <> struct packer<8> {
  static constexpr i64 lanes = 8;
  static KM_INL void put(char* to, const char* from, u64 bits) {
    typedef long long vector __attribute__((vector_size(64)));
    vector v;
    __builtin_memcpy(&v, from, 64);
    v = __builtin_ia32_compressdi512_mask(v, vector{}, (u8)bits);
    __builtin_memcpy(to, &v, 64);
  }
};
template <> struct packer<16> {
  static constexpr i64 lanes = 4;
  static KM_INL void put(char* to, const char* from, u64 bits) {
    constexpr u64 doubled = 0xfffcf3f0cfccc3c0ull, low = 0x3f3c33300f0c0300ull;  // 4 bits as 8
    packer<8>::put(to, from, ((bits & 8 ? doubled : low) >> (8 * (bits & 7))) & 255);
  }
};
#endif
#if defined(__AVX512VBMI2__)
template <> struct packer<1> {
  static constexpr i64 lanes = 64;
  static KM_INL void put(char* to, const char* from, u64 bits) {
    typedef char vector __attribute__((vector_size(64)));
    vector v;
    __builtin_memcpy(&v, from, 64);
    v = __builtin_ia32_compressqi512_mask(v, vector{}, bits);
    __builtin_memcpy(to, &v, 64);
  }
};
template <> struct packer<2> {
  static constexpr i64 lanes = 32;
  static KM_INL void put(char* to, const char* from, u64 bits) {
    typedef short vector __attribute__((vector_size(64)));
    vector v;
    __builtin_memcpy(&v, from, 64);
    v = __builtin_ia32_compresshi512_mask(v, vector{}, (u32)bits);
    __builtin_memcpy(to, &v, 64);
  }
};
#endif

// Packs the marked ones of n elements of so many bytes.  `to` has room for all n, and the slack.
template <i64 Size>
KM_HOT void pack(char* KM_R to, const char* KM_R from, const Marks& marks, i64 n) {
  i64 i = 0;
  if constexpr (packer<Size>::lanes > 0) {
    constexpr i64 lanes = packer<Size>::lanes;
    constexpr u64 all = lanes < 64 ? ((u64)1 << (lanes % 64)) - 1 : ~(u64)0;
    for (; i + 64 <= n; i += 64) {
      const u64 bits = marks.bits[i / 64];
      KM_UNROLL_ALL
      for (i64 k = 0; k < 64; k += lanes) {
        const u64 here = (bits >> k) & all;
        packer<Size>::put(to, from + (i + k) * Size, here);
        to += __builtin_popcountll(here) * Size;
      }
    }
  }
  for (; i < n; i++) {
    __builtin_memcpy(to, from + i * Size, Size);
    to += marks.byte[i] * Size;
  }
}

}  // namespace km
