// Everything that will be written, and where, before the first byte of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/format/manifest.h"
#include "convert/model_map.h"
#include "convert/options.h"

namespace waste::convert {

struct TrunkItem {
  const Tensor* source = nullptr;
  TrunkTensor place;
};

struct LayerItem {
  const LayerSource* source = nullptr;
  Bank bank;
};

// NOLINTNEXTLINE(bugprone-exception-escape): nlohmann's move constructor is noexcept and asserts
struct Plan {
  ModelConfig model;
  Json config;  // as the manifest stores it
  Recipe recipe;
  ExpertLayout layout;
  std::vector<TrunkItem> trunk;   // by name, which is also the order in trunk.bin
  std::vector<LayerItem> layers;  // all MoE layers, ascending, whatever --layers says

  std::uint64_t trunk_bytes = 0;
  std::uint64_t bank_bytes = 0;  // of all layers
  std::uint64_t codebook_bytes = 0;
  std::uint64_t trunk_weights = 0;
  std::uint64_t expert_weights = 0;
  std::uint64_t source_bytes = 0;

  std::uint64_t layer_weights() const { return layers.empty() ? 0 : expert_weights / layers.size(); }
  std::uint64_t output_bytes() const { return trunk_bytes + bank_bytes + codebook_bytes; }
};

Plan make_plan(const Checkpoint& checkpoint, const ModelMap& map, const ModelConfig& model,
               const Json& config, const Recipe& recipe);

/// What is durable when a run begins.
struct Progress {
  std::uint64_t trunk_tensors = 0;
  std::set<std::uint32_t> layers;
};

/// Disk this run will need on the output's file system.
struct DiskNeed {
  std::uint64_t to_write = 0;     // in total
  std::uint64_t peak = 0;         // at the worst moment, after what reclaiming has given back by then
  std::uint64_t reclaimable = 0;  // bytes of shards that reclaiming deletes
};

DiskNeed disk_need(const Plan& plan, const Checkpoint& checkpoint, const Options& options,
                   const Progress& done, bool same_disk);

/// Seconds the encoding is expected to take on `threads` cores at the speed measured on the development
/// machine.
double expected_seconds(const Plan& plan, const Options& options, const Progress& done);

/// The layers this run converts.
std::vector<const LayerItem*> selected_layers(const Plan& plan, const Options& options);

/// The plan as lines for people, and as one object for --json.
std::string describe_plan(const Plan& plan, const Checkpoint& checkpoint, const ModelMap& map,
                          const Options& options, const DiskNeed& need, std::uint64_t free, double seconds);
Json plan_json(const Plan& plan, const Checkpoint& checkpoint, const ModelMap& map, const DiskNeed& need,
               std::uint64_t free, double seconds);

}  // namespace waste::convert
