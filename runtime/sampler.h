// Choosing the next token. A pure function of the logits, the options, the seed and the position in the text,
// in arithmetic that is the same on every machine: no libm, no random device, no order that depends on a
// sort's whims.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace waste::runtime {

struct SamplingOptions {
  double temperature = 1;   // 0: always the likeliest token
  std::uint32_t top_k = 0;  // keep the k likeliest; 0: all
  double top_p = 1;         // of these keep the fewest whose probabilities reach top_p together
  double min_p = 0;         // of these keep those at least min_p times as probable as the likeliest
  std::uint64_t seed = 0;

  /// Error(Usage) naming the option for a value out of range: temperature in [0, 1000], top_p in (0, 1],
  /// min_p in [0, 1].
  void check() const;
};

/// Keeps its working memory between tokens, because touching fresh memory for a vocabulary of 163,840 takes
/// longer than everything else here. Not thread-safe.
class Sampler {
 public:
  /// Checks the options.
  explicit Sampler(const SamplingOptions& options);

  /// The token that follows position `position`. Tokens of equal logits are ordered by id, lowest first. The
  /// random number depends on seed and position alone, so a session continued draws as one never interrupted.
  /// A NaN or +infinity among the logits is Error(Data): the weights are damaged.
  std::int32_t sample(std::span<const float> logits, std::uint64_t position);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  static bool less_likely(const Candidate& a, const Candidate& b);
  double weight(float logit, double best) const;
  void pop(double best);

  SamplingOptions options_;
  std::vector<Candidate> heap_;   // tokens not ordered yet
  std::vector<Candidate> order_;  // the likeliest, in order
  std::vector<double> sums_;      // of the weights of order_, running
};

/// e^x for x <= 0, within 2 units in the last place, by additions and multiplications only.
double portable_exp(double x);

/// The natural logarithm of the probability of token `id`.
double log_probability(std::span<const float> logits, std::int32_t id);

/// The natural logarithm of each token's probability. [vocabulary] in and out.
void log_softmax(std::span<const float> logits, std::span<float> out);

}  // namespace waste::runtime
