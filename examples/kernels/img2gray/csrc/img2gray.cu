#include "img2gray.h"

#include <cuda_runtime.h>

// A grid of two dimensions, one thread a pixel.
__global__ void img2gray_kernel(const std::uint8_t* in, std::uint8_t* out, std::int64_t height, std::int64_t width) {
  const std::int64_t x = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  const std::int64_t y = blockIdx.y * std::int64_t(blockDim.y) + threadIdx.y;
  if (x >= width || y >= height) return;
  const std::uint8_t* pixel = in + 3 * (y * width + x);
  out[y * width + x] =
      static_cast<std::uint8_t>((77u * pixel[0] + 150u * pixel[1] + 29u * pixel[2] + 128u) >> 8);
}

// The host's half: hidden where device code is compiled by itself, as CUDA 12 from wheels does.
#ifndef __CUDACC_RTC__
int img2gray_on_cuda(const std::uint8_t* in, std::uint8_t* out, std::int64_t height, std::int64_t width,
                  void* stream) {
  if (height == 0 || width == 0) return cudaSuccess;  // an empty grid is an error of CUDA
  const dim3 block(32, 8);
  const dim3 grid(unsigned((width + 31) / 32), unsigned((height + 7) / 8));
  img2gray_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(in, out, height, width);
  return cudaGetLastError();
}
#endif
