// histogram: adds to 256 bins how many elements, from 0 to 1, fall into each.  A block counts in shared memory, then adds what
// it found; an element of 1 belongs to the last bin, and what is outside to none.
constexpr int bins = 256;

extern "C" __global__ void __launch_bounds__(bins)
histogram(const float* __restrict__ x, int* __restrict__ counts, long n) {
  __shared__ int own[bins];
  own[threadIdx.x] = 0;
  __syncthreads();
  const long step = (long)gridDim.x * bins;
#pragma unroll 8
  for (long i = (long)blockIdx.x * bins + threadIdx.x; i < n; i += step) {
    const float value = x[i];
    if (value >= 0.0f && value <= 1.0f) atomicAdd(&own[min((int)(value * bins), bins - 1)], 1);
  }
  __syncthreads();
  if (own[threadIdx.x]) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
