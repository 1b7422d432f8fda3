#include "silu_and_mul.h"

#include <cuda_runtime.h>

// One block a row, its threads over the columns.
__global__ void silu_and_mul_kernel(const float* x, float* out, std::int64_t width) {
  const float *gate = x + 2 * std::int64_t(blockIdx.x) * width, *value = gate + width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x)
    out[std::int64_t(blockIdx.x) * width + i] = gate[i] / (1.0f + expf(-gate[i])) * value[i];
}

// The host's half: hidden where device code is compiled by itself, as CUDA 12 from wheels does.
#ifndef __CUDACC_RTC__
int silu_and_mul_on_cuda(const float* x, float* out, std::int64_t rows, std::int64_t width, void* stream) {
  if (rows == 0 || width == 0) return cudaSuccess;  // an empty grid is an error of CUDA
  silu_and_mul_kernel<<<unsigned(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, width);
  return cudaGetLastError();
}
#endif
