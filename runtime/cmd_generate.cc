// waste-run generate: continues a text.
#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "runtime/commands.h"
#include "runtime/detokenizer.h"
#include "runtime/engine.h"
#include "runtime/generation.h"
#include "runtime/model_text.h"
#include "runtime/options.h"
#include "runtime/stop.h"
#include "runtime/utf8.h"

namespace waste::runtime {

namespace {

// Shows the text of tokens as they come, up to the first stop string.
class TextOutput {
 public:
  TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stops, bool stream)
      : tokenizer_(tokenizer), stops_(std::move(stops)), stream_(stream) {}

  /// False once a stop string has been found.
  bool push(std::int32_t id) {
    put(characters_.push(stops_.push(tokenizer_.bytes(id))));
    return stops_.matched().empty();
  }
  void finish() {
    if (stops_.matched().empty()) put(characters_.push(stops_.finish()));
    put(characters_.finish());
  }
  const std::string& text() const { return text_; }
  const std::string& stopped_by() const { return stops_.matched(); }

 private:
  void put(const std::string& piece) {
    text_ += piece;
    if (stream_ && !piece.empty()) show(piece);
  }

  const Tokenizer& tokenizer_;
  StopMatcher stops_;
  Detokenizer characters_;
  bool stream_;
  std::string text_;
};

int generate_text(const po::variables_map& vm) {
  // Everything that can be refused is refused before the model is loaded.
  EngineOptions options = engine_options(vm);
  Sampler sampler(sampling_options(vm));
  const std::uint64_t limit =
      number_option(vm, "max-tokens", 1, std::numeric_limits<std::uint32_t>::max(), 256);
  const bool json = flag(vm, "json"), quiet = flag(vm, "quiet");
  const auto load = text_option(vm, "load-state"), save = text_option(vm, "save-state");
  const ModelText model = ModelText::open(options.container);
  TextOutput output(
      model.tokenizer,
      vm.count("stop") != 0 ? vm["stop"].as<std::vector<std::string>>() : std::vector<std::string>(), !json);
  std::vector<std::int32_t> ids;
  if (auto prompt = prompt_ids(vm, model.tokenizer, flag(vm, "raw"))) {
    ids = std::move(*prompt);
    if (ids.empty()) fail(ErrorKind::Usage, "the prompt is empty");
  } else if (!load) {
    fail(ErrorKind::Usage, "PROMPT is missing; see --help");
  }
  check_prompt_fits(ids.size(), options.context);
  if (save) check_folder(*save);

  cli::catch_interrupts();
  Engine engine(options);
  Session session(engine);
  if (load) {
    const auto note = SessionNote::decode(session.load_state(*load), "generate", engine.vocab_size(), *load);
    ids.insert(ids.begin(), note.pending.begin(), note.pending.end());
    if (ids.empty() && session.position() == 0) {
      fail(ErrorKind::Usage, "{}: an empty session; give a PROMPT", *load);
    }
    if (ids.size() > session.remains()) {
      fail(ErrorKind::Usage,
           "the prompt has {} tokens, the session has room for {}: nothing is cut; raise --ctx", ids.size(),
           session.remains());
    }
  }

  RunReport report;
  const Generation result = run(
      engine, session, std::move(ids), sampler, limit, cli::interrupted,
      [&](std::int32_t id) {
        if (model.ends(id)) return Verdict::EndBefore;
        return output.push(id) ? Verdict::Continue : Verdict::StopAfter;
      },
      report);
  output.finish();

  if (json) {
    Json document = {{"text", utf8_replace_invalid(output.text())}, {"ids", result.ids}};
    if (!output.stopped_by().empty()) document["stop"] = utf8_replace_invalid(output.stopped_by());
    document.update(report.json());
    show(dump_json(document));
  } else {
    show("\n");
    if (!quiet) fmt::print(stderr, "{}\n", report.line());
  }
  if (save) session.save_state(*save, SessionNote{"generate", result.pending}.encode());
  if (options.learn) engine.save_usage();
  if (result.finish == Finish::Interrupted) {
    fail(ErrorKind::Interrupted, "interrupted after {} new tokens{}", result.ids.size(),
         save ? "; --load-state " + *save + " continues" : "");
  }
  return 0;
}

}  // namespace

cli::Command generate_command() {
  cli::Command command{.name = "generate",
                       .usage = "MODEL [PROMPT|-]",
                       .summary = "continue a text",
                       .help = R"(examples:
  waste-run generate kimi.waste "In the beginning" -n 100
  waste-run generate kimi.waste --file story.txt --temperature 0 --stop "THE END"
  waste-run generate kimi.waste "Once" -n 50 --save-state s.state
  waste-run generate kimi.waste --load-state s.state -n 50

The text goes to standard output as it comes, the figures of the run to standard error. They end
with a hash of the logits: equal hashes mean that two runs computed the same bits. Control markers
in the prompt are text unless --raw is given. Ctrl-C ends after the current token, saves if
--save-state asks for it, and exits 5.
)",
                       .positionals = {{"MODEL"}, {"PROMPT", false}},
                       .options = {},
                       .run = generate_text};
  command.options.add_options()                                                                  //
      ("max-tokens,n", po::value<std::string>()->value_name("N"), "at most N new tokens (256)")  //
      ("file", po::value<std::string>()->value_name("F"), "take the prompt from a file")         //
      ("ids", po::value<std::string>()->value_name("1,2,3"), "take the prompt as token ids")     //
      ("raw", "the prompt is markup: recognise special tokens in it")                            //
      ("stop", po::value<std::vector<std::string>>()->value_name("S"),
       "end before this string; may be repeated");
  add_sampling_options(command.options);
  add_engine_options(command.options);
  command.options.add_options()                                                                 //
      ("save-state", po::value<std::string>()->value_name("F"), "save the session at the end")  //
      ("load-state", po::value<std::string>()->value_name("F"),
       "continue a saved session; PROMPT is appended")  //
      ("json", "print one JSON document at the end")    //
      ("quiet", "no figures at the end");
  return command;
}

}  // namespace waste::runtime
