#include "convert/meter.h"

#include "container/core/text.h"

namespace waste::convert {

void Meter::start(std::uint64_t done) {
  done_ = at_start_ = done;
  rate_.start(now_seconds(), done);
}

void Meter::add(std::uint64_t weights, const std::string& where, const ErrorSums& error_so_far) {
  done_ += weights;
  const double now = now_seconds();
  rate_.update(now, done_);
  line_.show(static_cast<double>(done_) / static_cast<double>(total_), [&] {
    const double eta = rate_.eta(now, total_);
    return fmt::format("{}, {} weights/s, error {:.4f}, {}", where, format_count(rate_.rate(now)),
                       error_so_far.relative(), eta < 0 ? "ETA unknown" : "ETA " + format_duration(eta));
  });
}

}  // namespace waste::convert
