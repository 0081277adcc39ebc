// The logits of the golden containers against the reference's, and against themselves: whatever the chunks,
// threads, budget, cache, I/O and instruction set, the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "container/core/bytes.h"
#include "container/core/checksum.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "runtime/engine.h"

using namespace waste;
using namespace waste::runtime;

namespace {

const char* const kModels[] = {"tiny-k3", "tiny-linear", "tiny-linear.vq2", "tiny-linear.vq4p"};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids][vocab]
};

EngineOptions options_for(const std::string& model) {
  EngineOptions o;
  o.container = fs::path(WASTE_TEST_DATA) / "golden" / (model + ".waste");
  o.budget = std::uint64_t{1} << 30;
  o.threads = 2;
  o.context = 256;
  o.kv = KvType::F32;
  return o;
}

std::vector<Prompt> read_prompts(const std::string& model) {
  const fs::path base = fs::path(WASTE_TEST_DATA) / "golden" / "logits" / (model + ".container");
  const fs::path json = base.string() + ".json";
  const auto raw = read_file(base.string() + ".f32", std::uint64_t{1} << 30);
  const Json doc = parse_json(read_text_file(json, 1 << 20), json.string());
  std::size_t positions = 0;
  for (const auto& entry : doc) positions += entry["ids"].size();
  const std::size_t vocab = raw.size() / 4 / positions;
  std::vector<Prompt> prompts;
  const std::uint8_t* at = raw.data();
  for (const auto& entry : doc) {
    Prompt p;
    p.ids = entry["ids"].get<std::vector<std::int32_t>>();
    p.logits.resize(p.ids.size() * vocab);
    for (float& f : p.logits) f = load_f32(at), at += 4;
    prompts.push_back(std::move(p));
  }
  return prompts;
}

/// All positions' logits of a prompt, in one call.
std::vector<float> all_logits(Session& session, std::span<const std::int32_t> ids) {
  std::vector<float> out;
  session.reset();
  session.prefill(ids, [&](std::uint32_t position, std::span<const float> logits) {
    CHECK(position * logits.size() == out.size());
    out.insert(out.end(), logits.begin(), logits.end());
  });
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

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
    const auto prompts = read_prompts(model);
    std::vector<std::vector<float>> first;
    for (const std::uint32_t chunk : {64u, 1u, 3u}) {
      CAPTURE(chunk);
      EngineOptions options = options_for(model);
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
