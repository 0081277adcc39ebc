#include "runtime/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "container/core/error.h"

namespace waste::runtime {
namespace {

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position) {
  return Sampler(options).sample(logits, position);
}

TEST_CASE("exp: within two units in the last place of libm's, everywhere") {
  CHECK(portable_exp(0) == 1);
  CHECK(portable_exp(-1e300) == 0);
  CHECK(portable_exp(-std::numeric_limits<double>::infinity()) == 0);
  for (double x = 0; x > -708; x -= 0.0137) {
    const double want = std::exp(x);
    REQUIRE(std::abs(portable_exp(x) - want) <= 2 * (std::nextafter(want, 2) - want));
  }
}

TEST_CASE("exp: frozen bits, the same on every machine") {
  CHECK(portable_exp(-1) == 0x1.78b56362cef38p-2);
  CHECK(portable_exp(-0.1) == 0x1.cf46d99d52b3ap-1);
  CHECK(portable_exp(-20) == 0x1.1b48655f37267p-29);
}

TEST_CASE("sample: temperature 0 takes the likeliest, the lowest id of equals") {
  const std::vector<float> logits = {1, 3, 2, 3, -std::numeric_limits<float>::infinity()};
  for (std::uint64_t position = 0; position < 20; ++position) {
    CHECK(sample(logits, {.temperature = 0, .seed = position}, position) == 1);
  }
}

std::map<std::int32_t, int> draw(const std::vector<float>& logits, const SamplingOptions& options,
                                 int times) {
  std::map<std::int32_t, int> counts;
  Sampler sampler(options);
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits, static_cast<std::uint64_t>(i))];
  return counts;
}

TEST_CASE("sample: frequencies follow the probabilities and the temperature") {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  constexpr int kTimes = 20000;
  // Five standard deviations of a binomial count are below 350 here.
  auto counts = draw(logits, {.seed = 7}, kTimes);
  CHECK(std::abs(counts[0] - 2000) < 350);
  CHECK(std::abs(counts[1] - 12000) < 350);
  CHECK(std::abs(counts[2] - 6000) < 350);
  counts = draw(logits, {.temperature = 0.5, .seed = 7}, kTimes);  // squares: 1 to 36 to 9
  CHECK(std::abs(counts[0] - kTimes / 46) < 350);
  CHECK(std::abs(counts[1] - kTimes * 36 / 46) < 350);
  counts = draw(logits, {.temperature = 1000, .seed = 7}, kTimes);
  CHECK(std::abs(counts[0] - kTimes / 3) < 400);
}

TEST_CASE("sample: each filter keeps exactly the tokens it should") {
  // Probabilities 0.05 0.4 0.2 0.2 0.15, so in order: 1, then 2 and 3 (a tie, by id), 4, 0.
  std::vector<float> logits;
  for (const float p : {0.05f, 0.4f, 0.2f, 0.2f, 0.15f}) logits.push_back(std::log(p));
  const auto kept = [&](const SamplingOptions& options) {
    std::vector<std::int32_t> ids;
    for (const auto& [id, count] : draw(logits, options, 2000)) ids.push_back(id);
    return ids;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(kept({}) == Ids{0, 1, 2, 3, 4});
  CHECK(kept({.top_k = 1}) == Ids{1});
  CHECK(kept({.top_k = 2}) == Ids{1, 2});
  CHECK(kept({.top_k = 4}) == Ids{1, 2, 3, 4});
  CHECK(kept({.top_k = 100}) == Ids{0, 1, 2, 3, 4});
  CHECK(kept({.top_p = 0.3}) == Ids{1});
  CHECK(kept({.top_p = 0.5}) == Ids{1, 2});
  CHECK(kept({.top_p = 0.7}) == Ids{1, 2, 3});
  CHECK(kept({.top_p = 0.93}) == Ids{1, 2, 3, 4});
  CHECK(kept({.min_p = 0.45}) == Ids{1, 2, 3});
  CHECK(kept({.min_p = 1}) == Ids{1});
  CHECK(kept({.top_k = 2, .top_p = 0.65}) == Ids{1});  // of the two kept, the first has two thirds
  CHECK(kept({.temperature = 10, .top_p = 0.9, .min_p = 0.99}) == Ids{1});
}

TEST_CASE("sample: the same draw from the same seed and position, others from others") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(5000);
  for (float& l : logits) l = normal(random);
  std::map<std::int32_t, int> by_seed, by_position;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const SamplingOptions options{.top_p = 0.95, .seed = i};
    const std::int32_t id = sample(logits, options, 3);
    Sampler used(options);
    used.sample(logits, 17);
    CHECK(used.sample(logits, 3) == id);
    ++by_seed[id];
    ++by_position[sample(logits, {.top_p = 0.95, .seed = 1}, i)];
  }
  CHECK(by_seed.size() > 25);
  CHECK(by_position.size() > 25);
}

TEST_CASE("sample: frozen draws, the same on every machine") {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  std::vector<std::int32_t> ids;
  for (std::uint64_t position = 0; position < 6; ++position) {
    ids.push_back(sample(logits, {.temperature = 0.8, .top_k = 200, .top_p = 0.9, .seed = 42}, position));
  }
  CHECK(ids == std::vector<std::int32_t>{667, 804, 877, 372, 62, 273});
}

TEST_CASE("sample: damaged logits and options out of range are refused") {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(sample(std::vector{0.0f, nan}, {}, 0), Error);
  CHECK_THROWS_AS(sample(std::vector{0.0f, nan}, {.temperature = 0}, 0), Error);
  CHECK_THROWS_AS(sample(std::vector{0.0f, infinity}, {}, 0), Error);
  CHECK_THROWS_AS(sample(std::vector{-infinity, -infinity}, {}, 0), Error);
  CHECK_THROWS_AS(sample({}, {}, 0), Error);
  CHECK_THROWS_AS(Sampler(SamplingOptions{.temperature = -1}), Error);
  CHECK_THROWS_AS(SamplingOptions{.temperature = std::nan("")}.check(), Error);
  CHECK_THROWS_AS(SamplingOptions{.top_p = 0}.check(), Error);
  CHECK_THROWS_AS(SamplingOptions{.top_p = 1.01}.check(), Error);
  CHECK_THROWS_AS(SamplingOptions{.min_p = -0.1}.check(), Error);
  CHECK_NOTHROW(SamplingOptions{.temperature = 0, .top_p = 1, .min_p = 1}.check());
}

TEST_CASE("log_softmax: probabilities sum to one and large logits do not overflow") {
  std::vector<float> out(3);
  log_softmax(std::vector{1000.0f, 1000.0f, 999.0f}, out);
  double sum = 0;
  for (const float l : out) sum += std::exp(static_cast<double>(l));
  CHECK(sum == doctest::Approx(1).epsilon(1e-6));
  CHECK(out[0] == out[1]);
  CHECK(out[2] == doctest::Approx(out[0] - 1).epsilon(1e-6));
}

}  // namespace
}  // namespace waste::runtime
