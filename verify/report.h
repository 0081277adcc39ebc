// How findings read, for people and as JSON; and the progress display of everything that walks through a
// container.
#pragma once

#include <string>

#include "cli/cli.h"
#include "container/core/json.h"
#include "container/core/rate.h"
#include "verify/check.h"

namespace waste::verify {

/// "experts-L3.bin: expert 7 of layer 3 (offset 86847488, 12406784 bytes): crc32: ...; tokens that ...".
std::string finding_text(const ContainerMap& map, const Finding& finding);

/// The object that SCHEMA.md calls a finding.
Json finding_json(const ContainerMap& map, const Finding& finding);

/// Bytes done, rate and time left on a progress line. Calls from one thread at a time.
class ByteProgress {
 public:
  ByteProgress(std::string verb, bool quiet) : verb_(std::move(verb)), line_(quiet) {}
  void show(std::uint64_t done, std::uint64_t total);
  cli::ProgressLine& line() { return line_; }

 private:
  std::string verb_;
  cli::ProgressLine line_;
  RateMeter rate_;
  bool started_ = false;
};

}  // namespace waste::verify
