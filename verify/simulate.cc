#include "verify/simulate.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "container/footprint/cache_policy.h"

namespace waste::verify {

namespace {

// Counts marks below a position; add and count are O(log n).
class Fenwick {
 public:
  explicit Fenwick(std::size_t size) : sums_(size + 1, 0) {}
  void add(std::size_t at, std::int32_t delta) {
    for (++at; at < sums_.size(); at += at & (~at + 1)) sums_[at] += delta;
  }
  std::int32_t count_below(std::size_t at) const {
    std::int32_t sum = 0;
    for (; at > 0; at &= at - 1) sum += sums_[at];
    return sum;
  }

 private:
  std::vector<std::int32_t> sums_;
};

constexpr std::uint32_t kNever = 0xFFFFFFFF;

}  // namespace

LruCurve::LruCurve(const std::vector<std::uint32_t>& requests, std::size_t experts) : hits_(experts + 1, 0) {
  std::vector<std::uint32_t> last(experts, kNever);
  Fenwick latest(requests.size());  // marks the latest request of every expert
  std::int32_t distinct = 0;
  for (std::size_t now = 0; now < requests.size(); ++now) {
    std::uint32_t& before = last[requests[now]];
    if (before != kNever) {
      const std::int32_t newer = distinct - latest.count_below(before + 1);
      ++hits_[static_cast<std::size_t>(newer) + 1];
      latest.add(before, -1);
    } else {
      ++distinct;
    }
    latest.add(now, 1);
    before = static_cast<std::uint32_t>(now);
  }
  std::partial_sum(hits_.begin(), hits_.end(), hits_.begin());
}

std::uint64_t LruCurve::hits(std::uint64_t capacity) const {
  return hits_[std::min<std::uint64_t>(capacity, hits_.size() - 1)];
}

Belady::Belady(const Trace& trace) : trace_(trace), next_(trace.requests.size()) {
  std::vector<std::uint32_t> next(trace.experts.size(), static_cast<std::uint32_t>(trace.requests.size()));
  for (std::size_t i = trace.requests.size(); i-- > 0;) {
    next_[i] = std::exchange(next[trace.requests[i]], static_cast<std::uint32_t>(i));
  }
}

std::uint64_t Belady::hits(std::uint64_t capacity) const {
  if (capacity == 0) return 0;
  // The furthest next request is on top. A hit changes an expert's next request, so an entry is stale unless
  // `due` still agrees with it; stale entries are skipped when they surface.
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>> furthest;
  std::vector<std::uint32_t> due(trace_.experts.size(), kNever);  // kNever: not in the cache
  std::uint64_t held = 0;
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < trace_.requests.size(); ++i) {
    const std::uint32_t expert = trace_.requests[i];
    if (due[expert] != kNever) {
      ++hits;
    } else if (held < capacity) {
      ++held;
    } else {
      while (due[furthest.top().second] != furthest.top().first) furthest.pop();
      due[furthest.top().second] = kNever;
      furthest.pop();
    }
    due[expert] = next_[i];
    furthest.emplace(next_[i], expert);
  }
  return hits;
}

std::uint64_t lfru_hits(const Trace& trace, std::uint64_t capacity) {
  if (capacity == 0) return 0;
  const auto items = static_cast<std::uint32_t>(trace.experts.size());
  CachePolicy policy(items, static_cast<std::uint32_t>(std::min<std::uint64_t>(capacity, items)),
                     token_requests(trace));
  std::uint64_t hits = 0;
  for (const std::uint32_t expert : trace.requests) {
    hits += policy.acquire(expert).hit ? 1 : 0;
    policy.release(expert);
  }
  return hits;
}

std::uint64_t pinned_lru_hits(const Trace& trace, std::uint64_t capacity) {
  std::vector<std::uint32_t> counts(trace.experts.size(), 0);
  for (const std::uint32_t expert : trace.requests) ++counts[expert];
  std::vector<std::uint32_t> hottest(trace.experts.size());
  std::iota(hottest.begin(), hottest.end(), 0u);
  std::stable_sort(hottest.begin(), hottest.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return counts[a] > counts[b]; });
  const auto pins = std::min<std::uint64_t>(capacity / 2, hottest.size());

  std::vector<bool> pinned(trace.experts.size(), false);
  std::uint64_t hits = 0;
  for (std::uint64_t i = 0; i < pins; ++i) {
    pinned[hottest[i]] = true;
    hits += counts[hottest[i]] - 1;  // all but the request that brings it in
  }
  std::vector<std::uint32_t> rest;
  std::copy_if(trace.requests.begin(), trace.requests.end(), std::back_inserter(rest),
               [&](std::uint32_t expert) { return !pinned[expert]; });
  return hits + LruCurve(rest, trace.experts.size()).hits(capacity - pins);
}

}  // namespace waste::verify
