// What the bindings call. Neither torch nor Python is known here, so that this compiles in an instant
// and runs wherever a pointer and a stream are.
#pragma once

#include <cstdint>

// Colours to grey: `in` holds height * width pixels of 3 bytes (red, green, blue), `out` one byte a pixel,
// (77 r + 150 g + 29 b + 128) / 256.
void img2gray_on_cpu(const std::uint8_t* in, std::uint8_t* out, std::int64_t height, std::int64_t width);

// The same on a GPU, in the order of `stream`, a cudaStream_t; returns a cudaError_t.
int img2gray_on_cuda(const std::uint8_t* in, std::uint8_t* out, std::int64_t height, std::int64_t width,
                  void* stream);
