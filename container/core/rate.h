// Speed over the last seconds, from counts of work that is durable.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

namespace waste {

/// Feed it (time, total done) as work completes; it answers with the rate over its window.
/// `start` is what was already there: it never counts as speed. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(double window_seconds = 10) : window_(window_seconds) {}

  void start(double now, std::uint64_t already_done);
  void update(double now, std::uint64_t done);

  /// Units per second over the window; 0 before anything is known.
  double rate(double now) const;
  /// Seconds until `total`, or a negative number when the rate is 0.
  double eta(double now, std::uint64_t total) const;

 private:
  double window_;
  std::deque<std::pair<double, std::uint64_t>> samples_;
};

}  // namespace waste
