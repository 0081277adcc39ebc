// What one run is asked to do, and the part of it that decides the container's bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "container/format/types.h"
#include "convert/encoder/recipe.h"

namespace waste::convert {

enum class Reclaim { Off, Dry, On };

/// Two runs with the same source and recipe write the same bytes.
struct Recipe {
  ExpertQuant experts;
  TensorFormat trunk = TensorFormat::Q4G;  // of what trunk_format() does not keep at 8 bits
  Quality quality = Quality::Normal;
  std::uint64_t codebook_sample = 0;  // vectors of eight weights a codebook set is trained on
};

struct Options {
  std::filesystem::path source;
  std::filesystem::path out;
  Recipe recipe;
  std::filesystem::path importance;               // empty: unweighted
  std::optional<std::set<std::uint32_t>> layers;  // MoE layers to convert; the container stays unpublished
  bool probe = false;                             // the first MoE layer and nothing else
  Reclaim reclaim = Reclaim::Off;
  unsigned threads = 1;
  std::uint64_t memory = 0;  // ceiling in bytes; 0: what the machine allows
  bool dry_run = false;
  bool json = false;
  bool quiet = false;

  /// Whether this run is meant to end with a published container.
  bool whole() const { return !layers && !probe; }
};

}  // namespace waste::convert
