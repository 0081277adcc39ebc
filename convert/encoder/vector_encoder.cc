#include "convert/encoder/vector_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
  encode_columns(x, rows, cols, 0, vectors, indices);
}

void VectorEncoder::encode_columns(const float* x, std::size_t rows, std::size_t cols, std::size_t first,
                                   std::size_t last, std::uint8_t* indices) const {
  // The eight columns of a vector have one set of weights in every row: weigh books and vectors by their
  // roots and nothing else changes. Divided by the mean of the eight, which decides nothing within a vector,
  // they keep the scores in the range for which the beam's margins were measured and that its integers hold.
  const std::size_t vectors = cols / kVectorDim;
  const std::size_t stages = tables_.stages();
  BookTables weighted(books_, {}, beam_.width > 1);
  std::vector<float> panel(rows * kVectorDim);
  std::vector<std::uint8_t> found(rows * stages);
  for (std::size_t v = first; v < last; v++) {
    const float* const weights = importance_.data() + v * kVectorDim;
    const float mean = std::accumulate(weights, weights + kVectorDim, 0.0f) / kVectorDim;
    std::array<float, kVectorDim> root;
    for (int d = 0; d < kVectorDim; d++) root[d] = std::sqrt(weights[d] / mean);
    weighted.fill(books_, root);
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
