#include "silu_and_mul.h"

#include <cmath>

void silu_and_mul_on_cpu(const float* x, float* out, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float *gate = x + 2 * row * width, *value = gate + width;
    for (std::int64_t i = 0; i < width; ++i) out[row * width + i] = gate[i] / (1.0f + std::exp(-gate[i])) * value[i];
  }
}
