// Weights that behave like a model's, made from a seed, and the recipe every result is compared with: for the
// benchmark and the tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/encoder/recipe.h"

namespace waste::convert {

/// Gaussian, pushed through MXFP4 (blocks of 32, power-of-two scales): what released experts look like.
std::vector<float> mxfp4_weights(std::size_t count, std::uint64_t seed);
std::vector<float> gaussian_weights(std::size_t count, std::uint64_t seed);
/// Student's t with 5 degrees of freedom, with log-normal row and column scales of 0.3.
std::vector<float> heavy_weights(std::size_t rows, std::size_t cols, std::uint64_t seed);

/// The relative error of the recipe that converters in the wild use, trained on `w` itself: rows scaled by their
/// largest absolute value, plain k-means stages, greedy codes.
double reference_error(std::span<const float> w, std::size_t cols, const ExpertRecipe& recipe,
                       std::uint64_t seed);

}  // namespace waste::convert
