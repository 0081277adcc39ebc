#include "container/footprint/footprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "container/core/checked.h"
#include "container/core/memory.h"
#include "container/core/text.h"
#include "container/footprint/cache_policy.h"

namespace waste {

namespace {

constexpr std::uint64_t kAlign = 64;
// Measured: 12 MB resident with the libraries mapped, 6 MB of heap for a manifest of K3's size, stacks.
constexpr std::uint64_t kProcessBytes = std::uint64_t{24} << 20;

constexpr std::uint64_t pad16(std::uint64_t n) {
  return round_up(n, 16);
}

// Hands out offsets one after another.
class Carver {
 public:
  explicit Carver(std::uint64_t at = 0) : at_(at) {}
  std::uint64_t bytes(std::uint64_t n) {
    const std::uint64_t at = at_;
    at_ = checked_add(at_, round_up(checked_add(n, kAlign, "scratch") - kAlign, kAlign), "scratch");
    return at;
  }
  std::uint64_t floats(std::uint64_t rows, std::uint64_t cols) {
    return bytes(checked_mul(checked_mul(rows, cols, "scratch"), 4, "scratch"));
  }
  std::uint64_t end() const { return at_; }

 private:
  std::uint64_t at_;
};

std::uint64_t widest_input(const ModelConfig& m) {
  return std::max<std::uint64_t>(
      {m.hidden_size, m.intermediate_size, std::uint64_t{m.num_shared_experts} * m.moe_intermediate_size,
       m.expert_width, std::uint64_t{m.kda_heads} * m.kda_head_dim,
       std::uint64_t{m.num_attention_heads} * m.v_head_dim, m.q_lora_rank, m.kda_head_dim});
}

}  // namespace

bool resident(const Manifest& manifest, const TrunkTensor& tensor) {
  const std::string& prefix = manifest.model.tensor_prefix;
  std::string_view name = tensor.name;
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  if (name.starts_with("lm_head.")) return true;
  if (!name.starts_with("model.") || name.starts_with("model.embed_tokens.")) return false;
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return true;
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return error == std::errc() && layer < manifest.model.num_layers;
}

std::uint64_t resident_bytes(const TrunkTensor& tensor) {
  if (!tensor.quantised()) return round_up(checked_mul(tensor.elements(), 4, tensor.name), kAlign);
  const TrunkBytes bytes = trunk_bytes(tensor.format, tensor.rows(), tensor.cols(), tensor.name);
  return round_up(bytes.data, kAlign) + round_up(bytes.scales, kAlign);
}

ScratchLayout scratch_layout(const Manifest& manifest, const FootprintOptions& options) {
  const ModelConfig& m = manifest.model;
  const std::uint64_t chunk = options.chunk;
  ScratchLayout s;
  Carver kept;
  const std::uint64_t hidden = pad16(m.hidden_size);
  s.hidden = kept.floats(chunk, hidden);
  s.input = kept.floats(chunk, hidden);
  s.normed = kept.floats(chunk, hidden);
  s.output = kept.floats(chunk, hidden);
  if (m.attn_res_block != 0) s.blocks = kept.floats(ceil_div(m.num_layers, m.attn_res_block) * chunk, hidden);
  s.quant_groups = ceil_div(widest_input(m), kQuantGroup);
  s.quantised = kept.bytes(checked_mul(chunk * s.quant_groups, kActivationGroupBytes, "scratch"));
  s.quant_scales = kept.floats(chunk, s.quant_groups);
  s.logits = kept.floats(kHeadTokens, pad16(m.vocab_size));
  s.last_logits = kept.floats(1, pad16(m.vocab_size));

  Carver attention(kept.end());
  s.attention_width = pad16(std::max<std::uint64_t>(
      {std::uint64_t{m.kda_heads} * m.kda_head_dim,
       std::uint64_t{m.num_attention_heads} * (m.qk_nope_head_dim + m.qk_rope_head_dim),
       std::uint64_t{m.num_attention_heads} * m.v_head_dim}));
  for (std::uint64_t& wide : s.wide) wide = attention.floats(chunk, s.attention_width);
  s.narrow_width = pad16(std::max<std::uint64_t>(
      {m.q_lora_rank, std::uint64_t{m.kv_lora_rank} + m.qk_rope_head_dim, m.kda_head_dim, m.kda_heads}));
  s.narrow = attention.floats(chunk, s.narrow_width);
  s.narrow2 = attention.floats(chunk, s.narrow_width);
  s.beta = attention.floats(chunk, pad16(m.kda_heads));

  Carver mlp(kept.end());
  s.mlp_width = pad16(std::max<std::uint64_t>(m.intermediate_size,
                                              std::uint64_t{m.num_shared_experts} * m.moe_intermediate_size));
  s.mlp_gate = mlp.floats(chunk, s.mlp_width);
  s.mlp_up = mlp.floats(chunk, s.mlp_width);

  Carver moe(kept.end());
  if (!manifest.banks.empty()) {
    const ExpertQuant& quant = manifest.quant;
    const std::uint64_t pairs = chunk * m.num_experts_per_token;
    s.scores = moe.floats(chunk, pad16(m.num_experts));
    const std::uint64_t shared = pad16(std::uint64_t{m.num_shared_experts} * m.moe_intermediate_size);
    s.shared_gate = moe.floats(chunk, shared);
    s.shared_up = moe.floats(chunk, shared);
    s.latent = moe.floats(chunk, pad16(m.expert_width));
    s.mixed = moe.floats(chunk, pad16(m.expert_width));
    s.table_groups = ceil_div(m.expert_width / kVecDim, kTableGroup);
    s.table_bytes = s.table_groups * kTableGroup * quant.stages * kTableEntryBytes;
    const std::uint64_t tabled = std::min<std::uint64_t>(chunk, kTabledTokens);
    s.tables = moe.bytes(checked_mul(tabled * 2, s.table_bytes, "scratch"));
    s.table_scales = moe.floats(tabled * 2, s.table_groups);
    s.pair_gate = moe.floats(pairs, pad16(m.moe_intermediate_size));
    s.pair_up = moe.floats(pairs, pad16(m.moe_intermediate_size));
    s.pair_out = moe.floats(pairs, pad16(m.expert_width));
  }

  // A thread works on a few MLA heads over the whole chunk, or on one expert for its tokens.
  Carver heads;
  const std::uint64_t latent = std::uint64_t{m.kv_lora_rank} + m.qk_rope_head_dim;
  const std::uint64_t head_tokens = kAttentionHeads * chunk;
  // queries [latent], sums [kv_lora_rank], maximum, total; one block of the cache
  heads.floats(1, head_tokens * (latent + m.kv_lora_rank + 2) + kLatentRows * latent);
  s.thread_latent_groups = heads.bytes(chunk * ceil_div(m.kv_lora_rank, kQuantGroup) * kActivationGroupBytes);
  s.thread_latent_scales = heads.floats(chunk, ceil_div(m.kv_lora_rank, kQuantGroup));
  Carver expert;
  expert.floats(std::uint64_t{kTableGroup} * manifest.quant.stages, manifest.quant.entries);
  s.thread_table = expert.bytes(std::uint64_t{kTableGroup} * manifest.quant.stages * kTableEntryBytes);
  s.thread_sums =
      expert.floats(chunk, round_up(std::max(m.moe_intermediate_size, m.expert_width), kIndexBlock));
  s.thread_bytes = round_up(std::max(heads.end(), expert.end()), 4096);
  s.thread = round_up(std::max({attention.end(), mlp.end(), moe.end()}), 4096);
  s.total = checked_add(s.thread, checked_mul(options.threads, s.thread_bytes, "scratch"), "scratch");
  return s;
}

Footprint footprint(const Manifest& manifest, const FootprintOptions& options) {
  const ModelConfig& m = manifest.model;
  Footprint f;
  for (const TrunkTensor& t : manifest.trunk)
    if (resident(manifest, t)) f.trunk = checked_add(f.trunk, resident_bytes(t), "trunk");
  const std::uint64_t book_floats = std::uint64_t{manifest.quant.entries} * kVecDim * 4;
  f.codebooks =
      (manifest.codebooks_needed() + manifest.banks.size() * manifest.quant.books_per_layer()) * book_floats;

  const std::uint64_t channels = std::uint64_t{m.kda_heads} * m.kda_head_dim;
  const std::uint64_t tail = m.conv_kernel == 0 ? 0 : m.conv_kernel - 1;
  f.recurrent = checked_mul(
      m.kda_layers(),
      checked_mul(checked_mul(channels, m.kda_head_dim, "state") + 3 * tail * channels, 4, "state"), "state");
  const std::uint64_t positions = round_up(options.context, kLatentRows);
  f.latents = checked_mul(
      checked_mul(positions, (std::uint64_t{m.kv_lora_rank} + m.qk_rope_head_dim) * options.latent_bytes,
                  "latents"),
      m.mla_layers(), "latents");
  f.scratch = scratch_layout(manifest, options).total;
  if (!manifest.banks.empty()) {
    f.record = manifest.layout.record_bytes;
    f.experts = static_cast<std::uint32_t>(manifest.banks.size() * m.num_experts);
    f.least_records = std::min(m.num_experts_per_token + 1, f.experts);
  }
  f.process = kProcessBytes + CachePolicy::bytes(f.experts, f.experts);
  return f;
}

FootprintOptions with_chunk_for(const Manifest& manifest, FootprintOptions options, std::uint64_t budget) {
  options.chunk = kLeastChunk;
  const Footprint least = footprint(manifest, options);
  if (budget < least.floor()) return options;
  const auto extra = [&](std::uint32_t chunk) {
    FootprintOptions larger = options;
    larger.chunk = chunk;
    return scratch_layout(manifest, larger).total - least.scratch;
  };
  if (least.everything() + extra(kUsualChunk) <= budget) {
    options.chunk = kUsualChunk;
    return options;
  }
  const std::uint64_t spare = (budget - least.floor()) / 16;
  while (options.chunk < std::min(kMostChunk, options.context) && extra(2 * options.chunk) <= spare)
    options.chunk *= 2;
  return options;
}

std::uint32_t Footprint::cache_records(std::uint64_t budget) const {
  if (record == 0 || budget < floor()) return least_records;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((budget - fixed()) / record, experts));
}

std::string Footprint::describe() const {
  std::string text;
  const auto part = [&](std::string_view name, std::uint64_t bytes) {
    if (bytes == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(static_cast<double>(bytes)));
  };
  part("trunk", trunk);
  part("codebooks", codebooks);
  part("recurrent state", recurrent);
  part("latent cache", latents);
  part("scratch", scratch);
  part("program", process);
  part(fmt::format("{} expert records", least_records), least_records * record);
  return text;
}

std::uint64_t default_budget() {
  return machine_memory().usable / 4 * 3;
}

}  // namespace waste
