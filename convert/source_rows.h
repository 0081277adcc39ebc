// Rows of a checkpoint's matrix as float32, whatever they are stored as.
#pragma once

#include <cstdint>
#include <span>

#include "convert/checkpoint.h"
#include "convert/model_map.h"

namespace waste::convert {

/// Bytes of one row of the weights and of its MXFP4 scales (0 for floats).
struct RowBytes {
  std::uint64_t weight = 0;
  std::uint64_t scale = 0;
};

RowBytes row_bytes(const MatrixSource& matrix, std::uint64_t cols);

/// Decodes `rows` rows that start at row `first` of the matrix; `weight` and `scale` are their stored bytes,
/// `out` is [rows][cols]. A value that is not finite is Error(Data) naming the tensor and its place.
void decode_rows(const MatrixSource& matrix, std::uint64_t first, std::uint64_t rows, std::uint64_t cols,
                 std::span<const std::uint8_t> weight, std::span<const std::uint8_t> scale,
                 std::span<float> out);

}  // namespace waste::convert
