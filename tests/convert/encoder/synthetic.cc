#include "synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "convert/encoder/random.h"

namespace waste::convert {

namespace {

constexpr std::size_t kDim = 8;

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

std::size_t nearest_entry(std::span<const double> book, const double* x) {
  std::size_t best = 0;
  double least = 1e300;
  for (std::size_t c = 0; c < book.size() / kDim; c++) {
    double distance = 0;
    for (std::size_t d = 0; d < kDim; d++)
      distance += (x[d] - book[c * kDim + d]) * (x[d] - book[c * kDim + d]);
    if (distance < least) {
      least = distance;
      best = c;
    }
  }
  return best;
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

double reference_error(std::span<const float> w, std::size_t cols, int stages, int entries,
                       std::uint64_t seed) {
  std::vector<double> rest(w.begin(), w.end());
  std::vector<double> scales;
  for (std::size_t at = 0; at < w.size(); at += cols) {
    double amax = 0;
    for (std::size_t c = 0; c < cols; c++) amax = std::max(amax, std::fabs(rest[at + c]));
    scales.push_back(amax);
    for (std::size_t c = 0; c < cols; c++) rest[at + c] /= amax;
  }
  const std::size_t count = w.size() / kDim;
  Random random(seed);
  for (int stage = 0; stage < stages; stage++) {
    std::vector<double> book(static_cast<std::size_t>(entries) * kDim);
    for (int c = 0; c < entries; c++) std::copy_n(&rest[random.below(count) * kDim], kDim, &book[c * kDim]);
    std::vector<std::size_t> nearest(count);
    for (int round = 0; round < 10; round++) {
      std::vector<double> sums(book.size());
      std::vector<double> members(entries);
      for (std::size_t v = 0; v < count; v++) {
        nearest[v] = nearest_entry(book, &rest[v * kDim]);
        members[nearest[v]]++;
        for (std::size_t d = 0; d < kDim; d++) sums[nearest[v] * kDim + d] += rest[v * kDim + d];
      }
      for (std::size_t i = 0; i < book.size(); i++) {
        if (members[i / kDim] > 0) book[i] = sums[i] / members[i / kDim];
      }
    }
    for (std::size_t v = 0; v < count; v++) {
      const std::size_t entry = nearest_entry(book, &rest[v * kDim]);
      for (std::size_t d = 0; d < kDim; d++) rest[v * kDim + d] -= book[entry * kDim + d];
    }
  }
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < w.size(); i++) {
    error += std::pow(rest[i] * scales[i / cols], 2);
    energy += std::pow(static_cast<double>(w[i]), 2);
  }
  return std::sqrt(error / energy);
}

}  // namespace waste::convert
