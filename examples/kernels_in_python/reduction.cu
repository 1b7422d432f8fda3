// reduction: adds the sum of all elements to total[0].  A thread adds elements a whole grid apart, four sums at a time; a
// warp adds its threads by shuffles, a block its warps, and one atomic addition a block the rest.
constexpr int threads = 256, warps = threads / 32;

extern "C" __global__ void __launch_bounds__(threads)
reduction(const float* __restrict__ x, float* __restrict__ total, long n) {
  __shared__ float of_warp[warps];
  const long step = (long)gridDim.x * threads;
  float part[4] = {};
  long i = (long)blockIdx.x * threads + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step)
#pragma unroll
    for (int k = 0; k < 4; ++k) part[k] += x[i + k * step];
  for (; i < n; i += step) part[0] += x[i];
  float sum = (part[0] + part[1]) + (part[2] + part[3]);
#pragma unroll
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int w = 1; w < warps; ++w) sum += of_warp[w];
    atomicAdd(total, sum);
  }
}
