// waste-convert bench: what the encoder reaches on this machine, in error and in speed.
#pragma once

#include <filesystem>
#include <vector>

#include "convert/encoder/recipe.h"

namespace waste::convert {

struct BenchOptions {
  std::filesystem::path
      source;  // measures the first MoE layer of this checkpoint too; empty: synthetic alone
  std::vector<ExpertRecipe> recipes;
  unsigned threads = 1;  // for training; encoding is timed on one core
  bool json = false;
};

/// Prints one line for every data set, recipe and SIMD path: relative error, weights a second on one core,
/// and the multiply-adds of the distance tables as a share of what the core can do. Data are Gaussian
/// weights, the same pushed through MXFP4, Student's t with row and column scales, and the checkpoint's.
int run_bench(const BenchOptions& options);

}  // namespace waste::convert
