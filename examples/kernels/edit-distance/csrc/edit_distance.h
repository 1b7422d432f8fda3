#pragma once

#include <cstdint>
#include <vector>

// The Levenshtein distance of two byte strings; `row` is scratch memory of at least `m + 1` elements.
std::int32_t edit_distance(const std::uint8_t* a, std::int64_t n, const std::uint8_t* b, std::int64_t m,
                           std::vector<std::int32_t>& row);
