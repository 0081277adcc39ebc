// Finds indices for scaled rows, with or without importance of the columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/encoder/beam.h"
#include "convert/encoder/kernels.h"

namespace waste::convert {

/// What a row's scale is refitted from: sums over a row, weighted by the columns' importance.
struct RowSums {
  double ww = 0;  // w^2
  double wy = 0;  // w times decoded at scale 1
  double yy = 0;
};

/// Constant after construction; shared by threads.
class VectorEncoder {
 public:
  VectorEncoder(const Codebooks& books, int width, std::span<const float> importance);

  int stages() const { return tables_.stages(); }

  /// `x` [rows][cols] divided by the rows' scales -> indices [rows][cols / 8][stages].
  void encode(const float* x, std::size_t rows, std::size_t cols, std::uint8_t* indices) const;

  RowSums weighted_sums(const float* w, std::size_t cols, const std::uint8_t* indices) const;
  RowSums plain_sums(const float* w, std::size_t cols, const std::uint8_t* indices) const;
  /// Scaled to a mean of 1; empty for none.
  std::span<const float> importance() const { return importance_; }
  bool has_importance() const { return !importance_.empty(); }

 private:
  std::vector<float> importance_;  // scaled to a mean of 1; empty for none
  Codebooks books_;                // empty without importance
  BookTables tables_;
  Beam beam_;
};

}  // namespace waste::convert
