#include "softmax.h"

#include <cuda_runtime.h>

// One warp a row: what its lanes find is joined by exchanging with ever nearer lanes.
__global__ void softmax_kernel(const float* x, float* out, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;  // the whole warp
  x += row * width;
  out += row * width;
  float most = x[0];
  for (std::int64_t i = lane; i < width; i += 32) most = fmaxf(most, x[i]);
  for (int by = 16; by > 0; by /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, by));
  float sum = 0.0f;
  for (std::int64_t i = lane; i < width; i += 32) sum += expf(x[i] - most);
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
  for (std::int64_t i = lane; i < width; i += 32) out[i] = expf(x[i] - most) / sum;
}

// The host's half: hidden where device code is compiled by itself, as CUDA 12 from wheels does.
#ifndef __CUDACC_RTC__
int softmax_on_cuda(const float* x, float* out, std::int64_t rows, std::int64_t width, void* stream) {
  if (rows == 0 || width == 0) return cudaSuccess;  // an empty grid is an error of CUDA
  softmax_kernel<<<unsigned((rows + 3) / 4), 128, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, width);
  return cudaGetLastError();
}
#endif
