// Plain k-means for one stage of codebooks: where training starts from.
#pragma once

#include <span>
#include <vector>

#include "convert/encoder/codebooks.h"
#include "convert/encoder/random.h"

namespace waste::convert {

inline constexpr int kKmeansRounds = 8;

/// Fills the book of `stage` by Lloyd's algorithm on `x` [count][8], starting from random vectors of it; a
/// cluster that runs empty restarts at another.
void train_stage(std::span<const float> x, Codebooks& books, int stage, int rounds, Random& random);

/// Takes from every vector the entry of `stage` nearest to it.
void subtract_nearest(std::vector<float>& x, const Codebooks& books, int stage);

}  // namespace waste::convert
