// The forward pass of both architectures over a chunk of tokens. One token alone and sixty-four together go
// through the same code and give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "container/core/memory.h"
#include "container/footprint/footprint.h"
#include "container/format/container.h"
#include "runtime/engine.h"
#include "runtime/expert_cache.h"
#include "runtime/kernels/kernels.h"
#include "runtime/state.h"
#include "runtime/thread_pool.h"
#include "runtime/weights.h"

namespace waste::runtime {

/// Owns the scratch memory; everything else belongs to the engine. Not thread-safe.
class Forward {
 public:
  Forward(const Container& container, const Weights& weights, const FootprintOptions& options,
          ThreadPool& pool, ExpertCache* cache, bool keep_records);

  using LogitsOf = std::function<void(std::uint32_t token, std::span<const float> logits)>;

  /// Takes up to `chunk` tokens into the state. The logits of the last are in last_logits(); `every`, when
  /// given, gets those of each. On an Error the state is not sound.
  void run(SessionState& state, std::span<const std::int32_t> ids, const LogitsOf& every,
           const Session::RouteSink& routes);

  std::span<float> last_logits() { return {floats(s_.last_logits), model_.vocab_size}; }
  const EngineStats& stats() const { return stats_; }
  /// Uses of each expert, by ExpertCache::item.
  const std::vector<std::uint64_t>& expert_counts() const { return counts_; }

 private:
  /// One matrix of a product: y[t * stride + r].
  struct Output {
    const WeightMatrix* matrix;
    float* y;
    std::size_t stride;
  };
  /// Which tokens of the chunk go to one expert: pairs are token * top-k + slot.
  struct Routed {
    std::uint32_t expert;
    std::vector<std::uint32_t> pairs;
  };

  float* floats(std::uint64_t offset) { return reinterpret_cast<float*>(scratch_.data() + offset); }
  std::uint8_t* thread_scratch(unsigned thread) {
    return scratch_.data() + s_.thread + thread * s_.thread_bytes;
  }

  void embed(std::span<const std::int32_t> ids);
  void product(const float* x, std::size_t x_stride, std::initializer_list<Output> outputs);
  void product_of_kind(WeightKind kind, const float* x, std::size_t x_stride,
                       std::span<const Output> outputs);
  void attention_residual(Vector query);
  void norm(Vector weight, const float* x);

  void kda(SessionState& state, std::uint32_t layer);
  void kda_head(SessionState& state, std::uint32_t layer, std::size_t head);
  void mla(SessionState& state, std::uint32_t layer);
  void mla_heads(SessionState& state, std::uint32_t layer, std::size_t first, unsigned thread);
  void mlp(const MlpWeights& w, float* gate, float* up, float* out);
  void activate(float* gate, const float* up, std::size_t n) const;

  void moe(std::uint32_t layer, std::uint32_t position, const Session::RouteSink& routes);
  void choose_experts(std::uint32_t layer, std::uint32_t position, const Session::RouteSink& routes);
  // What the experts of a layer multiply with: token t's begins at x + t * stride.
  struct ExpertInput {
    const float* x = nullptr;
    std::size_t stride = 0;
  };
  // Partial products of one table group.
  struct Table {
    const std::uint8_t* entries = nullptr;
    float scale = 0;
  };
  void build_tables(const MoeWeights& w, const ExpertInput& input);
  Table build_table(const float* x, std::size_t positions, const float* book, unsigned thread);
  void compute_experts(const MoeWeights& w, const ExpertInput& input,
                       std::span<const ExpertCache::Ready> ready);
  template <typename TableOf>
  void add_groups(const ExpertMatrix& m, std::size_t begin, std::size_t end,
                  std::span<const std::uint32_t> pairs, float* out, std::size_t out_stride, unsigned thread,
                  const TableOf& table_of);
  void gate_or_up(const MoeWeights& w, const ExpertInput& input, const ExpertCache::Ready& r, MatrixKind kind,
                  std::size_t begin, std::size_t end, unsigned thread);
  void down(const MoeWeights& w, const ExpertCache::Ready& r, std::size_t begin, std::size_t end,
            unsigned thread);
  // The (token, slot) pairs of this layer that are routed to the expert.
  std::span<const std::uint32_t> pairs_of(const ExpertCache::Ready& r) const {
    return routed_[routed_of_[r.expert]].pairs;
  }
  ExpertMatrix expert_matrix(const std::uint8_t* record, MatrixKind kind) const;

  void head(const LogitsOf& every);

  const Container& container_;
  const ModelConfig& model_;
  const Weights& weights_;
  const Kernels& k_;
  ThreadPool& pool_;
  ExpertCache* cache_;
  bool keep_records_;
  ScratchLayout s_;
  AlignedBuffer scratch_;
  std::size_t hidden_stride_;
  std::size_t chunk_;

  std::size_t tokens_ = 0;  // of the chunk being computed
  std::size_t stored_blocks_ = 0;
  std::vector<std::uint32_t> experts_;  // [token][slot]
  std::vector<float> expert_weights_;
  std::vector<Routed> routed_;            // those of this layer that have tokens
  std::vector<std::uint32_t> routed_of_;  // by expert: index into routed_
  std::vector<std::uint64_t> counts_;
  EngineStats stats_;
};

}  // namespace waste::runtime
