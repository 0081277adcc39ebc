#include "convert/encoder/matrix_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "container/core/half.h"
#include "convert/encoder/vector_encoder.h"

namespace waste::convert {

namespace {

constexpr float kLargestHalf = 65504;

std::uint16_t scale_to_half(double scale) {
  return float_to_half(static_cast<float>(std::clamp(scale, -double{kLargestHalf}, double{kLargestHalf})));
}

}  // namespace

struct MatrixEncoder::Impl {
  VectorEncoder encoder;
  ExpertRecipe recipe;

  struct RowResult {
    std::uint16_t scale = 0;
    double objective = 0;  // weighted error
  };

  // Encodes one row at `scale`, refits, and says what the weighted error then is.
  RowResult encode_row(std::span<const float> w, std::uint16_t scale, std::uint8_t* indices,
                       EncodeScratch& scratch) const {
    const float inverse = 1 / half_to_float(scale);
    scratch.vectors.resize(w.size());
    std::transform(w.begin(), w.end(), scratch.vectors.begin(), [&](float value) { return value * inverse; });
    encoder.encode(scratch.vectors.data(), 1, w.size(), indices);
    const RowSums sums = encoder.weighted_sums(w.data(), w.size(), indices);
    RowResult result;
    result.scale = sums.yy > 0 ? scale_to_half(sums.wy / sums.yy) : 0;
    const double s = half_to_float(result.scale);
    result.objective = sums.ww - 2 * s * sums.wy + s * s * sums.yy;
    return result;
  }
};

MatrixEncoder::MatrixEncoder(const Codebooks& books, const ExpertRecipe& recipe,
                             std::span<const float> importance)
    : impl_(std::make_unique<Impl>(VectorEncoder(books, beam_width(recipe.quality), importance), recipe)) {}
MatrixEncoder::~MatrixEncoder() = default;
MatrixEncoder::MatrixEncoder(MatrixEncoder&&) noexcept = default;
MatrixEncoder& MatrixEncoder::operator=(MatrixEncoder&&) noexcept = default;

void MatrixEncoder::encode(std::span<const float> w, std::size_t rows, std::size_t cols,
                           std::span<std::uint8_t> indices, std::span<std::uint16_t> scales, ErrorSums& sums,
                           EncodeScratch& scratch) const {
  const std::size_t row_indices = cols / kVectorDim * impl_->recipe.stages;
  scratch.indices.resize(row_indices);
  for (std::size_t r = 0; r < rows; r++) {
    const auto row = w.subspan(r * cols, cols);
    std::uint8_t* const out = indices.data() + r * row_indices;
    double energy = 0;
    float amax = 0;
    for (const float value : row) {
      energy += static_cast<double>(value) * value;
      amax = std::max(amax, std::fabs(value));
    }
    const double rms = std::sqrt(energy / static_cast<double>(cols));
    std::fill_n(out, row_indices, std::uint8_t{0});
    scales[r] = 0;
    double best = energy;
    // One scale for all serves rows with outliers badly (30% error): there, larger ones compete.
    static constexpr std::array<double, 6> kFactors{1, 1.3, 1.7, 2.2, 3, 4};
    const std::size_t trials = amax > 6 * rms ? kFactors.size() : 1;
    for (std::size_t t = 0; t < trials; t++) {
      const std::uint16_t scale = scale_to_half(rms * kFactors[t]);
      if (scale == 0) continue;
      const auto result = impl_->encode_row(row, scale, scratch.indices.data(), scratch);
      if (result.scale == 0 || (t > 0 && !(result.objective < best))) continue;
      best = result.objective;
      scales[r] = result.scale;
      std::copy(scratch.indices.begin(), scratch.indices.end(), out);
    }
    const RowSums plain = impl_->encoder.plain_sums(row.data(), cols, out);
    const double s = half_to_float(scales[r]);
    sums.error += plain.ww - 2 * s * plain.wy + s * s * plain.yy;
    sums.energy += energy;
  }
}

}  // namespace waste::convert
