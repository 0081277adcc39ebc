#include "convert/encoder/matrix_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "container/core/half.h"
#include "convert/encoder/vector_encoder.h"

namespace waste::convert {

namespace {

// Rows are encoded together until they hold this many vectors: enough to fill the kernels' passes, few enough
// to stay in the first-level cache's neighbourhood.
constexpr std::size_t kBlockVectors = 1024;

// A row whose largest weight is further out than this many root mean squares has its scale searched: with the
// root mean square alone such rows come out at 30% error. Larger and larger ones are tried as long as that
// helps: heavy tails put most rows of some models past the limit, and there the first trial already says no.
constexpr double kOutlier = 6;
constexpr std::array<double, 5> kOutlierFactors{1.3, 1.7, 2.2, 3, 4};

constexpr double kLargestHalf = 65504;

std::uint16_t scale_to_half(double scale) {
  return float_to_half(static_cast<float>(std::clamp(scale, -kLargestHalf, kLargestHalf)));
}

}  // namespace

struct MatrixEncoder::Impl {
  VectorEncoder encoder;
  ExpertRecipe recipe;

  Impl(VectorEncoder e, const ExpertRecipe& r) : encoder(std::move(e)), recipe(r) {}

  struct Block {
    std::span<const float> w;
    std::size_t rows, cols;
    std::span<std::uint8_t> indices;
    std::span<std::uint16_t> scales;

    std::span<const float> row(std::size_t r) const { return w.subspan(r * cols, cols); }
    std::span<std::uint8_t> row_indices(std::size_t r) const {
      const std::size_t size = indices.size() / rows;
      return indices.subspan(r * size, size);
    }
  };

  // The least-squares scale of a row for its indices, as a half.
  static std::uint16_t refit(const RowSums& sums) {
    return sums.yy > 0 ? scale_to_half(sums.wy / sums.yy) : std::uint16_t{0};
  }

  void encode_scaled(std::span<const float> row, std::uint16_t scale, float* x) const {
    // 1 / scale overflows for no half: the smallest is 2^-24.
    scale_row(row.data(), scale != 0 ? 1 / half_to_float(scale) : 0.0f, row.size(), x);
  }

  // Encodes the rows in `tried` at `factor` of their root mean squares, keeps for each what comes out if it
  // is better than what is there, and strikes those it is not. All in one call: with importance a row alone
  // would cost as much as hundreds together.
  void try_scales(const Block& block, double factor, const std::vector<double>& rms,
                  std::vector<std::size_t>& tried, std::vector<double>& errors,
                  EncodeScratch& scratch) const {
    const std::size_t row_indices = block.indices.size() / block.rows;
    std::erase_if(tried, [&](std::size_t r) { return scale_to_half(rms[r] * factor) == 0; });
    scratch.vectors.resize(std::max(scratch.vectors.size(), tried.size() * block.cols));
    scratch.indices.resize(tried.size() * row_indices);
    for (std::size_t i = 0; i < tried.size(); i++) {
      encode_scaled(block.row(tried[i]), scale_to_half(rms[tried[i]] * factor),
                    scratch.vectors.data() + i * block.cols);
    }
    encoder.encode(scratch.vectors.data(), tried.size(), block.cols, scratch.indices.data());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tried.size(); i++) {
      const std::size_t r = tried[i];
      const std::uint8_t* const found = scratch.indices.data() + i * row_indices;
      const RowSums sums = encoder.weighted_sums(block.row(r).data(), block.cols, found);
      const std::uint16_t refitted = refit(sums);
      const double error = sums.error(half_to_float(refitted));
      if (refitted == 0 || !(error < errors[r])) continue;
      errors[r] = error;
      block.scales[r] = refitted;
      std::copy_n(found, row_indices, block.row_indices(r).begin());
      tried[kept++] = r;
    }
    tried.resize(kept);
  }

  // Encodes all rows at the scales in `block.scales`, refits these, and leaves the weighted errors in
  // `errors`.
  void encode_block(const Block& block, std::vector<double>& errors, EncodeScratch& scratch) const {
    scratch.vectors.resize(block.rows * block.cols);
    for (std::size_t r = 0; r < block.rows; r++) {
      encode_scaled(block.row(r), block.scales[r], scratch.vectors.data() + r * block.cols);
    }
    encoder.encode(scratch.vectors.data(), block.rows, block.cols, block.indices.data());
    errors.resize(block.rows);
    for (std::size_t r = 0; r < block.rows; r++) {
      if (block.scales[r] == 0) continue;
      const RowSums sums =
          encoder.weighted_sums(block.row(r).data(), block.cols, block.row_indices(r).data());
      block.scales[r] = refit(sums);
      errors[r] = sums.error(half_to_float(block.scales[r]));
    }
  }

  void encode(const Block& block, ErrorSums& sums, EncodeScratch& scratch) const {
    std::vector<double> errors;
    std::vector<RowStats> stats(block.rows);
    std::vector<double> rms(block.rows);
    std::vector<std::size_t> outliers;
    for (std::size_t r = 0; r < block.rows; r++) {
      stats[r] = row_stats(block.row(r).data(), block.cols);
      rms[r] = std::sqrt(stats[r].energy / static_cast<double>(block.cols));
      block.scales[r] = scale_to_half(rms[r]);
      if (stats[r].amax > kOutlier * rms[r]) outliers.push_back(r);
    }
    encode_block(block, errors, scratch);
    if (recipe.quality == Quality::Best) encode_again(block, errors, scratch);
    for (const double factor : kOutlierFactors) {
      if (!outliers.empty()) try_scales(block, factor, rms, outliers, errors, scratch);
    }
    for (std::size_t r = 0; r < block.rows; r++) {
      const auto indices = block.row_indices(r);
      if (block.scales[r] == 0) {
        std::fill(indices.begin(), indices.end(), std::uint8_t{0});
        sums.error += stats[r].energy;
      } else if (encoder.importance().empty()) {
        sums.error += errors[r];
      } else {
        sums.error += encoder.plain_sums(block.row(r).data(), block.cols, indices.data())
                          .error(half_to_float(block.scales[r]));
      }
      sums.energy += stats[r].energy;
    }
  }

  // A second round at the refitted scales; rows it does not help stay as they are.
  void encode_again(const Block& block, std::vector<double>& errors, EncodeScratch& scratch) const {
    std::vector<std::uint8_t> indices(block.indices.size());
    std::vector<std::uint16_t> scales(block.scales.begin(), block.scales.end());
    std::vector<double> again;
    const Block second{block.w, block.rows, block.cols, indices, scales};
    encode_block(second, again, scratch);
    for (std::size_t r = 0; r < block.rows; r++) {
      if (scales[r] == 0 || !(again[r] < errors[r])) continue;
      errors[r] = again[r];
      block.scales[r] = scales[r];
      std::copy_n(second.row_indices(r).begin(), second.row_indices(r).size(), block.row_indices(r).begin());
    }
  }
};

MatrixEncoder::MatrixEncoder(const Codebooks& books, const ExpertRecipe& recipe,
                             std::span<const float> importance)
    : impl_(std::make_unique<Impl>(VectorEncoder(books, beam_width(recipe), importance), recipe)) {}
MatrixEncoder::~MatrixEncoder() = default;
MatrixEncoder::MatrixEncoder(MatrixEncoder&&) noexcept = default;
MatrixEncoder& MatrixEncoder::operator=(MatrixEncoder&&) noexcept = default;

void MatrixEncoder::encode(std::span<const float> w, std::size_t rows, std::size_t cols,
                           std::span<std::uint8_t> indices, std::span<std::uint16_t> scales, ErrorSums& sums,
                           EncodeScratch& scratch) const {
  const std::size_t vectors = cols / kVectorDim;
  const std::size_t row_indices = vectors * impl_->recipe.stages;
  const std::size_t step =
      impl_->encoder.importance().empty() ? std::max<std::size_t>(1, kBlockVectors / vectors) : rows;
  for (std::size_t r = 0; r < rows; r += step) {
    const std::size_t n = std::min(step, rows - r);
    impl_->encode({w.subspan(r * cols, n * cols), n, cols, indices.subspan(r * row_indices, n * row_indices),
                   scales.subspan(r, n)},
                  sums, scratch);
  }
}

}  // namespace waste::convert
