#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "container/core/error.h"

namespace waste::runtime {

namespace {

float checked_maximum(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float best = -kInfinity;
  bool finite = true;
  for (const float logit : logits) {
    finite &= logit < kInfinity;  // false for NaN too
    best = logit > best ? logit : best;
  }
  if (!finite || best == -kInfinity)
    fail_data("the logits hold NaN, infinity or nothing: the weights are damaged");
  return best;
}

// SplitMix64's finalizer (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// Uniform in [0, 1), a multiple of 2^-53.
double uniform(std::uint64_t seed, std::uint64_t position) {
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

}  // namespace

void SamplingOptions::check() const {
  // Written so that NaN fails too.
  if (!(temperature >= 0 && temperature <= 1000))
    fail(ErrorKind::Usage, "--temperature must be from 0 to 1000");
  if (!(top_p > 0 && top_p <= 1)) fail(ErrorKind::Usage, "--top-p must be above 0 and at most 1");
  if (!(min_p >= 0 && min_p <= 1)) fail(ErrorKind::Usage, "--min-p must be from 0 to 1");
}

double portable_exp(double x) {
  if (x < -708) return 0;  // the results would be subnormal; no token that improbable is ever drawn
  // x = k ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts so that k * high is exact (fdlibm's constants).
  constexpr double kHigh = 6.93147180369123816490e-01;
  constexpr double kLow = 1.90821492927058770002e-10;
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer
  const double k = x * 1.44269504088896338700 + kRound - kRound;
  const double r = x - k * kHigh - k * kLow;
  // The Taylor series: the first term left out is below r^14 / 14!, 4e-18.
  constexpr double kCoefficients[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  double sum = 0;
  for (const double c : kCoefficients) sum = sum * r + c;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  options.check();
}

// Orders a heap so that its front is the likeliest candidate.
bool Sampler::less_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

// The likeliest token has weight 1.
double Sampler::weight(float logit, double best) const {
  return portable_exp((static_cast<double>(logit) - best) / options_.temperature);
}

// Moves the likeliest token that is left from heap_ to order_.
void Sampler::pop(double best) {
  std::ranges::pop_heap(heap_, less_likely);
  order_.push_back(heap_.back());
  heap_.pop_back();
  sums_.push_back((sums_.empty() ? 0 : sums_.back()) + weight(order_.back().logit, best));
}

std::int32_t Sampler::sample(std::span<const float> logits, std::uint64_t position) {
  const float maximum = checked_maximum(logits);
  if (options_.temperature == 0) {
    const auto first = std::ranges::find(logits, maximum);  // the lowest id of equals
    return static_cast<std::int32_t>(first - logits.begin());
  }
  const double best = maximum;
  heap_.resize(logits.size());
  for (std::size_t i = 0; i < heap_.size(); ++i) heap_[i] = {logits[i], static_cast<std::int32_t>(i)};
  std::ranges::make_heap(heap_, less_likely);
  order_.clear();
  sums_.clear();

  // Every filter keeps a prefix of the tokens in order of probability: the heap gives up only those it must.
  double total = 0;
  if (options_.top_k != 0 && options_.top_k < logits.size()) {
    while (order_.size() < options_.top_k) pop(best);
    total = sums_.back();
    heap_.clear();
  } else {
    for (const float logit : logits) total += weight(logit, best);
  }
  const double u = uniform(options_.seed, position);
  const bool filters = options_.top_p < 1 || options_.min_p > 0;
  std::size_t count = 0;  // kept so far
  while (true) {
    if (count == order_.size()) {
      if (heap_.empty()) break;
      pop(best);
    }
    if (options_.min_p > 0 && weight(order_[count].logit, best) < options_.min_p) break;
    ++count;
    if (options_.top_p < 1 && sums_[count - 1] >= options_.top_p * total) break;
    if (!filters && sums_[count - 1] > u * total) return order_[count - 1].id;
  }
  const auto last = sums_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  const auto drawn = std::upper_bound(sums_.begin(), last, u * *last);
  return order_[static_cast<std::size_t>(drawn - sums_.begin())].id;
}

namespace {

// ln(sum of e^logit), without overflow.
double log_sum(std::span<const float> logits) {
  const double best = checked_maximum(logits);
  double sum = 0;
  for (const float logit : logits) sum += portable_exp(static_cast<double>(logit) - best);
  return best + std::log(sum);
}

}  // namespace

double log_probability(std::span<const float> logits, std::int32_t id) {
  return static_cast<double>(logits[id]) - log_sum(logits);
}

void log_softmax(std::span<const float> logits, std::span<float> out) {
  const double sum = log_sum(logits);
  for (std::size_t i = 0; i < logits.size(); ++i)
    out[i] = static_cast<float>(static_cast<double>(logits[i]) - sum);
}

}  // namespace waste::runtime
