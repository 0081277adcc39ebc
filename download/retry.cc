#include "download/retry.h"

#include <algorithm>
#include <cmath>

namespace waste::download {

Failure failure_of_status(int status, bool from_hub) {
  switch (status) {
    case 408:
    case 425:
    case 429:
      return Failure::Busy;
    case 501:
    case 505:
      return Failure::Refused;
    case 416:
      // The ranges asked for always lie inside the listed size: the server is confused, not we.
      return Failure::Misbehaved;
    default:
      break;
  }
  if (status >= 500) return Failure::Busy;
  // Storage says that a signature is too old in several ways: 403 mostly, 400, 401 or 404 elsewhere.
  if (status >= 400) return from_hub ? Failure::Refused : Failure::Expired;
  return Failure::Misbehaved;
}

Verdict decide(std::span<const Attempt> history, const RetryLimits& limits, double jitter) {
  const Attempt& last = history.back();
  if (last.failure == Failure::Refused) return {};

  std::size_t in_a_row = 1;
  while (in_a_row < history.size() && !history[history.size() - in_a_row].progressed) ++in_a_row;
  if (in_a_row > limits.attempts) return {};

  if (last.failure == Failure::Expired) {
    const bool fresh_too = in_a_row >= 2 && history[history.size() - 2].failure == Failure::Expired;
    if (fresh_too) return {};
    return {Verdict::Action::ResolveAgain, last.retry_after.value_or(0)};
  }

  const double doubled =
      limits.first_delay * std::exp2(static_cast<double>(std::min<std::size_t>(in_a_row, 32) - 1));
  double delay = std::min(doubled, limits.longest_delay) * (0.5 + 0.5 * jitter);
  // Whoever waits for the same window must not arrive in the same millisecond either.
  if (last.retry_after) delay = std::max(delay, *last.retry_after + 0.25 * jitter);
  return {Verdict::Action::Again, delay};
}

}  // namespace waste::download
