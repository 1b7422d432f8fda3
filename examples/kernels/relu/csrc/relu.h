#pragma once

#include <cstdint>

// out[i] = x[i] < 0 ? 0 : x[i] for `count` elements: NaN stays NaN.
void relu_on_cpu(const float* x, float* out, std::int64_t count);

// The same on a GPU, in the order of `stream`, a cudaStream_t; returns a cudaError_t.
int relu_on_cuda(const float* x, float* out, std::int64_t count, void* stream);
