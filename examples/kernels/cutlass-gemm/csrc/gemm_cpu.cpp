#include "gemm.h"

#include <cstring>
#include <vector>

namespace {

float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// IEEE binary16 in both directions, without the compiler's own type, which g++ has from version 12 on alone.
float wide(std::uint16_t half) {
  const std::uint32_t rest = half & 0x7fff;
  // Multiplying by 2^112 puts the exponent right, of subnormal numbers too.
  const float value = rest >= 0x7c00 ? bits_to_float(0x7f800000 | (rest & 0x3ff) << 13) : bits_to_float(rest << 13) * 0x1p112f;
  return half & 0x8000 ? -value : value;
}

std::uint16_t narrow(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return std::uint16_t(sign | 0x7e00);   // NaN
  if (magnitude >= 0x477ff000) return std::uint16_t(sign | 0x7c00);  // beyond the largest, rounded to even
  if (magnitude < 0x38800000) {                                      // subnormal: the adder rounds
    const float shifted = bits_to_float(magnitude) + 0.5f;
    std::uint32_t rounded;
    std::memcpy(&rounded, &shifted, 4);
    return std::uint16_t(sign | (rounded - 0x3f000000));
  }
  return std::uint16_t(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13));
}

}  // namespace

void gemm_on_cpu(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* c, int m, int n, int k) {
  std::vector<float> row(n), wide_b(std::size_t(k) * n);
  for (std::size_t i = 0; i < wide_b.size(); ++i) wide_b[i] = wide(b[i]);
  for (int i = 0; i < m; ++i) {
    row.assign(n, 0.0f);
    for (int p = 0; p < k; ++p) {
      const float scale = wide(a[std::size_t(i) * k + p]);
      const float* source = wide_b.data() + std::size_t(p) * n;
      for (int j = 0; j < n; ++j) row[j] += scale * source[j];
    }
    for (int j = 0; j < n; ++j) c[std::size_t(i) * n + j] = narrow(row[j]);
  }
}
