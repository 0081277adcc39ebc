#include "container/core/rate.h"

namespace waste {

void RateMeter::start(double now, std::uint64_t already_done) {
  samples_.clear();
  samples_.emplace_back(now, already_done);
}

void RateMeter::update(double now, std::uint64_t done) {
  if (samples_.empty()) return start(now, done);
  // Samples closer than a fortieth of the window would only lengthen the queue.
  if (samples_.size() > 1 && now - samples_[samples_.size() - 2].first < window_ / 40) samples_.pop_back();
  samples_.emplace_back(now, done);
  while (samples_.size() > 2 && now - samples_[1].first >= window_) samples_.pop_front();
}

double RateMeter::rate(double now) const {
  if (samples_.size() < 2) return 0;
  const double seconds = now - samples_.front().first;
  const auto done = static_cast<double>(samples_.back().second - samples_.front().second);
  return seconds > 0 ? done / seconds : 0;
}

double RateMeter::eta(double now, std::uint64_t total) const {
  const double speed = rate(now);
  if (speed <= 0 || samples_.empty() || samples_.back().second > total) return -1;
  return static_cast<double>(total - samples_.back().second) / speed;
}

}  // namespace waste
