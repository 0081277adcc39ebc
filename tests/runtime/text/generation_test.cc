#include "runtime/generation.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "container/core/error.h"
#include "runtime/model_text.h"

namespace waste::runtime {
namespace {

using Ids = std::vector<std::int32_t>;
const fs::path kModel = fs::path(WASTE_TEST_DATA) / "golden/tiny-linear.waste";

TEST_CASE("model text: where generation ends") {
  const ModelText text = ModelText::open(fs::path(WASTE_TEST_DATA) / "golden/tiny-k3.waste");
  CHECK(text.arch == "kimi-k3");
  CHECK(text.tokenizer.vocabulary() == 2304);
  for (const std::string_view end : {"[EOS]", "<|im_end|>", "<|end_of_msg|>"})
    CHECK(text.ends(*text.tokenizer.special(end)));
  CHECK_FALSE(text.ends(*text.tokenizer.special("<|close|>")));
  CHECK_FALSE(text.ends(0));
}

TEST_CASE("ids from JSON: whole numbers below the vocabulary") {
  CHECK(ids_from_json(5, 10, "x") == Ids{5});
  CHECK(ids_from_json(Json::array({5, 9}), 10, "x") == Ids{5, 9});
  for (const Json& bad :
       {Json(10), Json(-1), Json(1.5), Json("1"), Json::array({1, nullptr}), Json(nullptr)}) {
    CHECK_THROWS_AS(ids_from_json(bad, 10, "x"), Error);
  }
}

TEST_CASE("generate: how it ends, and what the session has and has not been given") {
  bool stop = false;
  EngineOptions options;
  options.container = kModel;
  options.threads = 1;
  options.context = 12;
  options.interrupted = [&] { return stop; };
  Engine engine(options);
  Session session(engine);
  Sampler sampler({.temperature = 0});
  const Ids prompt = {1151, 258, 1921};
  const auto run = [&](std::uint64_t limit, const std::function<Verdict(std::int32_t)>& receive) {
    session.reset();
    Ids ids = prompt;
    REQUIRE(prefill(session, ids));
    LogitsHash hash;
    const Generation result = generate(session, sampler, limit, hash, options.interrupted, receive);
    CHECK(session.position() == prompt.size() + result.ids.size() - result.pending.size());
    return result;
  };
  const auto go_on = [](std::int32_t) { return Verdict::Continue; };

  const Generation length = run(4, go_on);
  CHECK(length.finish == Finish::Length);
  CHECK(length.ids.size() == 4);
  CHECK(length.pending == Ids{length.ids.back()});

  const Generation full = run(100, go_on);
  CHECK(full.finish == Finish::Context);
  CHECK(full.ids.size() == 10);  // nine positions were free; the tenth token is never computed on
  CHECK(Ids(full.ids.begin(), full.ids.begin() + 4) == length.ids);

  std::size_t seen = 0;
  const Generation end =
      run(100, [&](std::int32_t) { return ++seen == 3 ? Verdict::EndBefore : Verdict::Continue; });
  CHECK(end.finish == Finish::End);
  CHECK(end.ids == Ids(full.ids.begin(), full.ids.begin() + 2));
  CHECK(end.pending.empty());

  seen = 0;
  const Generation stopped =
      run(100, [&](std::int32_t) { return ++seen == 3 ? Verdict::StopAfter : Verdict::Continue; });
  CHECK(stopped.finish == Finish::Stop);
  CHECK(stopped.ids == Ids(full.ids.begin(), full.ids.begin() + 3));
  CHECK(stopped.pending == Ids{full.ids[2]});

  const Generation interrupted = run(100, [&](std::int32_t) {
    stop = ++seen >= 5;
    return Verdict::Continue;
  });
  CHECK(interrupted.finish == Finish::Interrupted);
  CHECK(interrupted.ids == Ids(full.ids.begin(), full.ids.begin() + 2));  // the token in hand is finished
  CHECK(interrupted.pending.empty());
}

TEST_CASE("session note: there and back, and what is refused") {
  const SessionNote note{"chat", {1, 2, 3}};
  CHECK(SessionNote::decode(note.encode(), "chat", 10, "x").pending == note.pending);
  CHECK_THROWS_WITH_AS(SessionNote::decode(note.encode(), "generate", 10, "x"),
                       "x: saved by \"chat\", which \"generate\" cannot continue", Error);
  CHECK_THROWS_AS(SessionNote::decode(note.encode(), "chat", 3, "x"), Error);
  for (const std::string_view bad :
       {"", "[]", "{}", "{\"kind\":\"chat\"}", "{\"kind\":\"chat\",\"pending\":1}", "not json"}) {
    CHECK_THROWS_AS(SessionNote::decode(bad, "chat", 10, "x"), Error);
  }
}

TEST_CASE("report: rates count what was computed in the time they divide by") {
  RunReport report;
  report.prompt_tokens = 10;
  report.prompt_seconds = 2;
  report.decode_seconds = 4;
  report.engine.bytes_read = 1500000000;
  report.engine.expert_uses = 8;
  report.engine.expert_hits = 6;
  report.new_tokens = 3;
  report.steps = 2;
  report.finish = Finish::Stop;
  const LogitsHash hash;
  report.logits_hash = hash.hex();
  CHECK(report.line() ==
        "10 tokens of prompt at 5.0 tok/s, 3 new at 0.5 tok/s (stop); 1.50 GB read, "
        "75.0% of experts found in memory, logits " +
            hash.hex());
  CHECK(report.json()["decode_tokens_per_second"] == 0.5);
  CHECK(hash.hex() == "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing
}

}  // namespace
}  // namespace waste::runtime
