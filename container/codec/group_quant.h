// Q4G and Q8G: integers with one f16 scale for each group of 128 columns of a row.
#pragma once

#include <cstdint>
#include <span>

#include "container/format/types.h"

namespace waste {

/// Bytes of one row's codes (padding columns included) and of its scales.
constexpr std::uint64_t group_row_bytes(TensorFormat format, std::uint64_t cols) {
  const std::uint64_t padded = (cols + kQuantGroup - 1) / kQuantGroup * kQuantGroup;
  return format == TensorFormat::Q4G ? padded / 2 : padded;
}
constexpr std::uint64_t group_row_scale_bytes(std::uint64_t cols) {
  return (cols + kQuantGroup - 1) / kQuantGroup * 2;
}

/// Decodes `rows` rows: codes [rows][group_row_bytes], scales [rows][group_row_scale_bytes], out
/// [rows][cols]. Each value is one float32 product of an integer and a half: exact to the bit.
void decode_groups(TensorFormat format, std::uint64_t rows, std::uint64_t cols,
                   std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                   std::span<float> out);

}  // namespace waste
