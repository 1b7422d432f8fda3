// softmax: each row of x of shape (rows, columns) becomes exp(x - max) / sum.  A block takes a row: one pass finds maximum
// and sum together (the sum is scaled again when the maximum grows), a second one, out of the caches, writes.
constexpr int threads = 256, warps = threads / 32;
constexpr float lowest = -3.402823466e38f;

struct Partial { float largest, sum; };

static __device__ __forceinline__ Partial merged(Partial a, Partial b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

static __device__ __forceinline__ Partial over_warp(Partial p) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2)
    p = merged(p, {__shfl_xor_sync(0xffffffffu, p.largest, offset), __shfl_xor_sync(0xffffffffu, p.sum, offset)});
  return p;
}

extern "C" __global__ void __launch_bounds__(threads)
softmax(const float* __restrict__ x, float* __restrict__ out, int columns) {
  __shared__ Partial of_warp[warps];
  const float* from = x + (long)blockIdx.x * columns;
  float* to = out + (long)blockIdx.x * columns;
  Partial p = {lowest, 0.0f};
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += threads) p = merged(p, {from[c], 1.0f});
  p = over_warp(p);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = p;
  __syncthreads();
  p = of_warp[0];
#pragma unroll
  for (int w = 1; w < warps; ++w) p = merged(p, of_warp[w]);
  const float scale = 1.0f / p.sum;
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += threads) to[c] = __expf(from[c] - p.largest) * scale;
}
