#pragma once

#include <cstdint>

// `x` holds `rows` rows of 2 * width, `out` rows of width: out = silu(left half) * right half.
void silu_and_mul_on_cpu(const float* x, float* out, std::int64_t rows, std::int64_t width);
int silu_and_mul_on_cuda(const float* x, float* out, std::int64_t rows, std::int64_t width, void* stream);
