// Cache policies replayed over a routing trace: how often an expert that is asked for is already in memory.
// Every cache starts empty and holds whole experts; a miss always brings the expert in.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/trace.h"

namespace waste::verify {

/// Hits at every capacity at once. LRU is a stack algorithm (Mattson et al., 1970): a request hits exactly in
/// the caches larger than the number of distinct experts asked for since its last request. O(n log n) for
/// all.
class LruCurve {
 public:
  /// `requests` are indices below `experts`.
  LruCurve(const std::vector<std::uint32_t>& requests, std::size_t experts);
  std::uint64_t hits(std::uint64_t capacity) const;

 private:
  std::vector<std::uint64_t> hits_;  // [capacity], capacity 0 to the number of distinct experts
};

/// Belady's optimum (1966): evicts the expert whose next request lies furthest ahead. No policy that must
/// bring in what it misses does better, and none can know it in advance.
class Belady {
 public:
  explicit Belady(const Trace& trace);
  std::uint64_t hits(std::uint64_t capacity) const;

 private:
  const Trace& trace_;
  std::vector<std::uint32_t> next_;  // [request]: when this expert is asked for next, or the trace's length
};

/// LFRU: the very class that decides for the runtime's expert cache (container/footprint/cache_policy.h).
std::uint64_t lfru_hits(const Trace& trace, std::uint64_t capacity);

/// Half the capacity (rounded down) is kept for the experts that the whole trace asks for most, each from its
/// first request on; the rest is LRU. Like Belady it knows the future: it is what perfect pinning would give.
std::uint64_t pinned_lru_hits(const Trace& trace, std::uint64_t capacity);

}  // namespace waste::verify
