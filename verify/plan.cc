#include "verify/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "container/core/checked.h"
#include "container/core/text.h"
#include "container/format/codebooks.h"

namespace waste::verify {

namespace {

bool is_embedding(const TrunkTensor& t) {
  return t.name.ends_with("embed_tokens.weight");
}

// That engine's converter keeps the dense layers' MLPs at four bits, as the rest of a Q4G trunk.
std::uint64_t v0_trunk_bytes(const TrunkTensor& t) {
  if (t.format != TensorFormat::Q8G || t.name.find(".mlp.") == std::string::npos) return t.bytes;
  const TrunkBytes bytes = trunk_bytes(TensorFormat::Q4G, t.rows(), t.cols(), t.name);
  return bytes.data + bytes.scales;
}

std::uint64_t latent_bytes(const ModelConfig& m, std::uint64_t context, std::uint64_t width) {
  const std::uint64_t values = std::uint64_t{m.kv_lora_rank} + m.qk_rope_head_dim;
  return checked_mul(checked_mul(context, values * width, "latents"), m.mla_layers(), "latents");
}

}  // namespace

std::vector<FloorLine> floor_lines(const Manifest& manifest, const FootprintOptions& options) {
  const Footprint f = footprint(manifest, options);
  const ModelConfig& m = manifest.model;
  return {
      {"trunk", f.trunk,
       "every tensor but routed experts; embed_tokens stays on disk (one row a token), vision is not loaded"},
      {"codebooks", f.codebooks, "decoded to float32, in both orders that the kernels read"},
      {"recurrent state", f.recurrent,
       fmt::format("{} KDA layers, float32, the same for any context", m.kda_layers())},
      {"latent cache", f.latents,
       fmt::format("{} MLA layers x {} positions, {} bytes a value", m.mla_layers(), options.context,
                   options.latent_bytes)},
      {"scratch", f.scratch,
       fmt::format("activations of {} positions at a time, {} threads", options.chunk, options.threads)},
      {"program", f.process, "libraries, manifest, the cache's bookkeeping: an allowance"},
      {"smallest cache", f.least_records * f.record, fmt::format("{} expert records", f.least_records)},
  };
}

std::vector<FloorLine> v0_floor_lines(const Manifest& manifest, std::uint32_t context) {
  const ModelConfig& m = manifest.model;
  const Footprint f = footprint(manifest, {.context = context, .latent_bytes = 4});
  std::uint64_t trunk = 0;
  std::uint64_t table = 0;
  for (const TrunkTensor& t : manifest.trunk) {
    if (is_embedding(t)) {
      table += t.bytes;
    } else if (resident(manifest, t)) {
      trunk += v0_trunk_bytes(t);
    }
  }
  return {
      {"trunk", trunk, "every tensor but routed experts, without vision"},
      {"embed_tokens", table, "in memory"},
      {"recurrent state", f.recurrent, fmt::format("{} KDA layers, float32", m.kda_layers())},
      {"latent cache", latent_bytes(m, context, 4),
       fmt::format("{} MLA layers x {} positions, 4 bytes a value", m.mla_layers(), context)},
      {"smallest cache", m.num_experts_per_token * f.record,
       fmt::format("{} expert records", m.num_experts_per_token)},
  };
}

std::uint64_t total_bytes(const std::vector<FloorLine>& lines) {
  std::uint64_t sum = 0;
  for (const FloorLine& line : lines) sum = checked_add(sum, line.bytes, "floor");
  return sum;
}

std::vector<std::uint64_t> budgets(const Manifest& manifest, FootprintOptions options,
                                   const std::vector<std::uint64_t>& extra) {
  options.chunk = kLeastChunk;
  const std::uint64_t low = footprint(manifest, options).floor();
  options.chunk = kUsualChunk;
  const std::uint64_t high = footprint(manifest, options).everything();
  std::vector<std::uint64_t> out = {low, high};
  constexpr std::uint64_t kRound[] = {1,  2,  3,  4,   6,   8,   12,  16,  24, 32,
                                      48, 64, 96, 128, 192, 256, 384, 512, 768};
  for (const std::uint64_t unit :
       {std::uint64_t{1'000'000}, std::uint64_t{1'000'000'000}, std::uint64_t{1'000'000'000'000}}) {
    for (const std::uint64_t n : kRound) {
      if (n * unit > low + low / 16 && n * unit < high) out.push_back(n * unit);
    }
  }
  for (const std::uint64_t budget : extra) {
    if (budget > low && budget < high) out.push_back(budget);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

BudgetRow budget_row(const Manifest& manifest, const FootprintOptions& options, const ModelFacts& facts,
                     const HitCurve& hits, const Speeds& speeds, std::uint64_t budget) {
  const FootprintOptions sizes = with_chunk_for(manifest, options, budget);
  const Footprint f = footprint(manifest, sizes);
  BudgetRow row{.budget = budget, .records = f.cache_records(budget), .chunk = sizes.chunk};
  if (f.experts > 0) {
    row.share = static_cast<double>(row.records) / f.experts;
    row.hit_rate = hits.rate(row.records, f.experts);
  } else {
    row.share = row.hit_rate = 1;
  }
  row.read_bytes = (1 - row.hit_rate) * static_cast<double>(facts.pick_bytes);
  const double disk = row.read_bytes / (speeds.disk_gb_per_s * 1e9);
  const double touched = static_cast<double>(f.trunk + facts.pick_bytes + f.state());
  const double compute = speeds.gflops > 0
                             ? 2 * static_cast<double>(facts.active_parameters) / (speeds.gflops * 1e9)
                             : touched / (speeds.weight_gb_per_s * 1e9);
  row.tokens_per_s = 1 / (disk + compute);
  return row;
}

DiskNeed disk_need(const Manifest& manifest, std::uint64_t source_bytes) {
  DiskNeed need{.source = source_bytes};
  const std::uint64_t trunk = manifest.trunk_end();
  const std::uint64_t books = manifest.codebooks_needed() * codebook_bytes(manifest.quant);
  std::uint64_t largest = 0;
  for (const auto& [layer, bank] : manifest.banks) {
    need.container += bank.bytes;
    largest = std::max(largest, bank.bytes);
  }
  need.container += trunk + books;
  need.peak = checked_add(source_bytes, need.container, "disk");
  // A layer's bank is smaller than its share of the source, which goes when the bank is there: the peak is
  // the first.
  need.peak_reclaim = std::min(need.peak, source_bytes + trunk + books + largest);
  return need;
}

}  // namespace waste::verify
