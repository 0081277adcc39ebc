// Where the time of a run goes: named counters of busy seconds, summed over threads, printed by `--perf` and
// by the benchmarks. Adding to a counter is one relaxed atomic operation.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace waste {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Nanoseconds of work of one kind. Thread-safe.
class PerfCounter {
 public:
  void add(std::chrono::nanoseconds t) {
    nanoseconds_.fetch_add(static_cast<std::uint64_t>(t.count()), std::memory_order_relaxed);
  }
  double seconds() const { return static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9; }

 private:
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// Adds its own lifetime to a counter.
class PerfTimer {
 public:
  explicit PerfTimer(PerfCounter& counter) : counter_(counter), begin_(std::chrono::steady_clock::now()) {}
  ~PerfTimer() { counter_.add(std::chrono::steady_clock::now() - begin_); }
  PerfTimer(const PerfTimer&) = delete;
  PerfTimer& operator=(const PerfTimer&) = delete;

 private:
  PerfCounter& counter_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace waste
