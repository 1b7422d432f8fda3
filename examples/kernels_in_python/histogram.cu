// histogram: adds to 256 bins how often each byte occurs.  Each block counts in shared memory, then adds what it found.
constexpr int bins = 256;

extern "C" __global__ void __launch_bounds__(bins)
histogram(const unsigned char* __restrict__ x, int* __restrict__ counts, long n) {
  __shared__ int own[bins];
  own[threadIdx.x] = 0;
  __syncthreads();
  const long step = (long)gridDim.x * bins;
#pragma unroll 8
  for (long i = (long)blockIdx.x * bins + threadIdx.x; i < n; i += step) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  if (own[threadIdx.x]) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
