#include "convert/encoder/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "convert/encoder/kernels.h"
#include "convert/encoder/kmeans.h"
#include "convert/encoder/random.h"

namespace waste::convert {

namespace {

double gaussian(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

float nearest_fp4(float value) {
  static constexpr std::array<float, 8> kValues{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const auto nearest = std::min_element(kValues.begin(), kValues.end(), [&](float a, float b) {
    return std::fabs(std::fabs(value) - a) < std::fabs(std::fabs(value) - b);
  });
  return std::copysign(*nearest, value);
}

}  // namespace

std::vector<float> gaussian_weights(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> w(count);
  for (float& value : w) value = static_cast<float>(0.02 * gaussian(random));
  return w;
}

std::vector<float> mxfp4_weights(std::size_t count, std::uint64_t seed) {
  std::vector<float> w = gaussian_weights(count, seed);
  for (std::size_t at = 0; at < w.size(); at += 32) {
    const std::span<float> block = std::span(w).subspan(at, std::min<std::size_t>(32, w.size() - at));
    float amax = 0;
    for (const float value : block) amax = std::max(amax, std::fabs(value));
    const float scale = std::ldexp(1.0f, static_cast<int>(std::floor(std::log2(amax))) - 2);
    for (float& value : block) value = nearest_fp4(value / scale) * scale;
  }
  return w;
}

std::vector<float> heavy_weights(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> column(cols);
  for (double& scale : column) scale = std::exp(0.3 * gaussian(random));
  std::vector<float> w;
  for (std::size_t r = 0; r < rows; r++) {
    const double row = 0.02 * std::exp(0.3 * gaussian(random));
    for (std::size_t c = 0; c < cols; c++) {
      double chi = 0;
      for (int degree = 0; degree < 5; degree++) chi += std::pow(gaussian(random), 2);
      w.push_back(static_cast<float>(row * column[c] * gaussian(random) / std::sqrt(chi / 5)));
    }
  }
  return w;
}

double reference_error(std::span<const float> w, std::size_t cols, const ExpertRecipe& recipe,
                       std::uint64_t seed) {
  std::vector<float> rest(w.begin(), w.end());
  std::vector<float> scales;
  for (std::size_t at = 0; at < w.size(); at += cols) {
    scales.push_back(row_stats(w.data() + at, cols).amax);
    scale_row(w.data() + at, 1 / scales.back(), cols, rest.data() + at);
  }
  Codebooks books{recipe.stages, recipe.entries, {}};
  books.values.resize(static_cast<std::size_t>(recipe.stages) * recipe.entries * kVectorDim);
  Random random(seed);
  for (int stage = 0; stage < recipe.stages; stage++) {
    train_stage(rest, books, stage, kKmeansRounds, random);
    subtract_nearest(rest, books, stage);
  }
  ErrorSums sums;
  for (std::size_t i = 0; i < w.size(); i++) {
    const double error = static_cast<double>(rest[i]) * scales[i / cols];
    sums.error += error * error;
    sums.energy += static_cast<double>(w[i]) * w[i];
  }
  return sums.relative();
}

}  // namespace waste::convert
