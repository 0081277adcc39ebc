// Codebooks for residual vector quantisation, and how they are trained: k-means stage by stage, then rounds
// of beam search and a joint least-squares solve for all entries of all stages at once (additive
// quantisation; Babenko and Lempitsky, CVPR 2014; Martinez et al., ECCV 2018).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/encoder/recipe.h"

namespace waste::convert {

/// `stages` books of `entries` vectors of eight, already rounded to what a half can hold.
struct Codebooks {
  int stages = 0;
  int entries = 0;
  std::vector<float> values;  // [stages][entries][8]

  std::span<const float> book(int stage) const {
    const std::size_t size = static_cast<std::size_t>(entries) * kVectorDim;
    return std::span<const float>(values).subspan(static_cast<std::size_t>(stage) * size, size);
  }
};

/// Trains the books of one (layer, matrix kind).
///
/// `samples` is [rows][cols] row-major: whole rows, unscaled, finite, drawn from as many experts as possible;
/// cols is a multiple of 8. Rows are used from the first on until training_vectors() is reached, so a caller
/// that gathers more should interleave experts. `importance`, when not empty, is the mean square of each of
/// the `cols` inputs: errors are then weighted by it. The result depends on the arguments alone: same bits on
/// every CPU and for any number of threads. Runs inside the caller's TBB arena.
Codebooks train_codebooks(std::span<const float> samples, std::size_t cols, const ExpertRecipe& recipe,
                          std::uint64_t seed, std::span<const float> importance = {});

}  // namespace waste::convert
