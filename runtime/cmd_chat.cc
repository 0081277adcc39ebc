// waste-run chat: a conversation. The history lives in the session's state and is never computed twice.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "container/core/text.h"
#include "runtime/chat.h"
#include "runtime/commands.h"
#include "runtime/engine.h"
#include "runtime/generation.h"
#include "runtime/line_reader.h"
#include "runtime/model_text.h"
#include "runtime/options.h"
#include "runtime/utf8.h"

namespace waste::runtime {

namespace {

constexpr std::string_view kHelp =
    "/system TEXT  a system message, before your next one\n"
    "/reset        forget the conversation\n"
    "/save FILE    save the conversation\n"
    "/load FILE    continue a saved one\n"
    "/stats        figures of the last reply, memory and cache\n"
    "/quit         leave (so does the end of the input)\n";

struct ChatOptions {
  SamplingOptions sampling;
  std::uint64_t limit = 0;  // tokens a reply
  bool think = true;
  Effort effort = Effort::Max;
  std::string system;  // the first message of every conversation, if not empty
  bool json = false;
  bool quiet = false;
};

class Chat {
 public:
  Chat(Engine& engine, const ModelText& model, const ChatMarkup& markup, const ChatOptions& options)
      : engine_(engine),
        model_(model),
        markup_(markup),
        options_(options),
        session_(engine),
        sampler_(options.sampling) {
    begin();
  }

  /// One turn: gives the model what is pending and `text`, and shows its reply.
  void say(std::string_view text);
  /// The line's command, if it is one. False to leave.
  bool command(const std::string& line);

  void save(const std::string& path) const {
    session_.save_state(path, SessionNote{"chat", pending_}.encode());
  }
  void load(const std::string& path);

 private:
  void begin();
  void add(const Fragments& fragments) {
    const auto ids = encode(model_.tokenizer, fragments);
    pending_.insert(pending_.end(), ids.begin(), ids.end());
  }
  void show_piece(const ReplyReader::Piece& piece);
  void end_thought() const;
  void stats() const;

  Engine& engine_;
  const ModelText& model_;
  const ChatMarkup& markup_;
  const ChatOptions& options_;
  Session session_;
  Sampler sampler_;
  std::vector<std::int32_t> pending_;  // belongs to the conversation, not given to the model yet
  RunReport last_;
  std::string thought_, response_;  // of the current reply
};

// What stands before the first user message.
void Chat::begin() {
  pending_.clear();
  add(markup_.effort(options_.effort));
  if (!options_.system.empty()) add(markup_.system(options_.system));
}

void Chat::load(const std::string& path) {
  const std::string note = session_.load_state(path);  // if it fails, the conversation goes on as it was
  try {
    pending_ = SessionNote::decode(note, "chat", engine_.vocab_size(), path).pending;
  } catch (const Error&) {
    session_.reset();
    begin();
    throw;
  }
}

void Chat::show_piece(const ReplyReader::Piece& piece) {
  if (piece.text.empty()) return;
  if (piece.channel != Channel::Think && response_.empty()) end_thought();
  (piece.channel == Channel::Think ? thought_ : response_) += piece.text;
  if (options_.json) return;
  if (piece.channel != Channel::Think) {
    show(piece.text);
  } else if (!options_.quiet) {
    // Thoughts are no part of the answer: they go beside it, dimmed on a terminal.
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    fmt::print(stderr, "{}{}{}", terminal ? "\033[2m" : "", piece.text, terminal ? "\033[0m" : "");
  }
}

void Chat::end_thought() const {
  if (!thought_.empty() && !options_.json && !options_.quiet) fmt::print(stderr, "\n");
}

void Chat::say(std::string_view text) {
  const std::size_t mark = pending_.size();
  add(markup_.user(text));
  add(markup_.opener(options_.think));
  if (pending_.size() > session_.remains()) {
    const std::size_t needed = pending_.size();
    pending_.resize(mark);
    fail(ErrorKind::Usage,
         "this turn needs {} tokens, the context has room for {}: /reset, or start with a larger --ctx",
         needed, session_.remains());
  }
  thought_.clear();
  response_.clear();
  ReplyReader reader(model_.tokenizer, markup_, options_.think);
  const Generation result = run(
      engine_, session_, std::move(pending_), sampler_, options_.limit, cli::interrupted,
      [&](std::int32_t id) {
        if (model_.ends(id)) return Verdict::EndBefore;
        show_piece(reader.push(id));
        return reader.ended() ? Verdict::EndBefore : Verdict::Continue;
      },
      last_);
  show_piece(reader.finish());
  if (response_.empty()) end_thought();
  pending_ = result.pending;
  add(reader.closing());
  if (options_.json) {
    Json document = {{"think", utf8_replace_invalid(thought_)},
                     {"response", utf8_replace_invalid(response_)}};
    document.update(last_.json());
    show(dump_json_line(document) + "\n");
  } else {
    show("\n");
  }
}

void Chat::stats() const {
  const MemoryUse memory = engine_.memory();
  const auto bytes = [](std::uint64_t n) { return format_bytes(static_cast<double>(n)); };
  fmt::print(stderr, "last reply: {}\n", last_.line());
  fmt::print(stderr, "context: {} of {} tokens\n", session_.position(), engine_.context());
  fmt::print(stderr, "memory: budget {}: trunk {}, state {}, working space {}, {} expert records {}\n",
             bytes(memory.budget), bytes(memory.trunk), bytes(memory.state), bytes(memory.scratch),
             memory.cache_records, bytes(memory.cache));
  fmt::print(stderr, "reading: {}\n", engine_.io_name());
}

bool Chat::command(const std::string& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const std::string argument = line.substr(std::min(line.find_first_not_of(' ', space), line.size()));
  const auto need = [&](const char* what) {
    if (argument.empty()) fail(ErrorKind::Usage, "{} needs {}", name, what);
  };
  if (name == "/quit") return false;
  if (name == "/reset") {
    session_.reset();
    begin();
  } else if (name == "/system") {
    need("a text");
    add(markup_.system(argument));
  } else if (name == "/save") {
    need("a file name");
    save(argument);
    fmt::print(stderr, "saved to {}\n", argument);
  } else if (name == "/load") {
    need("a file name");
    load(argument);
    fmt::print(stderr, "continuing {}, {} tokens\n", argument, session_.position());
  } else if (name == "/stats") {
    stats();
  } else if (name == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fail(ErrorKind::Usage, "unknown command {}; /help lists them", printable(name));
  }
  return true;
}

int chat(const po::variables_map& vm) {
  const EngineOptions engine_opts = engine_options(vm);
  const ModelText model = ModelText::open(engine_opts.container);
  const ChatMarkup markup = ChatMarkup::open(engine_opts.container, model.arch, model.tokenizer);
  ChatOptions options;
  options.sampling = sampling_options(vm);
  options.limit = number_option(vm, "max-tokens", 1, std::numeric_limits<std::uint32_t>::max(),
                                std::numeric_limits<std::uint32_t>::max());
  options.think = !flag(vm, "no-think");
  options.effort = parse_effort(text_option(vm, "effort").value_or("max"));
  options.system = text_option(vm, "system").value_or("");
  options.json = flag(vm, "json");
  options.quiet = flag(vm, "quiet");
  if (!markup.is_xtml() && (flag(vm, "no-think") || flag(vm, "effort"))) {
    fail(ErrorKind::Usage, "--effort and --no-think: this model's markup has no think channel");
  }
  const auto load = text_option(vm, "load-state"), save = text_option(vm, "save-state");
  if (save) check_folder(*save);

  cli::catch_interrupts();
  Engine engine(engine_opts);
  Chat chat(engine, model, markup, options);
  if (load) chat.load(*load);

  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  LineReader lines;
  int code = 0;
  if (terminal && !options.quiet) fmt::print(stderr, "/help lists the commands\n");
  while (true) {
    if (terminal) fmt::print(stderr, "> ");
    const auto line = lines.next();
    if (!line) break;
    if (line->empty()) continue;
    try {
      if (line->front() != '/') {
        chat.say(*line);
      } else if (!chat.command(*line)) {
        break;
      }
    } catch (const Error& e) {
      // What was mistyped, or a file that would not load or save, is no reason to lose the conversation.
      if (e.kind() != ErrorKind::Usage && line->front() != '/') throw;
      fmt::print(stderr, "waste-run: {}\n", e.what());
      if (!terminal && code == 0) code = e.exit_code();  // a script learns of it at the end
    }
    if (cli::interrupted()) break;
  }
  if (save) chat.save(*save);
  if (engine_opts.learn) engine.save_usage();
  if (cli::interrupted()) {
    fail(ErrorKind::Interrupted, "interrupted{}", save ? "; --load-state " + *save + " continues" : "");
  }
  return code;
}

}  // namespace

cli::Command chat_command() {
  cli::Command command{.name = "chat",
                       .usage = "MODEL",
                       .summary = "hold a conversation in the model's own markup",
                       .help = R"(examples:
  waste-run chat kimi.waste --effort low
  echo "What is a trunk?" | waste-run chat kimi.waste --no-think --json
  waste-run chat kimi.waste --load-state talk.state --save-state talk.state

Each line of the input is a message; its control markers are text. The reply goes to standard
output, the model's thoughts to standard error. Ctrl-C ends after the current token, saves if
--save-state asks for it, and exits 5. In the conversation:

)" + std::string(kHelp),
                       .positionals = {{"MODEL"}},
                       .options = {},
                       .run = chat};
  command.options.add_options()                                                                            //
      ("max-tokens,n", po::value<std::string>()->value_name("N"), "at most N tokens a reply (what fits)")  //
      ("system", po::value<std::string>()->value_name("TEXT"), "a system message to begin with")           //
      ("effort", po::value<std::string>()->value_name("E"), "how long to think: low, high or max (max)")   //
      ("no-think", "answer at once");
  add_sampling_options(command.options);
  add_engine_options(command.options);
  command.options.add_options()                                                                      //
      ("save-state", po::value<std::string>()->value_name("F"), "save the conversation at the end")  //
      ("load-state", po::value<std::string>()->value_name("F"), "continue a saved conversation")     //
      ("json", "one line of JSON a reply")                                                           //
      ("quiet", "show neither thoughts nor hints");
  return command;
}

}  // namespace waste::runtime
