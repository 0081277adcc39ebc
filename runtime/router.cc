#include "runtime/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace waste::runtime {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The highest of `values`, best first, ties to the lower index.
void top(std::span<const float> values, std::span<std::uint32_t> out) {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    if (count == out.size() && !(values[i] > values[out[count - 1]])) continue;
    std::size_t at = count < out.size() ? count++ : count - 1;
    for (; at > 0 && values[i] > values[out[at - 1]]; --at) out[at] = out[at - 1];
    out[at] = i;
  }
}

void mask_groups(const ModelConfig& m, std::span<float> choice) {
  const std::size_t size = choice.size() / m.expert_groups;
  std::vector<float> best(m.expert_groups);
  for (std::size_t g = 0; g < m.expert_groups; ++g) {
    std::uint32_t pair[2] = {};
    top(choice.subspan(g * size, size), {pair, std::min<std::size_t>(2, size)});
    best[g] = choice[g * size + pair[0]] + (size > 1 ? choice[g * size + pair[1]] : 0.0f);
  }
  std::vector<std::uint32_t> keep(m.topk_groups);
  top(best, keep);
  for (std::uint32_t g = 0; g < m.expert_groups; ++g) {
    if (std::find(keep.begin(), keep.end(), g) == keep.end())
      std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(g * size), size, kNever);
  }
}

}  // namespace

void route(const Kernels& k, const ModelConfig& m, float* logits, const float* bias,
           std::span<std::uint32_t> experts, std::span<float> weights) {
  const std::size_t n = m.num_experts;
  const std::size_t padded = (n + 15) / 16 * 16;
  if (m.router_activation == RouterActivation::Sigmoid) {
    k.sigmoid(logits, padded);
  } else {
    const float most = *std::max_element(logits, logits + n);
    for (std::size_t i = 0; i < n; ++i) logits[i] -= most;
    k.exp(logits, padded);
    float total = 0;
    for (std::size_t i = 0; i < n; ++i) total += logits[i];
    for (std::size_t i = 0; i < n; ++i) logits[i] /= total;
  }
  std::vector<float> choice(n);
  for (std::size_t i = 0; i < n; ++i) choice[i] = logits[i] + bias[i];
  if (m.expert_groups > 1 && m.expert_groups > m.topk_groups) mask_groups(m, choice);
  top(choice, experts);

  float total = 0;
  for (std::size_t i = 0; i < experts.size(); ++i) total += weights[i] = logits[experts[i]];
  const float divisor = experts.size() > 1 && m.renormalize ? total + 1e-20f : 1.0f;
  for (float& w : weights) w = w / divisor * static_cast<float>(m.routed_scaling_factor);
}

}  // namespace waste::runtime
