#include "runtime/state.h"

#include <cstring>

#include "container/core/checked.h"
#include "container/footprint/footprint.h"

namespace waste::runtime {

SessionState::SessionState(const ModelConfig& m, std::uint32_t context, KvType kv) : kv_(kv) {
  const std::size_t channels = std::size_t{m.kda_heads} * m.kda_head_dim;
  recurrent_floats_ = channels * m.kda_head_dim;
  tail_floats_ = 3 * std::size_t{m.conv_kernel - 1} * channels;
  latent_width_ = std::size_t{m.kv_lora_rank} + m.qk_rope_head_dim;
  std::size_t total = 0;
  for (std::uint32_t i = 0; i < m.num_layers; ++i) {
    layers_.push_back({m.kda_layer[i], total});
    total += m.kda_layer[i] ? (recurrent_floats_ + tail_floats_) * sizeof(float)
                            : round_up(context, kLatentRows) * latent_width_ * latent_bytes();
  }
  memory_ = AlignedBuffer(total);
}

void SessionState::clear() {
  for (const auto& piece : pieces(position)) std::memset(piece.data(), 0, piece.size());
  position = 0;
}

std::vector<std::span<std::uint8_t>> SessionState::pieces(std::uint32_t positions) {
  std::vector<std::span<std::uint8_t>> out;
  for (const Layer& layer : layers_) {
    const std::size_t bytes = layer.kda ? (recurrent_floats_ + tail_floats_) * sizeof(float)
                                        : std::size_t{positions} * latent_width_ * latent_bytes();
    out.emplace_back(memory_.data() + layer.offset, bytes);
  }
  return out;
}

}  // namespace waste::runtime
