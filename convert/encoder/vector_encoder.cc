#include "convert/encoder/vector_encoder.h"

#include <algorithm>
#include <cmath>

namespace waste::convert {

namespace {

std::vector<float> normalised(std::span<const float> importance) {
  double sum = 0;
  for (const float value : importance) sum += value;
  if (!(sum > 0)) return {};
  const double mean = sum / static_cast<double>(importance.size());
  std::vector<float> out;
  // A column nobody has seen active must still decode to something near: no weight below a thousandth.
  for (const float value : importance) out.push_back(std::max(static_cast<float>(value / mean), 1e-3f));
  return out;
}

}  // namespace

VectorEncoder::VectorEncoder(const Codebooks& books, int width, std::span<const float> importance)
    : importance_(normalised(importance)), tables_(books), beam_(calibrate_beam(tables_, width)) {
  if (!importance_.empty()) books_ = books;
}

void VectorEncoder::encode(const float* x, std::size_t rows, std::size_t cols, std::uint8_t* indices) const {
  const std::size_t vectors = cols / kVectorDim;
  if (importance_.empty()) return encode_vectors(tables_, beam_, x, rows * vectors, indices);

  // The eight columns of a vector have one set of weights in every row: weigh books and vectors by their
  // roots and nothing else changes.
  const std::size_t stages = tables_.stages();
  std::vector<float> panel(rows * kVectorDim);
  std::vector<std::uint8_t> found(rows * stages);
  for (std::size_t v = 0; v < vectors; v++) {
    std::array<float, kVectorDim> root;
    for (int d = 0; d < kVectorDim; d++) root[d] = std::sqrt(importance_[v * kVectorDim + d]);
    const BookTables weighted(books_, root);
    for (std::size_t r = 0; r < rows; r++) {
      for (int d = 0; d < kVectorDim; d++) {
        panel[r * kVectorDim + d] = x[r * cols + v * kVectorDim + d] * root[d];
      }
    }
    encode_vectors(weighted, beam_, panel.data(), rows, found.data());
    for (std::size_t r = 0; r < rows; r++) {
      std::copy_n(found.data() + r * stages, stages, indices + (r * vectors + v) * stages);
    }
  }
}

}  // namespace waste::convert
