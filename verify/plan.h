// What a model needs and what a machine makes of it: arithmetic alone, no measurement and no output. Bytes of
// memory are container/footprint's, which the runtime allocates from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "container/footprint/footprint.h"
#include "container/format/manifest.h"
#include "verify/facts.h"
#include "verify/hit_curve.h"

namespace waste::verify {

/// One part of the floor.
struct FloorLine {
  std::string name;
  std::uint64_t bytes = 0;
  std::string why;
};

/// The floor's parts, in the order in which they are printed; their sum is Footprint::floor().
std::vector<FloorLine> floor_lines(const Manifest& manifest, const FootprintOptions& options);

/// The floor of the C engine that version-0 containers come from ("v0-f32"): float32 latents, embed_tokens in
/// memory, a trunk of Q4G, a cache of one token's experts in one layer. Reproduces the four floors it
/// publishes for Kimi K3 within 1%.
std::vector<FloorLine> v0_floor_lines(const Manifest& manifest, std::uint32_t context);

std::uint64_t total_bytes(const std::vector<FloorLine>& lines);

/// Speeds a plan is computed with, each with where it comes from.
struct Speeds {
  double disk_gb_per_s = 0;  // random reads of whole records
  std::string disk_source;
  double weight_gb_per_s = 0;  // weights in memory that the kernels get through; 0 when gflops says it
  double gflops = 0;
  std::string compute_source;
};

struct BudgetRow {
  std::uint64_t budget = 0;   // bytes of memory
  std::uint64_t records = 0;  // the cache holds
  std::uint32_t chunk = 0;    // positions that prefill computes together
  double share = 0;           // of all experts
  double hit_rate = 0;
  double read_bytes = 0;  // from disk, a token
  double tokens_per_s = 0;
};

/// The budgets worth a row: the floor, round sizes between, `extra` where it lies between, and everything.
/// `options`' chunk is not looked at: each budget pays for its own.
std::vector<std::uint64_t> budgets(const Manifest& manifest, FootprintOptions options,
                                   const std::vector<std::uint64_t>& extra);

/// One token reads what misses and multiplies with everything it uses; the two are added, for reads that
/// overlap with computation depend on knowing the experts in time.
BudgetRow budget_row(const Manifest& manifest, const FootprintOptions& options, const ModelFacts& facts,
                     const HitCurve& hits, const Speeds& speeds, std::uint64_t budget);

/// Bytes of disk.
struct DiskNeed {
  std::uint64_t source = 0;
  std::uint64_t container = 0;
  std::uint64_t peak = 0;          // both, while converting
  std::uint64_t peak_reclaim = 0;  // when shards are deleted as they are used up
};
DiskNeed disk_need(const Manifest& manifest, std::uint64_t source_bytes);

}  // namespace waste::verify
