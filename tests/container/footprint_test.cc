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
  options.chunk = 8 * kLeastChunk;
  CHECK(footprint(m, options).scratch > 6 * f.scratch);
}

TEST_CASE("the prefill chunk grows with the budget, for a sixteenth of it or beside all experts") {
  Manifest m = golden("tiny-k3.waste");
  m.layout.record_bytes *= 1000;
  FootprintOptions options;
  const std::uint64_t floor = footprint(m, options).floor();
  const auto chunk = [&](std::uint64_t budget) { return with_chunk_for(m, options, budget).chunk; };
  CHECK(chunk(0) == kLeastChunk);
  CHECK(chunk(floor) == kLeastChunk);
  const auto extra = [&](std::uint32_t larger) {
    return footprint(m, {.chunk = larger}).scratch - footprint(m, {}).scratch;
  };
  CHECK(chunk(floor + 16 * extra(64) - 1) == 32);
  CHECK(chunk(floor + 16 * extra(64)) == 64);
  CHECK(chunk(floor + 100 * extra(512)) == kMostChunk);
  options.context = 100;  // a session cannot fill more than 128
  CHECK(chunk(floor + 100 * extra(512)) == 128);
  options.context = 4096;
  const std::uint64_t everything = footprint(m, {.chunk = 64}).everything();
  CHECK(chunk(everything - 1) == kMostChunk);
  CHECK(chunk(everything) == kUsualChunk);
  CHECK(chunk(~std::uint64_t{0}) == kUsualChunk);
  // Where the scratch is larger than the experts, everything fits before a larger chunk is worth it.
  m.layout.record_bytes /= 1000;
  CHECK(chunk(footprint(m, {.chunk = 64}).everything() - 1) < kUsualChunk);
}

TEST_CASE("scratch buffers of one phase do not overlap") {
  const Manifest m = golden("tiny-linear.waste");
  const ScratchLayout s = scratch_layout(m, {});
  CHECK(s.hidden < s.input);
  CHECK(s.last_logits + m.model.vocab_size * 4 <= s.wide[0]);
  CHECK(s.wide[0] == s.mlp_gate);
  CHECK(s.scores == s.mlp_gate);
  CHECK(s.pair_out + std::uint64_t{kLeastChunk} * 4 * m.model.expert_width * 4 <= s.thread);
  CHECK(s.thread + s.thread_bytes == s.total);
  for (const std::uint64_t at : {s.hidden, s.quantised, s.tables, s.pair_gate, s.thread, s.beta})
    CHECK(at % 64 == 0);
}
