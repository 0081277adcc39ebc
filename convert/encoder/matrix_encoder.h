// Encodes expert matrices with given codebooks: one scale a row, `stages` indices per eight weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convert/encoder/codebooks.h"
#include "convert/encoder/recipe.h"

namespace waste::convert {

/// Memory an encode() call works in, reusable from call to call by one thread.
struct EncodeScratch {
  std::vector<float> vectors;
  std::vector<std::uint8_t> indices;
};

/// Tables prepared from one set of books. Constant after construction: any number of threads may encode at
/// once, each with its own scratch.
class MatrixEncoder {
 public:
  /// `importance` as in train_codebooks(), of the matrices' number of columns.
  MatrixEncoder(const Codebooks& books, const ExpertRecipe& recipe, std::span<const float> importance = {});
  ~MatrixEncoder();
  MatrixEncoder(MatrixEncoder&&) noexcept;
  MatrixEncoder& operator=(MatrixEncoder&&) noexcept;

  /// Encodes `w` [rows][cols], finite, cols a multiple of 8.
  /// `indices` is [rows][cols / 8][stages], `scales` one half a row: decoded weight i of vector v of row r is
  /// half(scales[r]) * sum over s of book(s)[indices[r][v][s]][i], in float32 and stage order. A row that no
  /// half can scale (all zero, or below 2^-25) gets scale 0. Adds the unweighted errors to `sums`.
  ///
  /// With importance every call builds tables for every eight columns, which takes as long as encoding about
  /// 200 rows: hand over whole matrices then. Without, any number of rows is as good.
  void encode(std::span<const float> w, std::size_t rows, std::size_t cols, std::span<std::uint8_t> indices,
              std::span<std::uint16_t> scales, ErrorSums& sums, EncodeScratch& scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace waste::convert
