#include "convert/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "container/core/checked.h"
#include "container/core/simd.h"
#include "container/core/text.h"
#include "container/footprint/conversion_rate.h"
#include "container/format/codebooks.h"
#include "container/format/trunk_recipe.h"
#include "convert/consumers.h"

namespace waste::convert {

namespace {

// Offsets of large tensors are page-aligned, so that a reader can fetch rows past the page cache; small ones,
// which are read once at start, only start on a cache line.
constexpr std::uint64_t kLargeAlignment = 4096;
constexpr std::uint64_t kSmallAlignment = 64;
constexpr std::uint64_t kLargeBytes = 64 << 10;

// Journal, sidecars, quality report, seal and manifest: about 40 MB for Kimi K3.
std::uint64_t small_files_bytes(const Plan& plan) {
  constexpr std::uint64_t kSidecars = 8 << 20;
  return kSidecars + 2 * plan.codebook_bytes + 256 * plan.layers.size() * plan.model.num_experts +
         512 * plan.trunk.size();
}

std::vector<std::uint64_t> stored_shape(const Shape& shape, TensorFormat format) {
  if (format == TensorFormat::F32 || shape.rank <= 2) return {shape.span().begin(), shape.span().end()};
  // A quantised tensor is rows of its last axis; a convolution kernel is one row an output channel.
  const std::uint64_t volume = shape.volume();
  const std::uint64_t rows = shape.rank == 4 ? shape.dims[0] : volume / shape.dims[shape.rank - 1u];
  return {rows, volume / rows};
}

TrunkTensor place_tensor(const Tensor& source, TensorFormat format, std::uint64_t end) {
  TrunkTensor place;
  place.name = std::string(source.name);
  place.format = format;
  place.shape = stored_shape(source.shape, format);
  const TrunkBytes bytes = trunk_bytes(format, place.rows(), place.cols(), place.name);
  place.bytes = bytes.data + bytes.scales;
  place.offset = round_up(end, place.bytes >= kLargeBytes ? kLargeAlignment : kSmallAlignment);
  if (place.quantised()) place.scale_offset = place.offset + bytes.data;
  return place;
}

}  // namespace

Plan make_plan(const Checkpoint& checkpoint, const ModelMap& map, const ModelConfig& model,
               const Json& config, const Recipe& recipe) {
  Plan plan;
  plan.model = model;
  plan.config = manifest_config(config);
  plan.recipe = recipe;
  plan.layout = expert_layout(model, recipe.experts);
  plan.source_bytes = checkpoint.bytes();
  for (const Tensor* source : map.trunk) {
    const TensorFormat format =
        trunk_format(source->name, source->shape.rank, source->shape.volume(), recipe.trunk);
    plan.trunk.push_back({source, place_tensor(*source, format, plan.trunk_bytes)});
    const TrunkTensor& place = plan.trunk.back().place;
    plan.trunk_bytes = place.offset + place.bytes;
    plan.trunk_weights += source->shape.volume();
  }
  std::uint32_t base = 0;
  for (const LayerSource& source : map.moe_layers) {
    Bank bank;
    bank.file = bank_file_name(source.layer);
    bank.experts = model.num_experts;
    bank.bytes = std::uint64_t{model.num_experts} * plan.layout.record_bytes;
    bank.codebook_base = base;
    base += recipe.experts.books_per_layer();
    plan.bank_bytes += bank.bytes;
    plan.expert_weights += model.num_experts * model.expert_parameters();
    plan.layers.push_back({&source, std::move(bank)});
  }
  plan.codebook_bytes = base * codebook_bytes(recipe.experts);
  return plan;
}

std::vector<const LayerItem*> selected_layers(const Plan& plan, const Options& options) {
  std::vector<const LayerItem*> selected;
  for (const LayerItem& item : plan.layers) {
    if (options.layers && !options.layers->contains(item.source->layer)) continue;
    selected.push_back(&item);
    if (options.probe) break;
  }
  if (options.layers && selected.size() != options.layers->size()) {
    for (const std::uint32_t layer : *options.layers) {
      const auto same = [&](const LayerItem* item) { return item->source->layer == layer; };
      if (std::none_of(selected.begin(), selected.end(), same)) {
        fail(ErrorKind::Usage, "--layers: layer {} is not an MoE layer of this model", layer);
      }
    }
  }
  return selected;
}

DiskNeed disk_need(const Plan& plan, const Checkpoint& checkpoint, const Options& options,
                   const Progress& done, bool same_disk) {
  DiskNeed need;
  Consumers consumers(checkpoint, plan);
  std::uint64_t freed = 0;
  const auto release = [&](const std::vector<std::uint32_t>& shards) {
    for (const std::uint32_t shard : shards) {
      if (!checkpoint.shards()[shard].reclaimed) freed += checkpoint.shards()[shard].size;
    }
  };
  const auto write = [&](std::uint64_t bytes) {
    need.to_write += bytes;
    need.peak = std::max(need.peak, need.to_write - (same_disk ? std::min(freed, need.to_write) : 0));
  };
  const bool reclaim = options.reclaim == Reclaim::On && options.whole();
  write(small_files_bytes(plan));
  if (!options.probe) {
    const bool all = done.trunk_tensors == plan.trunk.size();
    write(all ? 0
              : plan.trunk_bytes -
                    (done.trunk_tensors == 0 ? 0 : plan.trunk[done.trunk_tensors].place.offset));
  }
  if (reclaim) release(consumers.finish_trunk());
  for (const LayerItem* item : selected_layers(plan, options)) {
    if (!done.layers.contains(item->source->layer)) write(item->bank.bytes);
    if (reclaim) release(consumers.finish_layer(item->source->layer));
  }
  need.reclaimable = freed;
  return need;
}

namespace {

struct Pace {
  double rate;      // weights encoded a second and core
  double training;  // what one sampled weight costs in training, in weights encoded
};

Pace pace_of(Quality quality) {
  const ConversionRate rates = conversion_rate(simd_level());
  switch (quality) {
    case Quality::Fast:
      return {rates.fast, 54};
    case Quality::Normal:
      return {rates.normal, 31};
    case Quality::Best:
      break;
  }
  return {rates.best, 21};
}

}  // namespace

double expected_seconds(const Plan& plan, const Options& options, const Progress& done) {
  const Pace pace = pace_of(plan.recipe.quality);
  const double layer = static_cast<double>(plan.layer_weights());
  const double sample = static_cast<double>(plan.recipe.codebook_sample * kVecDim * kMatrixKinds);
  const double layer_cost = layer + std::min(sample, layer) * pace.training;
  double cost = 0;
  for (const LayerItem* item : selected_layers(plan, options)) {
    if (!done.layers.contains(item->source->layer)) cost += layer_cost;
  }
  return cost / (pace.rate * options.threads);
}

std::string describe_plan(const Plan& plan, const Checkpoint& checkpoint, const ModelMap& map,
                          const Options& options, const DiskNeed& need, std::uint64_t free, double seconds) {
  const ModelConfig& m = plan.model;
  std::string out;
  const auto line = [&](std::string_view key, const std::string& value) {
    out += fmt::format("  {:<12} {}\n", key, value);
  };
  out += fmt::format("{}: {} to {}\n", options.source.string(), m.arch, options.out.string());
  line("source", fmt::format("{} tensors in {} shards, {} ({} bytes)", checkpoint.tensors().size(),
                             checkpoint.shards().size(), format_bytes(static_cast<double>(plan.source_bytes)),
                             plan.source_bytes));
  line("model", fmt::format("{} layers, {} with {} experts; {} parameters", m.num_layers, plan.layers.size(),
                            m.num_experts, plan.trunk_weights + plan.expert_weights));
  line("experts",
       fmt::format("{}, {} bits a weight, quality {}: {} ({} bytes)", format_name(plan.recipe.experts.format),
                   plan.recipe.experts.bits_per_weight(), quality_name(plan.recipe.quality),
                   format_bytes(static_cast<double>(plan.bank_bytes)), plan.bank_bytes));
  line("record",
       fmt::format("{} bytes an expert, {} a layer", plan.layout.record_bytes,
                   format_bytes(plan.layers.empty() ? 0 : static_cast<double>(plan.layers[0].bank.bytes))));
  line("trunk",
       fmt::format("{} tensors, {}: {} ({} bytes)", plan.trunk.size(), format_name(plan.recipe.trunk),
                   format_bytes(static_cast<double>(plan.trunk_bytes)), plan.trunk_bytes));
  line("codebooks", format_bytes(static_cast<double>(plan.codebook_bytes)));
  line("this run", fmt::format("{} layers{}", selected_layers(plan, options).size(),
                               options.probe    ? " (a probe)"
                               : options.layers ? "; the container stays unpublished"
                                                : ""));
  line("disk",
       fmt::format("{} to write, {} at the peak, {} free", format_bytes(static_cast<double>(need.to_write)),
                   format_bytes(static_cast<double>(need.peak)), format_bytes(static_cast<double>(free))));
  if (need.reclaimable != 0) {
    line("reclaim", fmt::format("{} of the source will be deleted as it is converted",
                                format_bytes(static_cast<double>(need.reclaimable))));
  }
  line("time",
       fmt::format("about {} on {} threads (an estimate)", format_duration(seconds), options.threads));
  if (!map.unused.empty()) {
    line("unused", fmt::format("{} tensors that this model has no place for, the first {}", map.unused.size(),
                               printable(map.unused[0]->name)));
  }
  return out;
}

Json plan_json(const Plan& plan, const Checkpoint& checkpoint, const ModelMap& map, const DiskNeed& need,
               std::uint64_t free, double seconds) {
  Json out;
  out["event"] = "plan";
  out["arch"] = plan.model.arch;
  out["tensors"] = checkpoint.tensors().size();
  out["shards"] = checkpoint.shards().size();
  out["source_bytes"] = plan.source_bytes;
  out["layers"] = plan.model.num_layers;
  out["moe_layers"] = plan.layers.size();
  out["experts"] = plan.model.num_experts;
  out["parameters"] = plan.trunk_weights + plan.expert_weights;
  out["trunk_weights"] = plan.trunk_weights;
  out["expert_weights"] = plan.expert_weights;
  out["record_bytes"] = plan.layout.record_bytes;
  out["bank_bytes"] = plan.bank_bytes;
  out["trunk_tensors"] = plan.trunk.size();
  out["trunk_bytes"] = plan.trunk_bytes;
  out["codebook_bytes"] = plan.codebook_bytes;
  out["to_write_bytes"] = need.to_write;
  out["peak_bytes"] = need.peak;
  out["reclaimable_bytes"] = need.reclaimable;
  out["free_bytes"] = free;
  out["expected_seconds"] = seconds;
  out["unused_tensors"] = map.unused.size();
  return out;
}

}  // namespace waste::convert
