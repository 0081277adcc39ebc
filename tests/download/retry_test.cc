#include "download/retry.h"

#include <doctest/doctest.h>

#include <vector>

namespace waste::download {
namespace {

using Action = Verdict::Action;

constexpr Attempt kDrop{Failure::Dropped, false, {}};
constexpr Attempt kDropAfterBytes{Failure::Dropped, true, {}};

TEST_CASE("delays double, lie in the upper half, and stop growing") {
  const RetryLimits limits{20, 0.25, 30};
  std::vector<Attempt> history;
  double whole = 0.25;
  for (int i = 0; i < 20; ++i) {
    history.push_back(kDrop);
    const Verdict low = decide(history, limits, 0);
    const Verdict high = decide(history, limits, 0.999999);
    CHECK(low.action == Action::Again);
    CHECK(low.delay == doctest::Approx(whole / 2));
    CHECK(high.delay == doctest::Approx(whole).epsilon(0.001));
    whole = whole * 2 > 30 ? 30 : whole * 2;
  }
  history.push_back(kDrop);
  CHECK(decide(history, limits, 0.5).action == Action::GiveUp);
}

TEST_CASE("progress starts the budget anew") {
  const RetryLimits limits{3, 1, 30};
  std::vector<Attempt> history = {kDrop, kDrop, kDrop};
  CHECK(decide(history, limits, 0).action == Action::Again);
  history.push_back(kDropAfterBytes);
  CHECK(decide(history, limits, 0).action == Action::Again);
  CHECK(decide(history, limits, 0).delay == doctest::Approx(0.5));
  history.insert(history.end(), {kDrop, kDrop});
  CHECK(decide(history, limits, 0).action == Action::Again);
  history.push_back(kDrop);
  CHECK(decide(history, limits, 0).action == Action::GiveUp);
}

TEST_CASE("no retries at all when none are allowed") {
  CHECK(decide(std::vector{kDrop}, {0, 1, 30}, 0).action == Action::GiveUp);
}

TEST_CASE("the server's wish is a floor, not a ceiling") {
  const std::vector<Attempt> patient = {{Failure::Busy, false, 55.0}};
  CHECK(decide(patient, {}, 0).delay == doctest::Approx(55));
  CHECK(decide(patient, {}, 0.5).delay > 55);
  const std::vector<Attempt> hasty = {kDrop, kDrop, kDrop, kDrop, kDrop, kDrop, {Failure::Busy, false, 0.0}};
  CHECK(decide(hasty, {}, 0).delay == doctest::Approx(8));
}

TEST_CASE("a permanent refusal is never retried") {
  CHECK(decide(std::vector<Attempt>{{Failure::Refused, true, 1.0}}, {}, 0).action == Action::GiveUp);
}

TEST_CASE("an expired URL is resolved again once; a fresh one that is refused too is a refusal") {
  std::vector<Attempt> history = {{Failure::Expired, false, {}}};
  CHECK(decide(history, {}, 0.5).action == Action::ResolveAgain);
  CHECK(decide(history, {}, 0.5).delay == 0);
  history.push_back({Failure::Expired, false, {}});
  CHECK(decide(history, {}, 0.5).action == Action::GiveUp);
  SUBCASE("unless the fresh one brought bytes first") {
    history.back().progressed = true;
    CHECK(decide(history, {}, 0.5).action == Action::ResolveAgain);
  }
  SUBCASE("or something else came between") {
    history.insert(history.begin() + 1, kDrop);
    CHECK(decide(history, {}, 0.5).action == Action::ResolveAgain);
  }
}

TEST_CASE("what a status means depends on who says it") {
  for (const int status : {408, 425, 429, 500, 502, 503, 504, 520}) {
    CAPTURE(status);
    CHECK(failure_of_status(status, true) == Failure::Busy);
    CHECK(failure_of_status(status, false) == Failure::Busy);
  }
  for (const int status : {400, 401, 403, 404, 410}) {
    CAPTURE(status);
    CHECK(failure_of_status(status, true) == Failure::Refused);
    CHECK(failure_of_status(status, false) == Failure::Expired);
  }
  CHECK(failure_of_status(416, false) == Failure::Misbehaved);
  CHECK(failure_of_status(204, false) == Failure::Misbehaved);
  CHECK(failure_of_status(501, true) == Failure::Refused);
}

}  // namespace
}  // namespace waste::download
