// Weights that behave like a model's, made from a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "convert/encoder/random.h"

namespace waste::convert {

inline double gaussian(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

inline std::vector<float> gaussian_weights(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> w(count);
  for (float& value : w) value = static_cast<float>(0.02 * gaussian(random));
  return w;
}

}  // namespace waste::convert
