#include "container/footprint/footprint.h"

#include <doctest/doctest.h>

#include "container/core/file.h"
#include "container/core/json.h"

using namespace waste;

namespace {

Manifest golden(const char* name) {
  const fs::path path = fs::path(WASTE_TEST_DATA) / "golden" / name / "manifest.json";
  return parse_manifest(read_text_file(path, kMaxManifestBytes), path.string());
}

}  // namespace

TEST_CASE("embeddings and the vision tower stay on disk") {
  const Manifest m = golden("tiny-k3.waste");
  std::uint64_t kept = 0;
  for (const TrunkTensor& t : m.trunk) {
    const bool text =
        t.name.starts_with("language_model.") && t.name.find("embed_tokens") == std::string::npos;
    CHECK(resident(m, t) == text);
    if (text) kept += t.bytes;
  }
  const Footprint f = footprint(m, {});
  CHECK(f.trunk >= kept);
  CHECK(f.trunk < kept + 64 * 2 * m.trunk.size());
}

TEST_CASE("the parts add up and follow the options") {
  const Manifest m = golden("tiny-k3.waste");
  FootprintOptions options;
  const Footprint f = footprint(m, options);
  // 3 MLA layers of 64 + 16 latents, 6 KDA layers of 4 heads x 32 x 32 with tails of 3 x 3 x 128
  CHECK(f.latents == 3u * 4096 * 80 * 2);
  CHECK(f.recurrent == 6u * (4 * 32 * 32 + 3 * 3 * 128) * 4);
  CHECK(f.least_records == 5);
  CHECK(f.experts == 8 * 32);
  CHECK(f.floor() == f.trunk + f.codebooks + f.recurrent + f.latents + f.scratch + f.process + 5 * f.record);
  CHECK(f.cache_records(f.floor()) == 5);
  CHECK(f.cache_records(f.floor() + f.record - 1) == 5);
  CHECK(f.cache_records(f.floor() + f.record) == 6);
  CHECK(f.cache_records(f.everything()) == f.experts);
  CHECK(f.cache_records(~std::uint64_t{0}) == f.experts);

  options.latent_bytes = 4;
  options.context = 8192;
  CHECK(footprint(m, options).latents == 4 * f.latents);
  options = {};
  options.threads = 3;
  CHECK(footprint(m, options).scratch > f.scratch);
  options = {};
  options.chunk = 1;
  CHECK(footprint(m, options).scratch < f.scratch / 8);
}

TEST_CASE("scratch buffers of one phase do not overlap") {
  const Manifest m = golden("tiny-linear.waste");
  const ScratchLayout s = scratch_layout(m, {});
  CHECK(s.hidden < s.input);
  CHECK(s.last_logits + m.model.vocab_size * 4 <= s.wide[0]);
  CHECK(s.wide[0] == s.mlp_gate);
  CHECK(s.scores == s.mlp_gate);
  CHECK(s.pair_out + 64ull * 4 * m.model.expert_width * 4 <= s.thread);
  CHECK(s.thread + s.thread_bytes == s.total);
  for (const std::uint64_t at : {s.hidden, s.quantised, s.tables, s.pair_gate, s.thread, s.beta})
    CHECK(at % 64 == 0);
}
