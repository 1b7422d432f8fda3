#include "relu.h"

void relu_on_cpu(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}
