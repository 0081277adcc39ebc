// waste-run eval: what the model expects next, every logit, or how well it predicts a text.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "container/core/checked.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "runtime/commands.h"
#include "runtime/engine.h"
#include "runtime/generation.h"
#include "runtime/model_text.h"
#include "runtime/options.h"
#include "runtime/sampler.h"
#include "runtime/utf8.h"

namespace waste::runtime {

namespace {

// The ids of the `count` largest logits, largest first, lower ids first among equals.
std::vector<std::int32_t> largest(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  std::ranges::partial_sort(
      ids, ids.begin() + static_cast<std::ptrdiff_t>(count),
      [&](std::int32_t a, std::int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  ids.resize(count);
  return ids;
}

// Appends the float32 logits of each position to `path`'s partial, which publish() makes the file.
class LogitsFile {
 public:
  explicit LogitsFile(fs::path path) : path_(std::move(path)), file_(File::create(partial_path(path_))) {}
  void append(std::span<const float> logits) {
    file_.write_exact(size_, {reinterpret_cast<const std::uint8_t*>(logits.data()), logits.size_bytes()});
    size_ += logits.size_bytes();
  }
  void publish() {
    file_.sync();
    file_.close();
    waste::publish(path_);
    published_ = true;
  }
  ~LogitsFile() {
    std::error_code ignored;
    if (!published_) fs::remove(partial_path(path_), ignored);
  }
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

 private:
  fs::path path_;
  File file_;
  std::uint64_t size_ = 0;
  bool published_ = false;
};

int next_token(const po::variables_map& vm, const EngineOptions& options, const ModelText& model,
               const std::vector<std::int32_t>& ids) {
  const std::uint64_t top = number_option(vm, "top", 1, model.tokenizer.vocabulary(), 10);
  const auto dump = text_option(vm, "dump-logits");
  check_prompt_fits(ids.size(), options.context);
  cli::catch_interrupts();
  Engine engine(options);
  Session session(engine);
  if (dump) {
    LogitsFile file(*dump);
    session.prefill(ids, [&](std::uint32_t, std::span<const float> logits) { file.append(logits); });
    file.publish();
  } else {
    session.prefill(ids);
  }
  const std::span<const float> logits = session.logits();
  LogitsHash hash;
  hash.add(logits);
  std::vector<float> log_probabilities(logits.size());
  log_softmax(logits, log_probabilities);

  Json list = Json::array();
  if (!flag(vm, "json"))
    fmt::print("{:>8}  {:>9}  {:>10}  {:>11}  token\n", "id", "logit", "log-prob", "probability");
  for (const std::int32_t id : largest(logits, top)) {
    const double p = log_probabilities[id];
    if (flag(vm, "json")) {
      list.push_back({{"id", id},
                      {"text", utf8_replace_invalid(model.tokenizer.bytes(id))},
                      {"logit", logits[id]},
                      {"logprob", p}});
    } else {
      fmt::print("{:>8}  {:>9.4f}  {:>10.4f}  {:>10.4f}%  \"{}\"\n", id, logits[id], p, 100 * std::exp(p),
                 printable(model.tokenizer.bytes(id)));
    }
  }
  if (flag(vm, "json")) {
    show(dump_json({{"tokens", ids.size()}, {"top", list}, {"logits_hash", hash.hex()}}));
  } else {
    fmt::print("after {} tokens; logits {}\n", ids.size(), hash.hex());
  }
  if (options.learn) engine.save_usage();
  return 0;
}

struct Score {
  std::uint64_t tokens = 0;
  double nats = 0;  // minus the sum of the log-probabilities
  std::uint64_t windows = 0;

  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
};

// Windows as long as the context, each beginning half a window after the one before it; every token but the
// first is scored once, in the first window that holds it, so all but the first window's have at least half a
// window before them. True when done; false when interrupted, with the score of what was.
bool score_text(Session& session, const std::vector<std::int32_t>& ids, std::size_t window,
                cli::ProgressLine& progress, Score& score) try {
  std::size_t scored = 1;  // tokens before this one are done
  for (std::size_t begin = 0; scored < ids.size(); begin += std::max<std::size_t>(window / 2, 1)) {
    const std::size_t length = std::min(window, ids.size() - begin);
    session.reset();
    session.prefill(
        std::span(ids).subspan(begin, length), [&](std::uint32_t position, std::span<const float> logits) {
          const std::size_t target = begin + position + 1;
          if (target < scored || target >= ids.size() || target >= begin + length) return;
          score.nats -= log_probability(logits, ids[target]);
          ++score.tokens;
          scored = target + 1;
          progress.show(static_cast<double>(scored) / static_cast<double>(ids.size()), [&] {
            return fmt::format("{} of {} tokens, perplexity {:.4f}", scored, ids.size(), score.perplexity());
          });
        });
    ++score.windows;
  }
  return true;
} catch (const Error& e) {
  if (e.kind() != ErrorKind::Interrupted) throw;
  return false;
}

int perplexity(const po::variables_map& vm, const EngineOptions& options, const ModelText& model,
               const std::string& path) {
  const std::string text = read_text_file(path, std::uint64_t{1} << 30);
  const std::vector<std::int32_t> ids =
      flag(vm, "raw") ? model.tokenizer.encode_markup(text) : model.tokenizer.encode_content(text);
  if (ids.size() < 2) fail(ErrorKind::Usage, "{}: {} tokens; there is nothing to predict", path, ids.size());
  if (options.context < 2) fail(ErrorKind::Usage, "--ctx: a window of one token predicts nothing");
  cli::catch_interrupts();
  Engine engine(options);
  Session session(engine);
  cli::ProgressLine progress(flag(vm, "quiet"));
  Score score;
  const bool whole = score_text(session, ids, options.context, progress, score);
  progress.clear();
  if (score.tokens == 0) fail(ErrorKind::Interrupted, "interrupted before any token was scored");
  // The first token is given, so its bytes are not predicted; nor, after an interrupt, are those that were
  // not reached.
  const auto first = ids.begin() + 1;
  const auto bytes =
      model.tokenizer.decode({first, first + static_cast<std::ptrdiff_t>(score.tokens)}).size();
  const double bits_per_byte = score.nats / std::log(2.0) / static_cast<double>(bytes);
  if (flag(vm, "json")) {
    show(dump_json({{"perplexity", score.perplexity()},
                    {"tokens", score.tokens},
                    {"nats_per_token", score.nats / static_cast<double>(score.tokens)},
                    {"bits_per_byte", bits_per_byte},
                    {"window", options.context},
                    {"windows", score.windows}}));
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of at most {}; {:.4f} bits a byte\n",
               score.perplexity(), score.tokens, score.windows, options.context, bits_per_byte);
  }
  if (options.learn) engine.save_usage();
  if (!whole) fail(ErrorKind::Interrupted, "interrupted after {} of {} tokens", score.tokens, ids.size() - 1);
  return 0;
}

int eval(const po::variables_map& vm) {
  const EngineOptions options = engine_options(vm);
  const ModelText model = ModelText::open(options.container);
  const auto ids = prompt_ids(vm, model.tokenizer, flag(vm, "raw"));
  const auto text = text_option(vm, "perplexity");
  if (text) {
    if (ids || vm.count("dump-logits") != 0 || vm.count("top") != 0) {
      fail(ErrorKind::Usage, "--perplexity takes neither a prompt nor --top nor --dump-logits");
    }
    return perplexity(vm, options, model, *text);
  }
  if (!ids) fail(ErrorKind::Usage, "PROMPT is missing; see --help");
  if (ids->empty()) fail(ErrorKind::Usage, "the prompt is empty");
  return next_token(vm, options, model, *ids);
}

}  // namespace

cli::Command eval_command() {
  cli::Command command{.name = "eval",
                       .usage = "MODEL [PROMPT|-]",
                       .summary = "show what the model expects next, or how well it predicts a text",
                       .help = R"(examples:
  waste-run eval kimi.waste "The capital of France is" --top 5
  waste-run eval kimi.waste --ids 1008,10484 --dump-logits logits.f32
  waste-run eval kimi.waste --perplexity book.txt --ctx 2048

--dump-logits writes float32, little-endian, [positions][vocabulary]. --perplexity slides a window
of --ctx tokens over the text by half its length.
)",
                       .positionals = {{"MODEL"}, {"PROMPT", false}},
                       .options = {},
                       .run = eval};
  command.options.add_options()                                                               //
      ("file", po::value<std::string>()->value_name("F"), "take the prompt from a file")      //
      ("ids", po::value<std::string>()->value_name("1,2,3"), "take the prompt as token ids")  //
      ("raw", "the text is markup: recognise special tokens in it")                           //
      ("top", po::value<std::string>()->value_name("N"), "how many tokens to show (10)")      //
      ("dump-logits", po::value<std::string>()->value_name("F"),
       "write the logits of every position to F")  //
      ("perplexity", po::value<std::string>()->value_name("F"), "score this text instead");
  add_engine_options(command.options);
  command.options.add_options()("json", "print one JSON document")("quiet", "no progress");
  return command;
}

}  // namespace waste::runtime
