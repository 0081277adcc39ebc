// What one conversation leaves behind in the model: KDA's recurrent state and convolution tails, MLA's
// latents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "container/core/memory.h"
#include "container/format/model_config.h"
#include "runtime/engine.h"

namespace waste::runtime {

/// Fixed-size memory for one session. Not thread-safe.
class SessionState {
 public:
  SessionState(const ModelConfig& model, std::uint32_t context, KvType kv);

  std::uint32_t position = 0;  // tokens taken so far

  void clear();

  /// [heads][key][value] floats of a KDA layer.
  float* recurrent(std::uint32_t layer) { return at<float>(layers_[layer].offset); }
  /// [q, k, v][conv_kernel - 1][channels]: the inputs before `position`, the oldest first.
  float* tails(std::uint32_t layer) { return at<float>(layers_[layer].offset) + recurrent_floats_; }

  /// Row `p` of an MLA layer: kv_lora_rank latents, then qk_rope_head_dim values, of latent_bytes() each.
  std::uint8_t* latents(std::uint32_t layer, std::uint32_t p) {
    return at<std::uint8_t>(layers_[layer].offset) + std::size_t{p} * latent_width_ * latent_bytes();
  }
  std::size_t latent_width() const { return latent_width_; }
  std::size_t latent_bytes() const { return kv_ == KvType::F16 ? 2 : 4; }
  KvType kv() const { return kv_; }

  /// The bytes that `positions` tokens have written, piece by piece in a fixed order: what a session file
  /// holds.
  std::vector<std::span<std::uint8_t>> pieces(std::uint32_t positions);

 private:
  struct Layer {
    bool kda = false;
    std::size_t offset = 0;
  };
  template <typename T>
  T* at(std::size_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

  KvType kv_;
  std::size_t recurrent_floats_ = 0;
  std::size_t tail_floats_ = 0;
  std::size_t latent_width_ = 0;
  std::vector<Layer> layers_;
  AlignedBuffer memory_;
};

}  // namespace waste::runtime
