// The planner, which has only a config.json, and the runtime, which has the container open, must say the
// same.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "container/core/file.h"
#include "runtime/engine.h"
#include "tests/data_dir.h"
#include "verify/plan.h"
#include "verify/planned_manifest.h"

namespace waste::verify {
namespace {

TEST_CASE("plan and runtime agree on every byte, for three models and three contexts") {
  const struct {
    const char* checkpoint;
    const char* container;
    ExpertQuant quant;
  } models[] = {{"tiny-k3", "tiny-k3.waste", ExpertQuant::vq3()},
                {"tiny-linear", "tiny-linear.vq2.waste", ExpertQuant::vq2()},
                {"tiny-linear", "tiny-linear.vq4p.waste", ExpertQuant::vq4p()}};
  for (const auto& model : models) {
    const fs::path path = data_dir() / model.checkpoint / "config.json";
    const Json config = parse_json(read_text_file(path, 1 << 20), path.string());
    Manifest planned = planned_manifest(config, {.experts = model.quant}, "config");
    // The other converter keeps two kinds of tensors at four bits where the plan has eight: its sizes stand
    // in.
    const fs::path other = golden_dir() / model.container / kManifestFile;
    const Manifest golden = parse_manifest(read_text_file(other, kMaxManifestBytes), other.string());
    for (TrunkTensor& t : planned.trunk) {
      const TrunkTensor* stored = golden.find(t.name);
      REQUIRE(stored != nullptr);
      if (stored->format == t.format) continue;
      CHECK((t.name.find(".mlp.") != std::string::npos || t.name.starts_with("mm_projector.")));
      t = *stored;
    }
    for (const std::uint32_t context : {100u, 4096u, 65536u}) {
      CAPTURE(model.container);
      CAPTURE(context);
      const FootprintOptions options{.context = context, .threads = 2};
      const std::uint64_t floor = total_bytes(floor_lines(planned, options));
      for (const std::uint64_t budget : {floor, floor + 1'000'000, budgets(planned, options, {}).back()}) {
        const FootprintOptions sizes = with_chunk_for(planned, options, budget);
        const Footprint f = footprint(planned, sizes);
        runtime::EngineOptions engine_options;
        engine_options.container = golden_dir() / model.container;
        engine_options.budget = budget;
        engine_options.threads = 2;
        engine_options.context = context;
        const runtime::MemoryUse use = runtime::Engine(engine_options).memory();
        CHECK(use.floor == floor);
        CHECK(use.cache_records == f.cache_records(budget));
        CHECK(use.prefill_chunk == sizes.chunk);
        const std::uint64_t used = use.trunk + use.state + use.scratch + use.cache;
        CHECK(used <= budget);
        if (use.cache_records < f.experts) CHECK(used + f.record > budget);
      }
      runtime::EngineOptions too_little;
      too_little.container = golden_dir() / model.container;
      too_little.budget = floor - 1;
      too_little.threads = 2;
      too_little.context = context;
      CHECK_THROWS_AS(runtime::Engine{too_little}, Error);
    }
  }
}

}  // namespace
}  // namespace waste::verify
