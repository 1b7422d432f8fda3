#include "rms_norm.h"

#include <cuda_runtime.h>

// The sum over a block of 256 threads, the same in each of them. The order is fixed, so results are too.
static __device__ float sum_of_block(float value) {
  __shared__ float parts[256];
  __syncthreads();  // the last sum may still be read
  parts[threadIdx.x] = value;
  for (int by = 128; by > 0; by /= 2) {
    __syncthreads();
    if (threadIdx.x < by) parts[threadIdx.x] += parts[threadIdx.x + by];
  }
  __syncthreads();
  return parts[0];
}

// One block a row.
__global__ void rms_norm_kernel(const float* x, const float* weight, float* out, float* scale, std::int64_t width,
                                float epsilon) {
  x += blockIdx.x * width;
  out += blockIdx.x * width;
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += x[i] * x[i];
  const float s = rsqrtf(sum_of_block(sum) / float(width) + epsilon);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = x[i] * s * weight[i];
  if (threadIdx.x == 0) scale[blockIdx.x] = s;
}

// One block a row.
__global__ void rms_norm_dx_kernel(const float* dy, const float* x, const float* weight, const float* scale, float* dx,
                                   std::int64_t width) {
  dy += blockIdx.x * width;
  x += blockIdx.x * width;
  dx += blockIdx.x * width;
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += dy[i] * weight[i] * x[i];
  const float s = scale[blockIdx.x], shared = sum_of_block(sum) / float(width) * s * s;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) dx[i] = s * (dy[i] * weight[i] - x[i] * shared);
}

// One thread a column: the rows are added in their order, without atomics.
__global__ void rms_norm_dweight_kernel(const float* dy, const float* x, const float* scale, float* dweight,
                                        std::int64_t rows, std::int64_t width) {
  const std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  if (i >= width) return;
  float sum = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) sum += dy[row * width + i] * x[row * width + i] * scale[row];
  dweight[i] = sum;
}

// The host's half: hidden where device code is compiled by itself, as CUDA 12 from wheels does.
#ifndef __CUDACC_RTC__
int rms_norm_on_cuda(const float* x, const float* weight, float* out, float* scale, std::int64_t rows,
                     std::int64_t width, float epsilon, void* stream) {
  if (rows == 0 || width == 0) return cudaSuccess;  // an empty grid is an error of CUDA
  rms_norm_kernel<<<unsigned(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, weight, out, scale, width, epsilon);
  return cudaGetLastError();
}

int rms_norm_backward_on_cuda(const float* dy, const float* x, const float* weight, const float* scale, float* dx,
                              float* dweight, std::int64_t rows, std::int64_t width, void* stream) {
  if (width == 0) return cudaSuccess;
  const auto queue = static_cast<cudaStream_t>(stream);
  if (rows > 0) rms_norm_dx_kernel<<<unsigned(rows), 256, 0, queue>>>(dy, x, weight, scale, dx, width);
  rms_norm_dweight_kernel<<<unsigned((width + 127) / 128), 128, 0, queue>>>(dy, x, scale, dweight, rows, width);
  return cudaGetLastError();
}
#endif
