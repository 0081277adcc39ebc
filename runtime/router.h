// Which experts a token goes to. A pure function of the router's logits.
#pragma once

#include <cstdint>
#include <span>

#include "container/format/model_config.h"
#include "runtime/kernels/kernels.h"

namespace waste::runtime {

/// `logits` [num_experts, padded to 16] becomes scores. Writes the num_experts_per_token experts with the
/// highest biased scores, best first (of equal ones the lower number), and their weights: from the unbiased
/// scores, renormalised where the model says so, times the scaling factor. With grouped routing only the
/// groups with the highest sums of their two best take part.
void route(const Kernels& k, const ModelConfig& model, float* logits, const float* bias,
           std::span<std::uint32_t> experts, std::span<float> weights);

}  // namespace waste::runtime
