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

/// What is wrong with the differing bytes of each side, by its seal and the checks that its bytes carry;
/// empty where nothing is.
struct Damage {
  std::string first;
  std::string second;
};

struct TensorDifference {
  std::string name;
  std::string problem;  // why there are no values: "only in the first", "shapes differ", ...; else empty
  Damage damage;
  std::optional<ValueDifference> values;
};

struct ExpertDifference {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::string problem;  // why there are no values; else empty
  Damage damage;
  std::optional<ValueDifference> values[3];  // gate, up, down; empty for experts beyond the limit a layer
};

struct DiffResult {
  bool finished = false;
  std::vector<std::string> documents;  // config keys and sidecar files that differ, in words
  std::vector<TensorDifference> tensors;
  std::vector<ExpertDifference> experts;  // by layer and expert
  std::uint64_t bytes = 0;                // compared, of each side
  std::uint64_t hole_bytes = 0;           // of them, holes on both sides, which were not read
  double seconds = 0;                     // of the comparison
  bool first_sealed = false;  // without a seal, damage shows only where a record's crc32 covers it
  bool second_sealed = false;
  bool same() const { return documents.empty() && tensors.empty() && experts.empty(); }
};

struct DiffCalls {
  std::function<bool()> stop = [] { return false; };
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = [](auto, auto) {};
  /// Of the experts that differ in a layer, how many are decoded to say by how much.
  std::uint32_t decode = 4;
};

/// Compares every byte of tensors and records in one pass over both, past the page cache, and reads again
/// only what differs: to judge each side by its own seal, and to decode it. Both must be containers whose
/// files are there in full and whose experts have the same shapes; otherwise Error(Data). A place that cannot
/// be read differs.
DiffResult diff_containers(const fs::path& a, const fs::path& b, const DiffCalls& calls);

}  // namespace waste::verify
