#include "convert/pipeline.h"

#include <sys/stat.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "container/core/memory.h"
#include "container/core/text.h"
#include "convert/extent_writer.h"
#include "convert/layer_stage.h"
#include "convert/memory_budget.h"
#include "convert/meter.h"
#include "convert/publish.h"
#include "convert/reclaim.h"
#include "convert/report.h"
#include "convert/source.h"
#include "convert/trunk_stage.h"

namespace waste::convert {

namespace {

// Everything that decides the output's bytes.
Json run_identity(const Source& source, const Recipe& recipe, const Importance& importance) {
  const std::string config = dump_json_line(*source.config);
  Json run;
  run["tool"] = std::string("waste-convert ") + WASTE_VERSION;
  run["source"] = source.checkpoint.identity().hex();
  run["config"] = xxh3_128({reinterpret_cast<const std::uint8_t*>(config.data()), config.size()}).hex();
  run["experts"] = format_name(recipe.experts.format);
  run["trunk"] = format_name(recipe.trunk);
  run["quality"] = quality_name(recipe.quality);
  run["codebook_sample"] = recipe.codebook_sample;
  run["importance"] = importance.digest() == Digest128{} ? "none" : importance.digest().hex();
  return run;
}

// True when `out` already holds what this run would make; anything else under a manifest is refused.
bool already_published(const Options& options, const Json& run) {
  const fs::path path = options.out / kManifestFile;
  if (!fs::exists(path)) return false;
  const Manifest manifest = parse_manifest(read_text_file(path, kMaxManifestBytes), path.string());
  const Json* earlier = json_find(manifest.extra, "conversion");
  if (earlier == nullptr)
    fail(ErrorKind::Usage, "{} holds a container written by another tool", options.out.string());
  refuse_other_run(*earlier, run,
                   fmt::format("{} holds a container that was converted", options.out.string()));
  return true;
}

// Reads back every unit that the journal calls complete and forgets those whose bytes have changed.
Converted verified_units(const Plan& plan, const fs::path& out, const Journal& journal,
                         cli::ProgressLine& line) {
  Converted found;
  found.trunk = journal.trunk();
  std::vector<std::uint32_t> complete;
  for (const LayerItem& item : plan.layers) {
    const std::uint32_t layer = item.source->layer;
    UnitState& state = found.layers[layer] = journal.layer(layer);
    if (state.complete) complete.push_back(layer);
  }
  const auto item_of = [&](std::uint32_t layer) -> const LayerItem& {
    return *std::find_if(plan.layers.begin(), plan.layers.end(),
                         [&](const LayerItem& item) { return item.source->layer == layer; });
  };
  if (found.trunk.complete && !matches(out / kTrunkFile, sealed_trunk(plan, found.trunk))) {
    line.print("trunk.bin is not what the journal says: converting it again");
    found.trunk = {};
  }
  tbb::parallel_for(std::size_t{0}, complete.size(), [&](std::size_t i) {
    UnitState& state = found.layers.at(complete[i]);
    if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted while verifying finished layers");
    line.show(-1, [&] { return fmt::format("verifying layer {}", complete[i]); });
    const LayerItem& item = item_of(complete[i]);
    if (state.books && journal.load_books(complete[i], *state.books) &&
        matches(out / item.bank.file, sealed_bank(plan, item, state))) {
      return;
    }
    line.print(fmt::format("{} is not what the journal says: converting it again", item.bank.file));
    state = {};
  });
  return found;
}

Progress progress_of(const Converted& converted) {
  Progress done;
  done.trunk_tensors = converted.trunk.items;
  for (const auto& [layer, state] : converted.layers) {
    if (state.complete) done.layers.insert(layer);
  }
  return done;
}

// Disk that an interrupted run has reserved under partial names, and this one will fill.
std::uint64_t reserved_bytes(const fs::path& out, const Converted& converted) {
  std::uint64_t reserved = 0;
  if (!fs::is_directory(out)) return 0;
  for (const auto& entry : fs::directory_iterator(out)) {
    struct stat st {};
    if (entry.path().extension() == ".partial" && ::stat(entry.path().c_str(), &st) == 0) {
      reserved += static_cast<std::uint64_t>(st.st_blocks) * 512;
    }
  }
  // The durable part of the trunk is not to be written again; a bank's is small, and counted as if it were.
  const std::uint64_t durable = converted.trunk.complete ? 0 : converted.trunk.bytes;
  return reserved - std::min(reserved, durable);
}

void refuse_full_disk(const Options& options, const DiskNeed& need, std::uint64_t reserved) {
  const std::uint64_t free = free_space(options.out) + reserved;
  if (need.peak <= free) return;
  const auto size = [](std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  fail(ErrorKind::Machine, "{}: {} must still be written ({} bytes at the peak), {} are free: {} short",
       options.out.string(), size(need.to_write), need.peak, size(free), size(need.peak - free));
}

std::uint64_t weights_done(const Plan& plan, const Converted& converted) {
  std::uint64_t weights = 0;
  for (std::size_t i = 0; i < converted.trunk.items; ++i) weights += plan.trunk[i].source->shape.volume();
  for (const auto& [layer, state] : converted.layers) weights += state.items * plan.model.expert_parameters();
  return weights;
}

// Codebooks for a layer: those that its earlier run saved, or newly trained ones.
LayerBooks books_for(const Source& source, const Plan& plan, const LayerItem& item,
                     const Importance& importance, const Journal& journal, UnitState& state,
                     StageTimes& times) {
  if (state.books) {
    if (auto file = journal.load_books(item.source->layer, *state.books)) return {plan, std::move(*file)};
    state = {};
  }
  return LayerBooks::train(source.checkpoint, plan, item, importance, times);
}

// Trains the next layer's codebooks while the present layer is being encoded.
void convert_layers(const Source& source, const Plan& plan, const Importance& importance,
                    const Options& options, const Journal& journal, const MemoryBudget& budget,
                    Converted& converted, Reclaimer& reclaimer, Report& report, Meter& meter) {
  std::vector<const LayerItem*> todo;
  for (const LayerItem* item : selected_layers(plan, options)) {
    if (!converted.layers.at(item->source->layer).complete) todo.push_back(item);
  }
  const auto state_of = [&](const LayerItem& item) -> UnitState& {
    return converted.layers.at(item.source->layer);
  };
  std::optional<LayerBooks> next;
  const auto prepare = [&](const LayerItem& item) {
    next.emplace(books_for(source, plan, item, importance, journal, state_of(item), meter.times()));
  };
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const LayerItem& item = *todo[i];
    if (!next) prepare(item);
    const LayerBooks books = *std::exchange(next, std::nullopt);
    tbb::task_group training;
    if (i + 1 < todo.size()) training.run([&] { prepare(*todo[i + 1]); });
    try {
      convert_layer(source.checkpoint, plan, item, books, importance, options.out, journal, budget.experts,
                    state_of(item), meter);
    } catch (...) {
      training.cancel();
      training.wait();
      throw;
    }
    report.layer(item.source->layer, state_of(item).errors);
    for (const std::string& line : reclaimer.layer_done(item.source->layer)) report.note(line);
    training.wait();
  }
}

}  // namespace

int run_conversion(const Options& options) {
  const double begin = now_seconds();
  tbb::global_control limit(tbb::global_control::max_allowed_parallelism, options.threads);
  tbb::task_arena arena(static_cast<int>(options.threads));
  cli::ProgressLine line(options.quiet);
  Report report(options, line);

  // Plan. Until it has been printed, nothing is written.
  const Source source = open_source(options.source, Journal::reclaimed(options.out));
  const Plan plan = make_plan(source.checkpoint, source.map, source.model, *source.config, options.recipe);
  const Importance importance =
      options.importance.empty() ? Importance() : Importance::load(options.importance, plan);
  const Json run = run_identity(source, options.recipe, importance);
  check_reclaim_is_safe(source.checkpoint, options);
  if (already_published(options, run)) {
    report.note(fmt::format("{}: already converted, nothing to do", options.out.string()));
    return 0;
  }
  const bool same_disk = same_file_system(options.source, options.out);
  report.plan(plan, source, disk_need(plan, source.checkpoint, options, {}, same_disk));
  if (options.dry_run) {
    refuse_full_disk(options, disk_need(plan, source.checkpoint, options, {}, same_disk), 0);
    return 0;
  }

  // Resume. From here on the folder is ours, and what is left to do is fixed.
  const MemoryBudget budget = plan_memory(plan, options);
  const Journal journal(options.out, run);
  Meter meter(line, plan.trunk_weights + plan.expert_weights);
  arena.execute([&] {
    Converted converted = verified_units(plan, options.out, journal, line);
    refuse_full_disk(options, disk_need(plan, source.checkpoint, options, progress_of(converted), same_disk),
                     reserved_bytes(options.out, converted));
    meter.start(weights_done(plan, converted));
    Reclaimer reclaimer(source.checkpoint, plan, options, journal);

    // Trunk.
    if (!options.probe) {
      if (!converted.trunk.complete) {
        convert_trunk(source.checkpoint, plan, options.out, journal, budget.blocks, converted.trunk, meter);
      }
      for (const std::string& text : reclaimer.trunk_done()) report.note(text);
    }
    for (const auto& [layer, state] : converted.layers) {
      if (!state.complete || options.probe) continue;
      for (const std::string& text : reclaimer.layer_done(layer)) report.note(text);
    }

    // Train and encode.
    convert_layers(source, plan, importance, options, journal, budget, converted, reclaimer, report, meter);

    // Publish.
    if (options.whole()) publish_container(plan, converted, source.sidecars, run, options.out, journal);
    report.done(plan, quality_of(converted).json(plan), meter, now_seconds() - begin);
  });
  return 0;
}

}  // namespace waste::convert
