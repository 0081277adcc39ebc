#include "runtime/generation.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "container/core/error.h"
#include "container/core/perf.h"
#include "container/core/text.h"
#include "runtime/model_text.h"

namespace waste::runtime {

namespace {

double ratio(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::End:
      return "end";
    case Finish::Stop:
      return "stop";
    case Finish::Length:
      return "length";
    case Finish::Context:
      return "context";
    case Finish::Interrupted:
      return "interrupted";
  }
  return {};
}

bool prefill(Session& session, std::vector<std::int32_t>& ids) {
  const std::uint32_t before = session.position();
  try {
    session.prefill(ids);
    ids.clear();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Interrupted) throw;
    ids.erase(ids.begin(), ids.begin() + (session.position() - before));
  }
  return ids.empty();
}

Generation generate(Session& session, Sampler& sampler, std::uint64_t limit, LogitsHash& hash,
                    const std::function<bool()>& interrupted,
                    const std::function<Verdict(std::int32_t)>& receive) {
  Generation out;
  while (true) {
    if (interrupted()) {
      out.finish = Finish::Interrupted;
      return out;
    }
    const std::span<const float> logits = session.logits();
    hash.add(logits);
    const std::int32_t id = sampler.sample(logits, session.position());
    const Verdict verdict = receive(id);
    if (verdict == Verdict::EndBefore) {
      out.finish = Finish::End;
      return out;
    }
    out.ids.push_back(id);
    out.pending = {id};
    if (verdict == Verdict::StopAfter) {
      out.finish = Finish::Stop;
      return out;
    }
    if (out.ids.size() == limit) return out;
    if (session.remains() == 0) {
      out.finish = Finish::Context;
      return out;
    }
    session.step(id);
    out.pending.clear();
  }
}

Generation run(Engine& engine, Session& session, std::vector<std::int32_t> prompt, Sampler& sampler,
               std::uint64_t limit, const std::function<bool()>& interrupted,
               const std::function<Verdict(std::int32_t)>& receive, RunReport& report) {
  const EngineStats before = engine.stats();
  const double start = now_seconds();
  const std::uint32_t position = session.position();
  const bool ready = prompt.empty() || prefill(session, prompt);
  const double ready_at = now_seconds();
  report = {};
  report.prompt_tokens = session.position() - position;
  LogitsHash hash;
  Generation result;
  if (ready) {
    result = generate(session, sampler, limit, hash, interrupted, receive);
    report.steps = result.ids.size() - result.pending.size();
  } else {
    result = {{}, std::move(prompt), Finish::Interrupted};
  }
  report.prompt_seconds = ready_at - start;
  report.new_tokens = result.ids.size();
  report.decode_seconds = now_seconds() - ready_at;
  report.engine = engine.stats() - before;
  report.logits_hash = hash.hex();
  report.finish = result.finish;
  return result;
}

std::string RunReport::line() const {
  std::string text;
  if (prompt_tokens != 0) {
    text += fmt::format("{} tokens of prompt at {:.1f} tok/s, ", prompt_tokens,
                        ratio(prompt_tokens, prompt_seconds));
  }
  text += fmt::format("{} new at {:.1f} tok/s ({}); {} read, ", new_tokens, ratio(steps, decode_seconds),
                      finish_name(finish), format_bytes(static_cast<double>(engine.bytes_read)));
  if (engine.expert_uses != 0) {
    text +=
        fmt::format("{:.1f}% of experts found in memory, ",
                    100 * static_cast<double>(engine.expert_hits) / static_cast<double>(engine.expert_uses));
  }
  return text + "logits " + logits_hash;
}

Json RunReport::json() const {
  return {{"finish", finish_name(finish)},
          {"prompt_tokens", prompt_tokens},
          {"prompt_seconds", prompt_seconds},
          {"prompt_tokens_per_second", ratio(prompt_tokens, prompt_seconds)},
          {"new_tokens", new_tokens},
          {"decode_seconds", decode_seconds},
          {"decode_tokens_per_second", ratio(steps, decode_seconds)},
          {"bytes_read", engine.bytes_read},
          {"expert_uses", engine.expert_uses},
          {"expert_hits", engine.expert_hits},
          {"logits_hash", logits_hash}};
}

EngineStats operator-(const EngineStats& later, const EngineStats& earlier) {
  return {.tokens = later.tokens - earlier.tokens,
          .expert_uses = later.expert_uses - earlier.expert_uses,
          .expert_hits = later.expert_hits - earlier.expert_hits,
          .expert_products = later.expert_products - earlier.expert_products,
          .bytes_read = later.bytes_read - earlier.bytes_read,
          .weight_bytes = later.weight_bytes - earlier.weight_bytes,
          .seconds = later.seconds - earlier.seconds,
          .attention_seconds = later.attention_seconds - earlier.attention_seconds,
          .dense_seconds = later.dense_seconds - earlier.dense_seconds,
          .expert_seconds = later.expert_seconds - earlier.expert_seconds,
          .wait_seconds = later.wait_seconds - earlier.wait_seconds,
          .head_seconds = later.head_seconds - earlier.head_seconds};
}

std::string SessionNote::encode() const {
  return dump_json_line({{"kind", kind}, {"pending", pending}});
}

SessionNote SessionNote::decode(std::string_view text, std::string_view kind, std::uint32_t vocabulary,
                                std::string_view where) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) fail_data("{}: the note is no object", where);
  SessionNote note{json_string(json, "kind", where), {}};
  if (note.kind != kind) {
    fail_data("{}: saved by \"{}\", which \"{}\" cannot continue", where, printable(note.kind), kind);
  }
  note.pending =
      ids_from_json(json_array(json, "pending", where), vocabulary, fmt::format("{}: pending", where));
  return note;
}

}  // namespace waste::runtime
