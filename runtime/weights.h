// The resident weights: trunk.bin loaded into one allocation, every tensor checked against the model's shape,
// and the codebooks in the order in which the kernels read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/core/memory.h"
#include "container/format/container.h"
#include "runtime/kernels/kernels.h"

namespace waste::runtime {

/// A vector of floats in the weights' allocation; null where the model has none.
using Vector = const float*;

struct KdaWeights {
  WeightMatrix q, k, v, o;
  WeightMatrix f_a, f_b;  // decay, low rank
  WeightMatrix g_a, g_b;  // output gate, low rank; with a full-rank gate only g_b
  WeightMatrix b;         // write strength, one row a head
  Vector q_taps = nullptr, k_taps = nullptr, v_taps = nullptr;  // [conv_kernel][channels]
  Vector dt_bias = nullptr;                                     // [channels]
  std::vector<float> a;                                         // exp(A_log), one a head
  Vector o_norm = nullptr;                                      // [head_dim]
};

struct MlaWeights {
  WeightMatrix q_a, q_b;  // without q_lora only q_b
  Vector q_a_norm = nullptr;
  WeightMatrix kv_a, kv_b, o, gate;
  Vector kv_a_norm = nullptr;
};

struct MlpWeights {
  WeightMatrix gate, up, down;
};

struct MoeWeights {
  WeightMatrix router;
  Vector router_bias = nullptr;
  WeightMatrix latent_down, latent_up;
  Vector latent_norm = nullptr;
  MlpWeights shared;
  const float* books[kMatrixKinds] = {};  // [stages][8][entries]
};

struct LayerWeights {
  bool kda_layer = false;
  bool moe_layer = false;
  Vector input_norm = nullptr;
  Vector post_norm = nullptr;
  Vector attention_residual = nullptr;  // norm x projection, folded
  Vector mlp_residual = nullptr;
  KdaWeights kda;
  MlaWeights mla;
  MlpWeights mlp;
  MoeWeights moe;
};

/// Immutable once loaded.
class Weights {
 public:
  /// Error(Data) names a tensor that is missing, has another shape than the model says, or a model whose
  /// sizes the kernels do not support. `bytes` is the footprint's trunk.
  Weights(const Container& container, std::uint64_t bytes);

  const LayerWeights& layer(std::uint32_t i) const { return layers_[i]; }
  const WeightMatrix& head() const { return head_; }
  Vector final_norm() const { return final_norm_; }
  Vector output_residual() const { return output_residual_; }
  const TrunkTensor& embeddings() const { return *embeddings_; }
  /// The seal's fingerprint, or where there is no seal a digest of manifest, codebooks, trunk and the first
  /// record of each bank.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  class Loader;
  AlignedBuffer memory_;
  std::vector<float> books_;
  std::vector<LayerWeights> layers_;
  WeightMatrix head_;
  Vector final_norm_ = nullptr;
  Vector output_residual_ = nullptr;
  const TrunkTensor* embeddings_ = nullptr;
  std::string fingerprint_;
};

}  // namespace waste::runtime
