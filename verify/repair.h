// Puts back what a container has lost, extent by extent, from another copy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verify/check.h"
#include "verify/source.h"

namespace waste::verify {

struct RepairResult {
  struct Failure {
    std::string place;
    std::string reason;
  };
  std::uint64_t damaged = 0;   // extents found damaged or missing
  std::uint64_t restored = 0;  // of them
  std::uint64_t restored_bytes = 0;
  std::uint64_t cut_files = 0;  // files that had grown and were cut to their size
  bool seal_restored = false;
  bool interrupted = false;
  std::vector<Failure> failures;  // extents that the source does not have either
};

struct RepairCalls {
  std::function<bool()> stop = [] { return false; };
  std::function<void(std::uint64_t done, std::uint64_t total)> checking = [](auto, auto) {};
  std::function<void(std::uint64_t done, std::uint64_t total)> restoring = [](auto, auto) {};
};

/// Checks the container in `directory` and restores every extent that is not what the seal says. The seal is
/// the container's own; if that is missing or damaged, the source's, provided that an expert record here
/// agrees with it. Bytes are compared with the seal before they are written and again, from the disk,
/// afterwards; sound extents are never written, the manifest is put back last. Killed at any instant, it
/// leaves a container that another call repairs. Without a seal on either side: Error(Data).
RepairResult repair_container(const fs::path& directory, Source& source, const RepairCalls& calls);

}  // namespace waste::verify
