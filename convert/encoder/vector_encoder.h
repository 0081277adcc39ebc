// Finds indices for scaled rows, with or without importance of the columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/encoder/beam.h"
#include "convert/encoder/kernels.h"

namespace waste::convert {

/// Constant after construction; shared by threads.
class VectorEncoder {
 public:
  VectorEncoder(const Codebooks& books, int width, std::span<const float> importance);

  int stages() const { return tables_.stages(); }
  /// Scaled to a mean of 1; empty for none.
  std::span<const float> importance() const { return importance_; }

  /// `x` [rows][cols] divided by the rows' scales -> indices [rows][cols / 8][stages].
  /// With importance the tables are made anew for every eight columns: give it as many rows as there are.
  void encode(const float* x, std::size_t rows, std::size_t cols, std::uint8_t* indices) const;

  /// With importance only: of the same arguments, vectors [first, last) of every row. Ranges that do not
  /// overlap may be encoded at the same time.
  void encode_columns(const float* x, std::size_t rows, std::size_t cols, std::size_t first, std::size_t last,
                      std::uint8_t* indices) const;

  /// Of one row, weighted by importance.
  RowSums weighted_sums(const float* w, std::size_t cols, const std::uint8_t* indices) const {
    return row_sums(tables_, w, importance_.empty() ? nullptr : importance_.data(), cols, indices);
  }
  RowSums plain_sums(const float* w, std::size_t cols, const std::uint8_t* indices) const {
    return row_sums(tables_, w, nullptr, cols, indices);
  }

 private:
  std::vector<float> importance_;
  Codebooks books_;  // empty without importance
  BookTables tables_;
  Beam beam_;
};

}  // namespace waste::convert
