// Re-hashing files on disk, several at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "download/local_folder.h"
#include "download/report.h"

namespace waste::download {

struct FileVerdict {
  enum class State { Good, Missing, Damaged };
  State state = State::Missing;
  std::string detail;  // of Damaged: what was expected and what was found
};

/// Hashes each of `entries` in the folder, on as many threads as there are CPUs, and shows progress; verdicts
/// in the order of the entries. Error(Interrupted) when asked to stop, Error(Machine) when the disk cannot be
/// read.
std::vector<FileVerdict> verify_files(const LocalFolder& folder, const std::vector<Entry>& entries,
                                      Report& report);

}  // namespace waste::download
