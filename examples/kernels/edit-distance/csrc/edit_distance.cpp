#include "edit_distance.h"

#include <algorithm>

// Wagner and Fischer 1974, with one row of the table.
std::int32_t edit_distance(const std::uint8_t* a, std::int64_t n, const std::uint8_t* b, std::int64_t m,
                           std::vector<std::int32_t>& row) {
  for (std::int64_t j = 0; j <= m; ++j) row[j] = static_cast<std::int32_t>(j);
  for (std::int64_t i = 1; i <= n; ++i) {
    std::int32_t diagonal = row[0];
    row[0] = static_cast<std::int32_t>(i);
    for (std::int64_t j = 1; j <= m; ++j) {
      const std::int32_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[m];
}
