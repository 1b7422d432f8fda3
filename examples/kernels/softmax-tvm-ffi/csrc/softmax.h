#pragma once

#include <cstdint>

// Rows of `width` elements: out = exp(x - max(x)) / sum(exp(x - max(x))).
void softmax_on_cpu(const float* x, float* out, std::int64_t rows, std::int64_t width);
int softmax_on_cuda(const float* x, float* out, std::int64_t rows, std::int64_t width, void* stream);
