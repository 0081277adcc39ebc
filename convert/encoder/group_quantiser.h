// The trunk's quantiser: groups of 128 weights of a row, a half scale each, integers of 4 or 8 bits.
#pragma once

#include <cstdint>
#include <span>

#include "convert/encoder/recipe.h"

namespace waste::convert {

inline constexpr std::size_t kGroupSize = 128;

enum class GroupFormat {
  Q8G,  // int8 in [-128, 127]
  Q4G,  // q + 8 in a nibble, low nibble first, q in [-8, 7]
};

/// Groups in a row of `cols` weights: the last one is padded with zeros.
constexpr std::size_t row_groups(std::size_t cols) {
  return (cols + kGroupSize - 1) / kGroupSize;
}
/// Bytes of codes in such a row.
constexpr std::size_t row_code_bytes(GroupFormat format, std::size_t cols) {
  return row_groups(cols) * (format == GroupFormat::Q4G ? kGroupSize / 2 : kGroupSize);
}

/// Quantises `w` [rows][cols], finite. `codes` is [rows][row_code_bytes], `scales` [rows][row_groups]. Each
/// group's scale is searched: plus or minus amax over a few divisors, rounded to a half, the best refined by
/// least squares. A negative scale is legal (a weight is q times scale) and lets the lone extra code -8 serve
/// the longer tail. Adds to `sums`. Thread-safe.
void quantise_rows(GroupFormat format, std::span<const float> w, std::size_t rows, std::size_t cols,
                   std::span<std::uint8_t> codes, std::span<std::uint16_t> scales, ErrorSums& sums);

}  // namespace waste::convert
