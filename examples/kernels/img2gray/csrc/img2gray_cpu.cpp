#include "img2gray.h"

void img2gray_on_cpu(const std::uint8_t* in, std::uint8_t* out, std::int64_t height, std::int64_t width) {
  for (std::int64_t i = 0; i < height * width; ++i) {
    const std::uint8_t* pixel = in + 3 * i;
    out[i] = static_cast<std::uint8_t>((77u * pixel[0] + 150u * pixel[1] + 29u * pixel[2] + 128u) >> 8);
  }
}
