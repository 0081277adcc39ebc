// When to try again: a pure function of what has happened so far, so that it can be tested without a network.
#pragma once

#include <optional>
#include <span>

namespace waste::download {

enum class Failure {
  Unreachable,   // no name, no connection, no TLS session
  Dropped,       // the connection ended before the answer did
  Stalled,       // slower than the floor for the whole stall timeout
  Busy,          // 408, 425, 429 and 5xx: come back later
  Misbehaved,    // an answer that is not the one to this question: wrong range, wrong length, an HTML page, a
                 // 416 inside the file
  RangeIgnored,  // 200 with the whole file where a part was asked for
  Expired,       // a server other than the Hub refuses a URL that the Hub signed
  Refused,       // permanent: trying again cannot help
};

/// What a status other than 200 and 206 means, from the Hub itself or from where it redirected to.
Failure failure_of_status(int status, bool from_hub);

struct Attempt {
  Failure failure = Failure::Dropped;
  bool progressed = false;            // it brought at least one new byte before it failed
  std::optional<double> retry_after;  // seconds the server asked for
};

struct RetryLimits {
  unsigned attempts = 12;  // failures in a row, without a byte between them, that are survived
  double first_delay = 0.25;
  double longest_delay = 30;
};

struct Verdict {
  enum class Action {
    Again,         // the same URL after `delay`
    ResolveAgain,  // ask the Hub for a fresh URL after `delay`, and go on at the same offset
    GiveUp,
  };
  Action action = Action::GiveUp;
  double delay = 0;  // seconds
};

/// What to do after the last of `history` (oldest first, never empty), with `jitter` uniform in [0, 1).
/// The delay doubles from one failure in a row to the next, and is drawn from its upper half so that workers
/// that failed together do not come back together. Progress starts the count anew. The server's own wish is a
/// floor. Two expired URLs in a row are a refusal.
Verdict decide(std::span<const Attempt> history, const RetryLimits& limits, double jitter);

}  // namespace waste::download
