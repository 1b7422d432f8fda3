#include "relu.h"

#include <cuda_runtime.h>

// Four elements a thread where the arrays are aligned to sixteen bytes; the rest one by one.
__global__ void relu_kernel(const float* x, float* out, std::int64_t packets, std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  if (i < packets) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x = v.x < 0.0f ? 0.0f : v.x;
    v.y = v.y < 0.0f ? 0.0f : v.y;
    v.z = v.z < 0.0f ? 0.0f : v.z;
    v.w = v.w < 0.0f ? 0.0f : v.w;
    reinterpret_cast<float4*>(out)[i] = v;
  }
  const std::int64_t single = 4 * packets + i;
  if (single < count) out[single] = x[single] < 0.0f ? 0.0f : x[single];
}

// The host's half: hidden where device code is compiled by itself, as CUDA 12 from wheels does.
#ifndef __CUDACC_RTC__
int relu_on_cuda(const float* x, float* out, std::int64_t count, void* stream) {
  if (count == 0) return cudaSuccess;  // an empty grid is an error of CUDA
  const bool aligned = (reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
  const std::int64_t packets = aligned ? count / 4 : 0;
  const std::int64_t rest = count - 4 * packets, threads = packets > rest ? packets : rest;
  relu_kernel<<<unsigned((threads + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, packets, count);
  return cudaGetLastError();
}
#endif
