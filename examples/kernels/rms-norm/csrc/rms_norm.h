#pragma once

#include <cstdint>

// Rows of `width` elements. scale[row] = 1 / sqrt(mean(x^2) + epsilon); out = x * scale * weight.
void rms_norm_on_cpu(const float* x, const float* weight, float* out, float* scale, std::int64_t rows,
                     std::int64_t width, float epsilon);
int rms_norm_on_cuda(const float* x, const float* weight, float* out, float* scale, std::int64_t rows,
                     std::int64_t width, float epsilon, void* stream);

// dx = scale * (dy * weight - x * scale^2 * mean(dy * weight * x)); dweight = sum over rows of dy * x * scale.
void rms_norm_backward_on_cpu(const float* dy, const float* x, const float* weight, const float* scale, float* dx,
                              float* dweight, std::int64_t rows, std::int64_t width);
int rms_norm_backward_on_cuda(const float* dy, const float* x, const float* weight, const float* scale, float* dx,
                              float* dweight, std::int64_t rows, std::int64_t width, void* stream);
