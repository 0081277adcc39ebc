// The logits of the golden containers against the reference's, and against themselves: whatever the chunks,
// threads, budget, cache, I/O and instruction set, the same bits.
#include "tests/runtime/engine/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "container/core/simd.h"

using namespace waste;
using namespace waste::runtime;

namespace {

std::vector<std::uint32_t> best(std::span<const float> logits, std::size_t n) {
  std::vector<std::uint32_t> order(logits.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  order.resize(n);
  return order;
}

void check_order(std::span<const float> got, std::span<const float> want) {
  const auto ours = best(got, 10);
  const auto theirs = best(want, 11);
  for (std::size_t i = 0; i < 10; ++i) {
    // Where the reference itself hardly separates a token from its neighbours their order may differ.
    const bool above = i == 0 || want[theirs[i - 1]] - want[theirs[i]] > 0.01f;
    const bool below = want[theirs[i]] - want[theirs[i + 1]] > 0.01f;
    if (above && below) CHECK(ours[i] == theirs[i]);
  }
}

}  // namespace

TEST_CASE("logits match the reference at every position, in chunks of any size") {
  for (const std::string model : kModels) {
    CAPTURE(model);
    const KvType kv = model == "tiny-linear" ? KvType::F32 : KvType::F16;
    const auto prompts = read_prompts(model);
    std::vector<std::vector<float>> first;
    for (const std::uint32_t chunk : {64u, 1u, 3u}) {
      CAPTURE(chunk);
      EngineOptions options = options_for(model);
      options.kv = kv;
      options.prefill_chunk = chunk;
      Engine engine(options);
      Session session(engine);
      for (std::size_t p = 0; p < prompts.size(); ++p) {
        CAPTURE(p);
        const Prompt& prompt = prompts[p];
        const auto got = all_logits(session, prompt.ids);
        if (chunk == 64) {
          double error = 0;
          double norm = 0;
          for (std::size_t i = 0; i < got.size(); ++i) {
            error += (double{got[i]} - prompt.logits[i]) * (double{got[i]} - prompt.logits[i]);
            norm += double{prompt.logits[i]} * prompt.logits[i];
          }
          CHECK(std::sqrt(error / norm) < 5e-4);
          const std::size_t vocab = engine.vocab_size();
          for (std::size_t t = 0; t < prompt.ids.size(); ++t)
            check_order(std::span(got).subspan(t * vocab, vocab),
                        std::span(prompt.logits).subspan(t * vocab, vocab));
          first.push_back(got);
        } else {
          CHECK(same_bits(got, first[p]));
        }
      }
    }
  }
}

TEST_CASE("one set of bits under every configuration") {
  for (const std::string model : {"tiny-k3", "tiny-linear.vq4p"}) {
    CAPTURE(model);
    std::vector<std::int32_t> ids = read_prompts(model).back().ids;
    ids.resize(75);  // several chunks under the smaller budgets
    std::vector<float> want;
    const auto check = [&](const EngineOptions& options, bool steps = false) {
      Engine engine(options);
      Session session(engine);
      const auto got = all_logits(session, ids);
      if (want.empty()) want = got;
      CHECK(same_bits(got, want));
      if (!steps) return engine.memory();
      session.reset();
      std::span<const float> last;
      for (const std::int32_t id : ids) last = session.step(id);
      CHECK(same_bits(last, std::span(want).last(engine.vocab_size())));
      return engine.memory();
    };
    const EngineOptions base = options_for(model);
    const MemoryUse memory = check(base, true);
    for (const unsigned threads : {1u, 3u, 4u}) {
      EngineOptions o = base;
      o.threads = threads;
      check(o);
    }
    for (const std::uint32_t chunk : {16u, 128u}) {  // in the larger one every expert builds its own tables
      EngineOptions o = base;
      o.prefill_chunk = chunk;
      check(o);
    }
    for (const SimdLevel level : simd_levels()) {
      CAPTURE(simd_name(level));
      force_simd(simd_name(level));
      check(base);
    }
    force_simd(simd_name(simd_levels().back()));
    for (const std::uint64_t records : {0u, 1u, 7u, 40u}) {
      CAPTURE(records);
      EngineOptions o = base;
      o.budget = memory.floor + records * memory.record_bytes;
      const MemoryUse use = check(o);
      CHECK(use.cache_records >= records);
      CHECK(use.cache_records < memory.cache_records);
    }
    for (const IoMode io : {IoMode::Auto, IoMode::Pread}) {
      EngineOptions o = base;
      o.io = io;
      o.budget = memory.floor + 2 * memory.record_bytes;
      o.verify = true;
      check(o);
      o.cache = false;
      o.budget = base.budget;
      check(o);
    }
  }
}
