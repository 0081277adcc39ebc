// Reads a container once, from end to end, and says what is wrong with it: every extent against the seal,
// every expert record against its header and crc32, sizes against the manifest, and that no scale, codebook
// value or float is infinite or NaN. (No codebook index can be out of range: the recipes' books have as many
// entries as their indices can count.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/container_map.h"

namespace waste::verify {

/// One thing that is wrong. Damage to an extent names it; a file that is missing or cut short is one finding,
/// however many extents went with it.
struct Finding {
  std::string file;
  std::optional<std::uint64_t> extent;  // index into ContainerMap::extents
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string problem;  // "crc32: expected ..., found ..."
  bool operator==(const Finding&) const = default;
};

/// How far a check has come: all extents before `next` have been read, with this outcome.
struct CheckState {
  std::uint64_t next = 0;
  std::vector<Finding> findings;
  bool operator==(const CheckState&) const = default;
};

struct CheckResult {
  bool finished = false;
  std::vector<Finding> findings;      // in order of extents, whole-file ones first
  std::vector<bool> damaged;          // [extent]: its bytes are missing or not what they were
  std::vector<Digest128> digests;     // [extent]: as read; only those that were read in this run
  std::uint64_t bytes = 0;            // of all extents
  std::uint64_t read_bytes = 0;       // in this run
  std::uint64_t uncovered_bytes = 0;  // that no checksum covers
  std::uint64_t records = 0;          // expert records in the container
  double seconds = 0;                 // of this run
  bool direct = true;                 // every file was read past the page cache
};

struct CheckCalls {
  std::function<bool()> stop = [] { return false; };
  /// From one thread at a time: bytes read so far of those there are, and the state to save.
  std::function<void(std::uint64_t done, std::uint64_t total, const std::function<CheckState()>& state)>
      progress = [](auto, auto, const auto&) {};
};

/// Damage is found, not thrown; Error means that the check itself could not run.
CheckResult check_container(const ContainerMap& map, const CheckState& from, const CheckCalls& calls);

/// Identifies what a state belongs to: seal, manifest, and the names, sizes and times of all files. A state
/// saved for another identity is of no use.
Digest128 container_identity(const ContainerMap& map);

}  // namespace waste::verify
