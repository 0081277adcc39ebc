#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "container/core/file.h"
#include "tests/data_dir.h"
#include "verify/facts.h"
#include "verify/plan.h"
#include "verify/planned_manifest.h"

namespace waste::verify {
namespace {

Json config_of(const fs::path& path) {
  return parse_json(read_text_file(path, 1 << 20), path.string());
}

TEST_CASE("planned manifest: what the conversion of the small checkpoints wrote") {
  const struct {
    const char* checkpoint;
    const char* container;
    ExpertQuant quant;
  } cases[] = {{"tiny-k3", "tiny-k3.waste", ExpertQuant::vq3()},
               {"tiny-linear", "tiny-linear.vq2.waste", ExpertQuant::vq2()},
               {"tiny-linear", "tiny-linear.vq4p.waste", ExpertQuant::vq4p()}};
  for (const auto& c : cases) {
    CAPTURE(c.container);
    const Manifest planned = planned_manifest(config_of(data_dir() / c.checkpoint / "config.json"),
                                              {.experts = c.quant}, "config");
    const fs::path path = golden_dir() / c.container / kManifestFile;
    const Manifest real = parse_manifest(read_text_file(path, 1 << 20), path.string());
    CHECK(planned.layout.record_bytes == real.layout.record_bytes);
    CHECK(planned.banks.size() == real.banks.size());
    CHECK(planned.codebooks_needed() == real.codebooks_needed());
    CHECK(planned.trunk.size() == real.trunk.size());
    for (const TrunkTensor& t : real.trunk) {
      CAPTURE(t.name);
      const TrunkTensor* p = planned.find(t.name);
      REQUIRE(p != nullptr);
      CHECK(p->elements() == t.elements());
      // The golden converter stored these in 4 bits, ours takes 8.
      const bool delicate = t.name.starts_with("mm_projector.") || t.name.find(".mlp.") != t.name.npos;
      if (delicate && t.format == TensorFormat::Q4G) continue;
      CHECK(p->format == t.format);
      CHECK(p->bytes == t.bytes);
    }
  }
}

TEST_CASE("planned manifest: the released sizes") {
  const Json k3 = config_of(data_dir() / "configs" / "kimi-k3.json");
  const Manifest m = planned_manifest(k3, {}, "config");
  const ModelFacts facts = model_facts(m);
  CHECK(facts.parameters() == 2'779'931'837'184);
  CHECK(facts.trunk_parameters * 2 < 114'383'892'224 + 1);
  CHECK(m.layout.record_bytes == 12'406'784);
  CHECK(facts.expert_bytes == std::uint64_t{92} * 896 * 12'406'784);
  CHECK(checkpoint_bytes(m.model, k3) == 1'560'839'958'272);
  const Json linear = config_of(data_dir() / "configs" / "kimi-linear.json");
  CHECK(checkpoint_bytes(planned_manifest(linear, {}, "config").model, linear) == 98'245'541'888);
}

TEST_CASE("planned manifest: a config that describes no such model is refused") {
  Json config = config_of(data_dir() / "configs" / "kimi-k3.json");
  config["vision_config"]["merge_kernel_size"] = {2, -2};
  CHECK_THROWS_AS(planned_manifest(config, {}, "config"), Error);
  config.erase("vision_config");
  CHECK_NOTHROW(planned_manifest(config, {}, "config"));
  config["text_config"].erase("hidden_size");
  CHECK_THROWS_AS(planned_manifest(config, {}, "config"), Error);
}

Manifest kimi_k3() {
  return planned_manifest(config_of(data_dir() / "configs" / "kimi-k3.json"), {}, "config");
}

TEST_CASE("plan: the floors that the engine of version 0 publishes for Kimi K3") {
  const Manifest m = kimi_k3();
  const struct {
    std::uint32_t context;
    double gib;
  } published[] = {{4096, 29.06}, {32768, 30.54}, {131072, 35.64}, {1048576, 83.22}};
  for (const auto& p : published) {
    const double ours = static_cast<double>(total_bytes(v0_floor_lines(m, p.context))) / (1 << 30);
    CHECK(ours == doctest::Approx(p.gib).epsilon(0.01));
    // Our own is lower: embed_tokens stays on disk, latents are halves.
    CHECK(total_bytes(floor_lines(m, {.context = p.context})) < total_bytes(v0_floor_lines(m, p.context)));
  }
}

TEST_CASE("plan: the floor's lines are the runtime's footprint") {
  const Manifest m = kimi_k3();
  for (const std::uint32_t context : {1u, 4096u, 131072u}) {
    const FootprintOptions options{.context = context, .threads = 3};
    CHECK(total_bytes(floor_lines(m, options)) == footprint(m, options).floor());
  }
}

TEST_CASE("plan: budgets, and what each gives") {
  const Manifest m = kimi_k3();
  const Footprint f = footprint(m, {});
  const ModelFacts facts = model_facts(m);
  const std::uint64_t everything = footprint(m, {.chunk = kUsualChunk}).everything();
  const auto list = budgets(m, {}, {50'000'000'001, 1, everything * 2});
  CHECK(list.front() == f.floor());
  CHECK(list.back() == everything);
  CHECK(std::is_sorted(list.begin(), list.end()));
  CHECK(std::count(list.begin(), list.end(), 50'000'000'001) == 1);
  CHECK(list.size() > 8);
  CHECK(list.size() < 30);
  Speeds speeds;
  speeds.disk_gb_per_s = 2;
  speeds.gflops = 100;
  double last = 0;
  for (const std::uint64_t budget : list) {
    const BudgetRow row = budget_row(m, {}, facts, HitCurve::measured(), speeds, budget);
    CHECK(row.tokens_per_s >= last);
    last = row.tokens_per_s;
  }
  // By hand: nothing is read any more, 2 operations a weight.
  CHECK(last == doctest::Approx(100e9 / (2.0 * static_cast<double>(facts.active_parameters))));
  // By hand: at the floor there is room for 17 of 82,432 experts, 0.0206%, where 7.48% hit at 0.5%: 0.309% of
  // the 16 x 92 records of a token.
  const BudgetRow floor = budget_row(m, {}, facts, HitCurve::measured(), speeds, f.floor());
  CHECK(floor.read_bytes == doctest::Approx(16.0 * 92 * 12'406'784 * (1 - 0.00309)).epsilon(1e-5));
  CHECK(floor.chunk == kLeastChunk);
  CHECK(floor.tokens_per_s == doctest::Approx(1 / (floor.read_bytes / 2e9 + 1 / last)));
}

TEST_CASE("plan: hit rates from a trace, and traces of other models") {
  Trace trace;
  trace.experts = {{1, 0}, {1, 1}, {2, 5}};
  trace.requests = {0, 1, 2, 0, 1, 2};
  const HitCurve curve = HitCurve::of_trace(trace, 2, 6, "t");
  CHECK(curve.rate(3, 12) == doctest::Approx(0.5));
  CHECK(curve.rate(12, 12) == 1);
  CHECK_THROWS_AS(HitCurve::of_trace(trace, 2, 5, "t"), Error);
  CHECK_THROWS_AS(HitCurve::of_trace(trace, 1, 6, "t"), Error);
  CHECK(HitCurve::measured().rate(0, 100) == 0);
  CHECK(HitCurve::measured().rate(6, 100) == doctest::Approx(0.4478));
  CHECK(HitCurve::measured().rate(100, 100) == 1);
}

TEST_CASE("plan: disk for source and container") {
  const Manifest m = kimi_k3();
  const DiskNeed need = disk_need(m, 1'560'936'091'448);
  CHECK(need.container > 1'050'000'000'000);
  CHECK(need.peak == need.source + need.container);
  CHECK(need.peak_reclaim < need.peak);
  CHECK(need.peak_reclaim > need.source);
}

}  // namespace
}  // namespace waste::verify
