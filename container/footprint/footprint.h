// How many bytes a model needs to run: the one set of arithmetic that the planner prints and the runtime
// allocates from. Everything large the runtime holds is one of these parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/format/manifest.h"

namespace waste {

/// Positions that prefill computes together. It reads an expert once a chunk, and 64 positions already ask
/// for most experts of a layer: what a prompt reads from disk falls as the chunk grows. Beyond 64 nothing
/// else is gained.
inline constexpr std::uint32_t kLeastChunk = 8;
inline constexpr std::uint32_t kUsualChunk = 64;
inline constexpr std::uint32_t kMostChunk = 512;

struct FootprintOptions {
  std::uint32_t context = 4096;  // positions a session can hold
  std::uint32_t chunk = kLeastChunk;
  std::uint32_t threads = 1;
  std::uint32_t latent_bytes = 2;  // of one latent value: 2 (f16) or 4 (f32)
};

/// Whether the runtime keeps this tensor in memory: everything the text model multiplies with. embed_tokens
/// stays on disk (a row a token), vision towers are not loaded.
bool resident(const Manifest& manifest, const TrunkTensor& tensor);

/// Bytes of a resident tensor in memory: codes and scales each rounded up to 64; halves are kept as floats.
std::uint64_t resident_bytes(const TrunkTensor& tensor);

/// Where the buffers of the forward pass lie in one allocation: byte offsets, all multiples of 64. Buffers of
/// different phases (attention, dense MLP, experts) share space. Shapes are [chunk][...] floats unless noted,
/// with rows padded to multiples of 16.
struct ScratchLayout {
  // kept across a layer
  std::uint64_t hidden = 0;        // [hidden_size] the residual stream
  std::uint64_t input = 0;         // [hidden_size] what a block reads: after attention residuals
  std::uint64_t normed = 0;        // [hidden_size]
  std::uint64_t output = 0;        // [hidden_size] what a block adds
  std::uint64_t blocks = 0;        // [stored blocks][chunk][hidden_size], attention residuals
  std::uint64_t quantised = 0;     // activations as integers, the widest input: 320 bytes a group of 128
  std::uint64_t quant_scales = 0;  // floats, one a group
  std::uint64_t logits = 0;        // [kHeadTokens][vocab_size]
  std::uint64_t last_logits = 0;   // [vocab_size]

  // attention: five activations of KDA, or MLA's
  std::uint64_t wide[5] = {};  // [attention_width]
  std::uint64_t narrow = 0;    // [narrow_width]: low-rank inputs
  std::uint64_t narrow2 = 0;   // [narrow_width]
  std::uint64_t beta = 0;      // [heads]
  // dense and shared MLPs
  std::uint64_t mlp_gate = 0;  // [mlp width]
  std::uint64_t mlp_up = 0;
  // experts
  std::uint64_t scores = 0;       // [num_experts]
  std::uint64_t shared_gate = 0;  // [shared experts' width]
  std::uint64_t shared_up = 0;
  std::uint64_t latent = 0;        // [expert_width] input of the experts
  std::uint64_t mixed = 0;         // [expert_width] their weighted sum
  std::uint64_t tables = 0;        // bytes [up to kTabledTokens][gate, up][table_bytes]
  std::uint64_t table_scales = 0;  // [up to kTabledTokens][gate, up][table groups]
  std::uint64_t pair_gate = 0;     // [chunk * top-k][moe_intermediate_size]
  std::uint64_t pair_up = 0;
  std::uint64_t pair_out = 0;  // [chunk * top-k][expert_width]
  // one a thread
  std::uint64_t thread = 0;  // first thread's; the others follow thread_bytes apart
  std::uint64_t thread_bytes = 0;
  // within a thread's part: for attention, queries, sums and one widened block come first, then these
  std::uint64_t thread_latent_groups = 0;  // [chunk] latents as integers
  std::uint64_t thread_latent_scales = 0;
  // for an expert, the partial products as floats come first, then these
  std::uint64_t thread_table = 0;  // one table group
  std::uint64_t thread_sums = 0;   // [chunk][rows of a matrix, padded to 64]

  std::uint64_t total = 0;

  // strides, in elements
  std::uint64_t attention_width = 0;
  std::uint64_t narrow_width = 0;
  std::uint64_t mlp_width = 0;
  std::uint64_t quant_groups = 0;
  std::uint64_t table_bytes = 0;  // one token, one matrix kind
  std::uint64_t table_groups = 0;
};

inline constexpr std::uint32_t kHeadTokens = 4;      // positions whose logits are computed together
inline constexpr std::uint32_t kAttentionHeads = 4;  // MLA heads that one task works on
inline constexpr std::uint32_t kTableGroup = 16;     // 8-vectors that share one table scale
inline constexpr std::uint32_t kTableEntryBytes = 512;
/// Tokens whose tables for gate and up are built once and kept for all their experts. In a larger chunk they
/// would be most of the scratch, and each expert builds its own, for a sixth of its time.
inline constexpr std::uint32_t kTabledTokens = kUsualChunk;
inline constexpr std::uint32_t kLatentRows = 16;             // cached positions that attention takes together
inline constexpr std::uint32_t kActivationGroupBytes = 320;  // 128 activations as integers

ScratchLayout scratch_layout(const Manifest& manifest, const FootprintOptions& options);

/// Parts of a running model, in bytes.
struct Footprint {
  std::uint64_t trunk = 0;          // resident weights
  std::uint64_t codebooks = 0;      // as floats, in both orders
  std::uint64_t recurrent = 0;      // KDA states and convolution tails of one session
  std::uint64_t latents = 0;        // MLA cache of one session
  std::uint64_t scratch = 0;        // ScratchLayout::total
  std::uint64_t process = 0;        // program, libraries, manifest, cache bookkeeping: an allowance
  std::uint64_t record = 0;         // one expert record
  std::uint32_t least_records = 0;  // top-k + 1, or 0 for a model without experts
  std::uint32_t experts = 0;        // records in the container

  std::uint64_t state() const { return recurrent + latents; }
  std::uint64_t fixed() const { return trunk + codebooks + recurrent + latents + scratch + process; }
  /// The smallest budget the model runs in.
  std::uint64_t floor() const { return fixed() + least_records * record; }
  /// The budget at which every expert stays in memory.
  std::uint64_t everything() const { return fixed() + experts * record; }
  /// How many records a budget of at least floor() holds.
  std::uint32_t cache_records(std::uint64_t budget) const;
  /// "trunk 1.2 GB, ...": every part that is not zero, and the smallest cache.
  std::string describe() const;
};

/// Error(Data) when a size overflows.
Footprint footprint(const Manifest& manifest, const FootprintOptions& options);

/// `options` with the chunk that a budget pays for. It doubles as long as a session can fill it and it takes
/// no more than a sixteenth of what the budget leaves above the floor: the rest is better spent on experts
/// for every token to come. Where all experts fit beside it, it is kUsualChunk.
FootprintOptions with_chunk_for(const Manifest& manifest, FootprintOptions options, std::uint64_t budget);

/// What a runtime takes when no budget is given: three quarters of the usable memory.
std::uint64_t default_budget();

}  // namespace waste
