// Copies a container in one pass over the source: every extent is judged on its way, and again where it has
// landed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verify/container_map.h"

namespace waste::verify {

struct CopyResult {
  bool finished = false;
  bool reflinked = false;  // the file system shared the blocks; nothing was written
  std::uint64_t bytes = 0;
  std::uint64_t resumed_bytes = 0;    // of them, that an earlier call had copied
  std::vector<std::string> problems;  // damage in the source, by place
};

struct CopyCalls {
  std::function<bool()> stop = [] { return false; };
  std::function<void(std::uint64_t done, std::uint64_t total)> copying = [](auto, auto) {};
  std::function<void(std::uint64_t done, std::uint64_t total)> verifying = [](auto, auto) {};
  /// No sharing of blocks even where the file system can.
  bool reflink = true;
};

/// Copies the container in `source` to `destination`, which must not exist, be empty, or hold an interrupted
/// copy of the same container: a hidden state file says how far that came. (Without a seal nothing could
/// prove what an earlier call wrote, so an unsealed source is copied from the start.) Blocks are shared where
/// the file system can, else written past the page cache; holes of the source stay holes and take no room.
/// Refused for want of room, a copy leaves nothing behind. The manifest is written last, when everything else
/// has been read back and found equal. Damage in the source leaves the copy unfinished, to go on once it is
/// repaired. Error(Usage) for a destination that is something else, Error(Machine) for a full disk or one
/// that does not give back what was written.
CopyResult copy_container(const fs::path& source, const fs::path& destination, const CopyCalls& calls);

}  // namespace waste::verify
