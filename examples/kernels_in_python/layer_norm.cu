// layer_norm: each row of x of shape (rows, columns) becomes (x - mean) / sqrt(variance + epsilon) * gain + bias.  A block
// takes a row; the mean is known before squares are added, so nothing cancels.  After the first pass the row is in cache.
constexpr int threads = 256, warps = threads / 32;

static __device__ __forceinline__ float over_block(float value, float* of_warp) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0.0f;
#pragma unroll
  for (int w = 0; w < warps; ++w) value += of_warp[w];
  return value;
}

extern "C" __global__ void __launch_bounds__(threads)
layer_norm(const float* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ bias,
           float* __restrict__ out, int columns, float epsilon) {
  __shared__ float sums[warps], squares[warps];
  const float* from = x + (long)blockIdx.x * columns;
  float* to = out + (long)blockIdx.x * columns;
  float sum = 0.0f, square = 0.0f;
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += threads) sum += from[c];
  const float mean = over_block(sum, sums) / columns;
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += threads) square += (from[c] - mean) * (from[c] - mean);
  const float scale = rsqrtf(over_block(square, squares) / columns + epsilon);
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += threads) to[c] = (from[c] - mean) * scale * gain[c] + bias[c];
}
