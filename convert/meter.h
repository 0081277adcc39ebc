// How far a run is and where its time goes.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cli.h"
#include "container/core/perf.h"
#include "container/core/rate.h"
#include "convert/encoder/recipe.h"

namespace waste::convert {

/// Busy seconds by kind of work, summed over threads.
struct StageTimes {
  PerfCounter read, decode, trunk, train, encode, write;
};

/// Drives the progress line. add() is for one thread at a time (the writing ends of the pipelines).
class Meter {
 public:
  Meter(cli::ProgressLine& line, std::uint64_t total_weights) : line_(line), total_(total_weights) {}

  /// Begins to count; `done` weights were durable before.
  void start(std::uint64_t done);
  /// `weights` more are written; `where` says of what.
  void add(std::uint64_t weights, const std::string& where, const ErrorSums& error_so_far);
  /// Weights written by this run.
  std::uint64_t written() const { return done_ - at_start_; }
  StageTimes& times() { return times_; }
  const StageTimes& times() const { return times_; }
  cli::ProgressLine& line() { return line_; }

 private:
  cli::ProgressLine& line_;
  RateMeter rate_{30};
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::uint64_t at_start_ = 0;
  StageTimes times_;
};

}  // namespace waste::convert
