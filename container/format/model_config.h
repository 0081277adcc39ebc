// The shape of a model, read from a checkpoint's config.json or from the `config` of a manifest, with every
// check that a later size computation relies on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/json.h"

namespace waste {

enum class Activation { Silu, Situ };
enum class RouterActivation { Sigmoid, Softmax };

/// All sizes are element counts. Layers are 0-based here (the checkpoints' lists are 1-based).
/// Semantics of every field: the released modelling code of Kimi-Linear and Kimi K3.
struct ModelConfig {
  std::string arch;           // "kimi-k3", "kimi-linear", else the class name
  std::string tensor_prefix;  // "language_model." or empty

  std::uint32_t vocab_size = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t intermediate_size = 0;  // of the dense layers
  double rms_norm_eps = 0;

  Activation activation = Activation::Silu;
  double situ_beta = 1;
  std::optional<double> situ_linear_beta;

  // Kimi delta attention
  std::uint32_t kda_heads = 0;
  std::uint32_t kda_head_dim = 0;
  std::uint32_t conv_kernel = 0;
  std::optional<double> gate_lower_bound;  // bounded decay (K3) when present
  bool full_rank_gate = false;             // g_proj, else g_a_proj and g_b_proj
  std::vector<bool> kda_layer;             // [num_layers]; the others are MLA

  // Multi-head latent attention, without rotary embedding
  std::uint32_t num_attention_heads = 0;
  std::uint32_t q_lora_rank = 0;  // 0: q_proj is one matrix
  std::uint32_t kv_lora_rank = 0;
  std::uint32_t qk_nope_head_dim = 0;
  std::uint32_t qk_rope_head_dim = 0;
  std::uint32_t v_head_dim = 0;
  bool mla_output_gate = false;

  // Mixture of experts
  std::uint32_t first_k_dense_replace = 0;
  std::uint32_t moe_layer_freq = 1;
  std::uint32_t num_experts = 0;
  std::uint32_t num_experts_per_token = 0;
  std::uint32_t num_shared_experts = 0;
  std::uint32_t moe_intermediate_size = 0;
  std::uint32_t expert_width = 0;  // input and output width of a routed expert
  bool latent_moe = false;         // expert_width is a projection of hidden_size
  bool latent_norm = false;
  RouterActivation router_activation = RouterActivation::Sigmoid;
  bool renormalize = false;
  double routed_scaling_factor = 1;
  std::uint32_t expert_groups = 1;
  std::uint32_t topk_groups = 1;

  std::uint32_t attn_res_block = 0;  // attention residuals every so many layers; 0 is none

  bool is_moe(std::uint32_t layer) const {
    return layer >= first_k_dense_replace && layer % moe_layer_freq == 0;
  }
  std::uint32_t moe_layers() const;
  std::uint32_t kda_layers() const;
  std::uint32_t mla_layers() const { return num_layers - kda_layers(); }

  /// Weights of one routed expert.
  std::uint64_t expert_parameters() const { return std::uint64_t{3} * moe_intermediate_size * expert_width; }
};

/// Accepts a checkpoint's config.json (flat or with `text_config`) and a manifest's `config` (with `_outer`).
/// Nothing that changes the computation is guessed: a refusal (Error(Data), opened by `where`) lists every
/// missing or impossible field at once.
ModelConfig parse_model_config(const Json& config, std::string_view where);

/// What a manifest stores for a checkpoint's config.json: the text config with the rest under `_outer`, or
/// the whole config; MoE keys under the names num_experts, num_experts_per_token, num_shared_experts;
/// moe_renormalize present only when true.
Json manifest_config(const Json& checkpoint_config);

}  // namespace waste
