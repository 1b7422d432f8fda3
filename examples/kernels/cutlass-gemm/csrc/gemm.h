#pragma once

#include <cstdint>

// c (m, n) = a (m, k) times b (k, n), row by row, float16 (as 16 bits) with sums in float32.
void gemm_on_cpu(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* c, int m, int n, int k);

// The same on a GPU, in the order of `stream`, a cudaStream_t. Returns 0, or a cutlass::Status.
int gemm_on_cuda(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* c, int m, int n, int k, void* stream);
