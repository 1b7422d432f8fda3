#include "rms_norm.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

using Floats = std::vector<float>;

static float* upload(const Floats& values) {
  float* place = nullptr;
  cudaMalloc(&place, values.size() * sizeof(float));
  cudaMemcpy(place, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  return place;
}

static int compare(float* place, const Floats& wanted, float tolerance) {
  Floats found(wanted.size());
  int wrong = cudaMemcpy(found.data(), place, found.size() * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess;
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += !(std::fabs(found[i] - wanted[i]) <= tolerance * (1.0f + std::fabs(wanted[i])));
  cudaFree(place);
  return wrong;
}

static int differences(int rows, int width) {
  Floats x(rows * width), weight(width), dy(rows * width), out(rows * width), scale(rows), dx(rows * width);
  Floats dweight(width);
  for (int i = 0; i < rows * width; ++i) {
    x[i] = float((i * 7919) % 401 - 200) / 100.0f;
    dy[i] = float((i * 104729) % 301 - 150) / 100.0f;
  }
  for (int i = 0; i < width; ++i) weight[i] = float(i % 7) / 3.0f;
  rms_norm_on_cpu(x.data(), weight.data(), out.data(), scale.data(), rows, width, 1e-6f);
  rms_norm_backward_on_cpu(dy.data(), x.data(), weight.data(), scale.data(), dx.data(), dweight.data(), rows, width);
  float *d_x = upload(x), *d_weight = upload(weight), *d_dy = upload(dy);
  float *d_out = upload(Floats(out.size())), *d_scale = upload(Floats(rows));
  float *d_dx = upload(Floats(dx.size())), *d_dweight = upload(Floats(width));
  int wrong = rms_norm_on_cuda(d_x, d_weight, d_out, d_scale, rows, width, 1e-6f, nullptr) != 0;
  wrong += rms_norm_backward_on_cuda(d_dy, d_x, d_weight, d_scale, d_dx, d_dweight, rows, width, nullptr) != 0;
  wrong += compare(d_out, out, 1e-5f) + compare(d_scale, scale, 1e-5f);
  wrong += compare(d_dx, dx, 1e-4f) + compare(d_dweight, dweight, 1e-4f);
  for (float* place : {d_x, d_weight, d_dy}) cudaFree(place);
  return wrong;
}

int main() {
  const int wrong = differences(1, 1) + differences(3, 100) + differences(4, 700);
  std::printf("%d differences\n", wrong);
  return wrong != 0;
}
