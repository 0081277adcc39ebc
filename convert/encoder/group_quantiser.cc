#include "convert/encoder/group_quantiser.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "container/core/half.h"

namespace waste::convert {

namespace {

struct Trial {
  std::uint16_t scale = 0;
  std::array<std::int8_t, kGroupSize> codes{};
  double error = 0;
  double code_energy = 0;  // sum of q^2
  double product = 0;      // sum of q w
};

struct Range {
  int low, high;
};

// Rounds w / scale to the nearest code and sums up what a least-squares refit of the scale needs.
Trial try_scale(std::span<const float> w, std::uint16_t scale, Range range) {
  Trial trial;
  trial.scale = scale;
  const float s = half_to_float(scale);
  const float inverse = s != 0 ? 1 / s : 0;
  for (std::size_t i = 0; i < w.size(); i++) {
    const float q = std::clamp(std::nearbyint(w[i] * inverse), static_cast<float>(range.low),
                               static_cast<float>(range.high));
    const double rest = static_cast<double>(w[i]) - static_cast<double>(q) * s;
    trial.codes[i] = static_cast<std::int8_t>(q);
    trial.error += rest * rest;
    trial.code_energy += static_cast<double>(q) * q;
    trial.product += static_cast<double>(q) * w[i];
  }
  return trial;
}

Trial search(std::span<const float> w, GroupFormat format) {
  const Range range = format == GroupFormat::Q4G ? Range{-8, 7} : Range{-128, 127};
  static constexpr std::array<float, 4> kDivisors4{7, 8, 9, 10};
  static constexpr std::array<float, 2> kDivisors8{127, 128};
  const std::span<const float> divisors =
      format == GroupFormat::Q4G ? std::span<const float>(kDivisors4) : std::span<const float>(kDivisors8);
  float amax = 0;
  for (const float value : w) amax = std::max(amax, std::fabs(value));
  Trial best = try_scale(w, 0, range);
  for (const float divisor : divisors) {
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint16_t scale = float_to_half(sign * amax / divisor);
      if (!half_is_finite(scale)) continue;
      const Trial trial = try_scale(w, scale, range);
      if (trial.error < best.error) best = trial;
    }
  }
  for (int refit = 0; refit < 3 && best.code_energy > 0; refit++) {
    const std::uint16_t scale = float_to_half(static_cast<float>(best.product / best.code_energy));
    if (!half_is_finite(scale)) break;
    const Trial trial = try_scale(w, scale, range);
    if (!(trial.error < best.error)) break;
    best = trial;
  }
  return best;
}

}  // namespace

void quantise_rows(GroupFormat format, std::span<const float> w, std::size_t rows, std::size_t cols,
                   std::span<std::uint8_t> codes, std::span<std::uint16_t> scales, ErrorSums& sums) {
  const std::size_t groups = row_groups(cols);
  std::uint8_t* out = codes.data();
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t g = 0; g < groups; g++) {
      const auto group = w.subspan(r * cols + g * kGroupSize, std::min(kGroupSize, cols - g * kGroupSize));
      const Trial best = search(group, format);
      scales[r * groups + g] = best.scale;
      sums.error += best.error;
      for (const float value : group) sums.energy += static_cast<double>(value) * value;
      for (std::size_t i = 0; i < kGroupSize; i++) {
        if (format == GroupFormat::Q8G) {
          *out++ = static_cast<std::uint8_t>(best.codes[i]);
        } else if (i % 2 == 0) {
          *out++ = static_cast<std::uint8_t>((best.codes[i] + 8) | (best.codes[i + 1] + 8) << 4);
        }
      }
    }
  }
}

}  // namespace waste::convert
