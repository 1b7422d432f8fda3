#include "softmax.h"

#include <algorithm>
#include <cmath>

void softmax_on_cpu(const float* x, float* out, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, out += width) {
    const float most = *std::max_element(x, x + width);
    float sum = 0.0f;
    for (std::int64_t i = 0; i < width; ++i) sum += out[i] = std::exp(x[i] - most);
    for (std::int64_t i = 0; i < width; ++i) out[i] /= sum;
  }
}
