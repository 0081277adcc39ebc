#include "convert/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convert/consumers.h"
#include "convert/problems.h"
#include "convert/source.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"

namespace waste::convert {
namespace {

Recipe vq3() {
  Recipe recipe;
  recipe.experts = ExpertQuant::vq3();
  recipe.codebook_sample = 1024;
  return recipe;
}

Plan plan_of(const Source& source, const Recipe& recipe) {
  return make_plan(source.checkpoint, source.map, source.model, *source.config, recipe);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("model map: both bundled checkpoints are complete, and nothing in them is left over") {
  const Source k3 = open_source(data_dir() / "tiny-k3", {});
  CHECK(k3.map.trunk.size() == 252);
  CHECK(k3.map.unused.empty());
  REQUIRE(k3.map.moe_layers.size() == 8);
  CHECK(k3.map.moe_layers[0].layer == 1);
  REQUIRE(k3.map.moe_layers[0].experts.size() == 32);
  const auto& matrices = k3.map.moe_layers[7].experts[31];
  CHECK(matrices[0].weight->name ==
        "language_model.model.layers.8.block_sparse_moe.experts.31.w1.weight_packed");
  CHECK(matrices[1].scale->name ==
        "language_model.model.layers.8.block_sparse_moe.experts.31.w3.weight_scale");
  CHECK(matrices[2].weight->shape == Shape{128, 96});

  const Source linear = open_source(data_dir() / "tiny-linear", {});
  CHECK(linear.map.trunk.size() == 101);
  CHECK(linear.map.unused.empty());
  CHECK(linear.map.moe_layers[0].experts[0][2].weight->shape == Shape{128, 64});
  CHECK(linear.map.moe_layers[0].experts[0][2].scale == nullptr);
}

TEST_CASE("model map: what a model lacks is listed at once, experts of a layer in one entry") {
  const Source source = open_source(data_dir() / "tiny-linear", {});
  ModelConfig model = source.model;
  model.vocab_size += 1;
  model.num_experts = 18;
  model.q_lora_rank = 8;
  const std::string message = error_of([&] { map_model(source.checkpoint, model, *source.config); });
  const auto says = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  CHECK(says("tensor lm_head.weight: expected shape [2305, 128], found [2304, 128]"));
  CHECK(says("tensor model.layers.1.block_sparse_moe.experts.*.w1.weight is missing (2 times)"));
  CHECK(says("tensor model.layers.3.self_attn.q_a_proj.weight is missing"));
  CHECK(!says("model.layers.2.self_attn.q_a_proj"));
  CHECK(says("gate.weight: expected shape [18, 128], found [16, 128]"));

  Json config = *source.config;
  config["quantization_config"] = {{"format", "int4"}, {"config_groups", Json::object()}};
  CHECK(error_of([&] {
          map_model(source.checkpoint, source.model, config);
        }).find("\"int4\" is not supported") != std::string::npos);
  model.arch = "something";
  CHECK(error_of([&] {
          map_model(source.checkpoint, model, *source.config);
        }).find("supported: kimi-k3, kimi-linear") != std::string::npos);
}

TEST_CASE("problems: one line, and a long list is cut") {
  Problems problems;
  CHECK(error_of([&] { problems.fail_if_any("x"); }).empty());
  for (int i = 0; i < 60; ++i) problems.add(fmt::format("p{}", i));
  const std::string message = error_of([&] { problems.fail_if_any("x"); });
  CHECK(message.starts_with("x: 60 problems: p0; p1; "));
  CHECK(message.ends_with("p49; and 10 more"));
}

TEST_CASE("plan: places are in order, aligned, apart, and as large as the format says") {
  const Source source = open_source(data_dir() / "tiny-k3", {});
  const Plan plan = plan_of(source, vq3());
  std::uint64_t end = 0;
  for (const TrunkItem& item : plan.trunk) {
    const TrunkTensor& place = item.place;
    CHECK(place.offset >= end);
    CHECK(place.offset % (place.bytes >= 65536 ? 4096 : 64) == 0);
    end = place.offset + place.bytes;
  }
  CHECK(plan.trunk_bytes == end);
  CHECK(std::is_sorted(plan.trunk.begin(), plan.trunk.end(),
                       [](const TrunkItem& a, const TrunkItem& b) { return a.place.name < b.place.name; }));
  CHECK(plan.layers[3].bank.codebook_base == 27);
  CHECK(plan.layers[3].bank.bytes == 32 * 32768);
  CHECK(plan.codebook_bytes == 8 * 9 * (16 + 256 * 16));
}

TEST_CASE("plan: a kernel of four dimensions and a stack of three become rows") {
  // Large enough to be quantised: from a source whose shapes are invented.
  const TempDir dir;
  const Source source = open_source(data_dir() / "tiny-k3", {});
  ModelMap map = source.map;
  Tensor kernel = *source.checkpoint.find("vision_tower.patch_embed.proj.weight");
  kernel.shape = Shape{1024, 3, 14, 14};
  Tensor stack = *source.checkpoint.find("vision_tower.patch_embed.pos_emb.weight");
  stack.shape = Shape{64, 64, 1024};
  map.trunk = {&stack, &kernel};
  const Plan plan = make_plan(source.checkpoint, map, source.model, *source.config, vq3());
  CHECK(plan.trunk[0].place.shape == std::vector<std::uint64_t>{4096, 1024});
  CHECK(plan.trunk[1].place.shape == std::vector<std::uint64_t>{1024, 588});
  CHECK(plan.trunk[1].place.bytes == 1024 * 5 * (128 + 2));
}

TEST_CASE("consumers: a shard is free when its last unit is done, and not before") {
  const Source source = open_source(data_dir() / "tiny-linear", {});
  const Plan plan = plan_of(source, vq3());
  Consumers consumers(source.checkpoint, plan);
  std::vector<std::uint32_t> freed = consumers.finish_trunk();
  CHECK(freed.size() < 3);
  for (const std::uint32_t layer : {1u, 2u, 3u, 4u}) {
    const auto now = consumers.finish_layer(layer);
    for (const std::uint32_t shard : now) {
      // No later layer may read from it.
      for (const LayerItem& item : plan.layers) {
        if (item.source->layer <= layer) continue;
        for (const auto& expert : item.source->experts) {
          for (const MatrixSource& m : expert) CHECK(m.weight->shard != shard);
        }
      }
    }
    freed.insert(freed.end(), now.begin(), now.end());
    CHECK(consumers.finish_layer(layer).empty());
  }
  std::sort(freed.begin(), freed.end());
  CHECK(freed == std::vector<std::uint32_t>{0, 1, 2});
}

TEST_CASE("plan: reclaiming on the same disk lowers the peak, what is durable lowers the rest") {
  const Source source = open_source(data_dir() / "tiny-linear", {});
  const Plan plan = plan_of(source, vq3());
  Options options;
  options.recipe = plan.recipe;
  const DiskNeed plain = disk_need(plan, source.checkpoint, options, {}, true);
  CHECK(plain.peak == plain.to_write);
  CHECK(plain.to_write >= plan.output_bytes());
  CHECK(plain.reclaimable == 0);
  options.reclaim = Reclaim::On;
  const DiskNeed reclaiming = disk_need(plan, source.checkpoint, options, {}, true);
  CHECK(reclaiming.reclaimable == plan.source_bytes);
  CHECK(reclaiming.to_write == plain.to_write);
  CHECK(reclaiming.peak < plain.peak);
  CHECK(disk_need(plan, source.checkpoint, options, {}, false).peak == plain.peak);
  options.reclaim = Reclaim::Off;
  Progress done;
  done.trunk_tensors = plan.trunk.size();
  done.layers = {1, 3};
  CHECK(disk_need(plan, source.checkpoint, options, done, true).to_write ==
        plain.to_write - plan.trunk_bytes - 2 * plan.layers[0].bank.bytes);
}

}  // namespace
}  // namespace waste::convert
