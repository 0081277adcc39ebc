// How two containers of one model differ: which files, tensors and experts, and by how much.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "container/core/file.h"

namespace waste::verify {

/// How far apart two arrays of values are.
struct ValueDifference {
  double relative = 0;  // ||a - b|| / ||a||; 0 when both are zero
  double largest = 0;   // max |a - b|
};

struct TensorDifference {
  std::string name;
  std::string problem;  // why there are no values: "only in the first", "shapes differ", ...; else empty
  std::optional<ValueDifference> values;
};

struct ExpertDifference {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::string problem;                       // a record that is damaged on one side
  std::optional<ValueDifference> values[3];  // gate, up, down; empty for experts beyond the limit a layer
};

struct DiffResult {
  bool finished = false;
  std::vector<std::string> documents;  // config keys and sidecar files that differ, in words
  std::vector<TensorDifference> tensors;
  std::vector<ExpertDifference> experts;  // by layer and expert
  std::uint64_t bytes = 0;                // compared
  bool same() const { return documents.empty() && tensors.empty() && experts.empty(); }
};

struct DiffCalls {
  std::function<bool()> stop = [] { return false; };
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = [](auto, auto) {};
  /// Of the experts that differ in a layer, how many are decoded to say by how much.
  std::uint32_t decode = 4;
};

/// Both must be readable containers whose experts have the same shapes; otherwise Error(Data).
DiffResult diff_containers(const fs::path& a, const fs::path& b, const DiffCalls& calls);

}  // namespace waste::verify
