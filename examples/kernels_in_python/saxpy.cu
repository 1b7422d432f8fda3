// saxpy: y = a * x + y.  Every thread takes elements a whole grid apart, eight at a time, so that many loads are under way.
extern "C" __global__ void __launch_bounds__(256)
saxpy(float a, const float* __restrict__ x, float* __restrict__ y, long n) {
  const long step = (long)gridDim.x * blockDim.x;
#pragma unroll 8
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = a * x[i] + y[i];
}
