// The golden containers, their prompts and their reference logits.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/bytes.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "runtime/engine.h"
#include "tests/data_dir.h"

namespace waste::runtime {

inline const char* const kModels[] = {"tiny-k3", "tiny-linear", "tiny-linear.vq2", "tiny-linear.vq4p"};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids][vocab]
};

inline EngineOptions options_for(const std::string& model) {
  EngineOptions o;
  o.container = golden_dir() / (model + ".waste");
  o.budget = std::uint64_t{1} << 30;
  o.threads = 2;
  o.context = 256;
  return o;
}

inline std::vector<Prompt> read_prompts(const std::string& model) {
  const fs::path base = golden_dir() / "logits" / (model + ".container");
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
inline std::vector<float> all_logits(Session& session, std::span<const std::int32_t> ids) {
  std::vector<float> out;
  session.reset();
  session.prefill(ids, [&](std::uint32_t, std::span<const float> logits) {
    out.insert(out.end(), logits.begin(), logits.end());
  });
  return out;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace waste::runtime
