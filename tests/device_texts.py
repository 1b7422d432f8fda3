"""CUDA texts that use the device templates; what they compute, the tests of each device compare."""

from __future__ import annotations

BLOCKS = """
#include "block.cuh"
namespace km {
struct M { u32 a, b, c, d; };
struct S3 { u8 a, b, c; };
struct Multiply {
  KM_INL M operator()(M x, M y) const {
    return M{x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
  }
};
struct Add { template <class T> KM_INL T operator()(T x, T y) const { return x + y; } };
struct Ends { KM_INL S3 operator()(S3 x, S3 y) const { return S3{x.a, y.b, u8(x.c + y.c)}; } };
template <int N> KM_INL void products(const M* in, M* total, M* up_to, M* before, int count) {
  __shared__ block_storage<M, N> storage;
  const int i = threadIdx.x;
  total[i] = block_reduce(in[i], Multiply{}, storage, count);
  M all;
  up_to[i] = block_inclusive_scan(in[i], Multiply{}, storage, &all);
  before[i] = block_exclusive_scan(in[i], M{2, 0, 0, 2}, Multiply{}, storage);
  if (i == 0) up_to[N] = all;
}
KM_EXPORT void products32(const M* i, M* t, M* u, M* b, int count) { products<32>(i, t, u, b, count); }
KM_EXPORT void products96(const M* i, M* t, M* u, M* b, int count) { products<96>(i, t, u, b, count); }
KM_EXPORT void products1024(const M* i, M* t, M* u, M* b, int count) { products<1024>(i, t, u, b, count); }
KM_EXPORT void sum(const f32* in, f32* out, int count) {
  __shared__ block_storage<f32, 256> storage;
  out[threadIdx.x] = block_reduce(in[threadIdx.x], Add{}, storage, count);
}
KM_EXPORT void ends(const S3* in, S3* out) {
  __shared__ block_storage<S3, 128> storage;
  out[threadIdx.x] = block_reduce(in[threadIdx.x], Ends{}, storage);
}
}  // namespace km
"""

ATOMICS = """
#include "prims.cuh"
#include "base.hpp"
namespace km {
template <class T> KM_INL void count(T* at) {
  atomic_add(at, T(1));
  atomic_max(at + 1, T(threadIdx.x % 100));
  atomic_min(at + 2, T(100 - threadIdx.x % 100));
}
KM_EXPORT void counts(u8* a, i16* b, i32* c, u32* d, i64* e, u64* f, f32* g, f64* h) {
  count(a), count(b), count(c), count(d), count(e), count(f), count(g), count(h);
}
// A queue between blocks: what is written before a release is seen after the acquire that reads it.
KM_EXPORT void pass_on(u32* flags, u32* values, int blocks) {
  if (threadIdx.x) return;
  const u32 me = blockIdx.x;
  u32 sum = 0;
  if (me > 0) {
    while (atomic_load<acquire>(flags + me - 1) == 0) {}
    sum = values[me - 1];
  }
  values[me] = sum + me;
  atomic_store<release>(flags + me, 1u);
}
KM_EXPORT void both(u64* words) {
  const u64 n = threadIdx.x;
  store_both(words + 2 * n, n, ~n);
  u64 a, b;
  load_both(words + 2 * n, a, b);
  store_packet_once(words + 2 * n, load_packet(words + 2 * n));
  if (b != ~a) words[0] = 99;
}
}  // namespace km
"""
