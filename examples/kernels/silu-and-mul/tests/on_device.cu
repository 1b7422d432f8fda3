#include "silu_and_mul.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int rows = 5, width = 300;
  std::vector<float> x(2 * rows * width), found(rows * width), wanted(rows * width);
  for (int i = 0; i < 2 * rows * width; ++i) x[i] = float((i * 7919) % 2001 - 1000) / 100.0f;
  silu_and_mul_on_cpu(x.data(), wanted.data(), rows, width);
  float *in = nullptr, *out = nullptr;
  cudaMalloc(&in, x.size() * sizeof(float));
  cudaMalloc(&out, found.size() * sizeof(float));
  cudaMemcpy(in, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  int wrong = silu_and_mul_on_cuda(in, out, rows, width, nullptr) == 0 ? 0 : 1;
  if (cudaMemcpy(found.data(), out, found.size() * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) ++wrong;
  for (int i = 0; i < rows * width; ++i) wrong += !(std::fabs(found[i] - wanted[i]) <= 1e-5f * std::fabs(wanted[i]));
  cudaFree(in);
  cudaFree(out);
  std::printf("%d differences\n", wrong);
  return wrong != 0;
}
