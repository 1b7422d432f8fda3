#include "rms_norm.h"

#include <cmath>

void rms_norm_on_cpu(const float* x, const float* weight, float* out, float* scale, std::int64_t rows,
                     std::int64_t width, float epsilon) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, out += width) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < width; ++i) sum += double(x[i]) * x[i];
    scale[row] = float(1.0 / std::sqrt(sum / double(width) + epsilon));
    for (std::int64_t i = 0; i < width; ++i) out[i] = x[i] * scale[row] * weight[i];
  }
}

void rms_norm_backward_on_cpu(const float* dy, const float* x, const float* weight, const float* scale, float* dx,
                              float* dweight, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) dweight[i] = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row, dy += width, x += width, dx += width) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < width; ++i) sum += double(dy[i]) * weight[i] * x[i];
    const float s = scale[row], shared = float(sum / double(width)) * s * s;
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] = s * (dy[i] * weight[i] - x[i] * shared);
      dweight[i] += dy[i] * x[i] * s;
    }
  }
}
