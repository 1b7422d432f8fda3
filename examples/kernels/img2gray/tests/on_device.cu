// The kernel against the function for the processor, without Python. `kernelmill test` runs this on the GPU, and
// where there is none on the emulator, which with --sanitize also looks for races and bounds.
#include "img2gray.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

static int differences(int height, int width) {
  const std::size_t pixels = std::size_t(height) * width;
  std::vector<std::uint8_t> image(3 * pixels), found(pixels), wanted(pixels);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>((i * 2654435761u) >> 13);
  img2gray_on_cpu(image.data(), wanted.data(), height, width);
  std::uint8_t *in = nullptr, *out = nullptr;
  cudaMalloc(&in, image.size());
  cudaMalloc(&out, found.size());
  cudaMemcpy(in, image.data(), image.size(), cudaMemcpyHostToDevice);
  int wrong = img2gray_on_cuda(in, out, height, width, nullptr) == 0 ? 0 : 1;
  if (cudaMemcpy(found.data(), out, found.size(), cudaMemcpyDeviceToHost) != cudaSuccess) ++wrong;
  cudaFree(in);
  cudaFree(out);
  for (std::size_t i = 0; i < pixels; ++i) wrong += found[i] != wanted[i];
  return wrong;
}

int main() {
  const int shapes[][2] = {{1, 1}, {7, 33}, {64, 64}, {101, 257}};
  int wrong = 0;
  for (const auto& shape : shapes) wrong += differences(shape[0], shape[1]);
  std::printf("%d differences\n", wrong);
  return wrong != 0;
}
