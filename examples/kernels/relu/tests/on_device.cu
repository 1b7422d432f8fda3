#include "relu.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

// `shift` elements from the start, so that both the packets and the single elements are tried.
static int differences(int count, int shift) {
  std::vector<float> x(count + shift), found(count + shift), wanted(count + shift);
  for (int i = 0; i < count + shift; ++i) x[i] = float((i * 7919) % 101 - 50);
  relu_on_cpu(x.data() + shift, wanted.data() + shift, count);
  float *in = nullptr, *out = nullptr;
  cudaMalloc(&in, x.size() * sizeof(float));
  cudaMalloc(&out, x.size() * sizeof(float));
  cudaMemset(out, 0, x.size() * sizeof(float));
  cudaMemcpy(in, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  int wrong = relu_on_cuda(in + shift, out + shift, count, nullptr) == 0 ? 0 : 1;
  if (cudaMemcpy(found.data(), out, x.size() * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) ++wrong;
  cudaFree(in);
  cudaFree(out);
  for (int i = shift; i < count + shift; ++i) wrong += found[i] != wanted[i];
  return wrong;
}

int main() {
  int wrong = 0;
  for (int count : {0, 1, 3, 4, 1000, 4096, 4099})
    for (int shift : {0, 1}) wrong += differences(count, shift);
  std::printf("%d differences\n", wrong);
  return wrong != 0;
}
