#include "runtime/options.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <limits>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/text.h"

namespace waste::runtime {

namespace {

constexpr std::uint64_t kMaxPromptBytes = 1 << 30;

double real_option(const po::variables_map& vm, const std::string& name, double fallback) {
  const auto text = text_option(vm, name);
  if (!text) return fallback;
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) {
    fail(ErrorKind::Usage, "--{}: \"{}\" is not a number", name, printable(*text));
  }
  return value;
}

}  // namespace

std::optional<std::string> text_option(const po::variables_map& vm, const std::string& name) {
  const auto it = vm.find(name);
  return it == vm.end() ? std::nullopt : std::optional(it->second.as<std::string>());
}

bool flag(const po::variables_map& vm, const std::string& name) {
  return vm.count(name) != 0;
}

std::uint64_t number_option(const po::variables_map& vm, const std::string& name, std::uint64_t low,
                            std::uint64_t high, std::uint64_t fallback) {
  const auto text = text_option(vm, name);
  return text ? parse_integer(*text, "--" + name, low, high) : fallback;
}

void add_engine_options(po::options_description& options) {
  options.add_options()                                                                          //
      ("ctx", po::value<std::string>()->value_name("N"), "positions a session can hold (4096)")  //
      ("budget", po::value<std::string>()->value_name("SIZE"),
       "memory for everything (three quarters of what is usable)")                                        //
      ("threads", po::value<std::string>()->value_name("N"), "threads (every CPU this process may use)")  //
      ("kv", po::value<std::string>()->value_name("f16|f32"), "how attention latents are kept (f16)")     //
      ("verify", "check the checksum of every expert record read")                                        //
      ("learn", "preload the experts used most so far, and add this run's counts to usage.waste");
}

EngineOptions engine_options(const po::variables_map& vm) {
  EngineOptions options;
  options.container = *text_option(vm, "MODEL");
  options.context = static_cast<std::uint32_t>(number_option(vm, "ctx", 1, 1 << 24, options.context));
  options.threads = static_cast<unsigned>(number_option(vm, "threads", 1, 1024, 0));
  if (const auto budget = text_option(vm, "budget")) {
    options.budget = parse_size(*budget, "--budget");
    if (options.budget == 0) fail(ErrorKind::Usage, "--budget: nothing runs in no memory");
  }
  if (const auto kv = text_option(vm, "kv")) {
    if (*kv != "f16" && *kv != "f32")
      fail(ErrorKind::Usage, "--kv: \"{}\" is neither f16 nor f32", printable(*kv));
    options.kv = *kv == "f16" ? KvType::F16 : KvType::F32;
  }
  options.verify = flag(vm, "verify");
  options.learn = flag(vm, "learn");
  options.interrupted = cli::interrupted;
  return options;
}

void add_sampling_options(po::options_description& options) {
  options.add_options()                                                                                //
      ("temperature", po::value<std::string>()->value_name("T"), "0: always the likeliest token (1)")  //
      ("top-k", po::value<std::string>()->value_name("K"), "choose among the K likeliest (0: all)")    //
      ("top-p", po::value<std::string>()->value_name("P"),
       "choose among the fewest that reach probability P (0.95)")  //
      ("min-p", po::value<std::string>()->value_name("P"),
       "choose among those P times as probable as the likeliest (0)")  //
      ("seed", po::value<std::string>()->value_name("N"), "the same seed gives the same text (0)");
}

SamplingOptions sampling_options(const po::variables_map& vm) {
  SamplingOptions options;
  options.temperature = real_option(vm, "temperature", 1);
  options.top_k =
      static_cast<std::uint32_t>(number_option(vm, "top-k", 0, std::numeric_limits<std::uint32_t>::max(), 0));
  options.top_p = real_option(vm, "top-p", 0.95);
  options.min_p = real_option(vm, "min-p", 0);
  options.seed = number_option(vm, "seed", 0, std::numeric_limits<std::uint64_t>::max(), 0);
  return options;
}

std::string read_standard_input() {
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, block, sizeof block);
    if (n < 0) fail_errno(errno, "reading standard input");
    if (n == 0) return text;
    text.append(block, static_cast<std::size_t>(n));
    if (text.size() > kMaxPromptBytes)
      fail(ErrorKind::Usage, "standard input: more than {} bytes", kMaxPromptBytes);
  }
}

std::optional<std::vector<std::int32_t>> prompt_ids(const po::variables_map& vm, const Tokenizer& tokenizer,
                                                    bool raw) {
  const auto prompt = text_option(vm, "PROMPT"), file = text_option(vm, "file"), ids = text_option(vm, "ids");
  if (prompt.has_value() + file.has_value() + ids.has_value() > 1) {
    fail(ErrorKind::Usage, "PROMPT, --file and --ids exclude each other");
  }
  if (ids) return parse_ids(*ids, "--ids", tokenizer.vocabulary());
  if (!prompt && !file) return std::nullopt;
  const std::string text = file             ? read_text_file(*file, kMaxPromptBytes)
                           : *prompt == "-" ? read_standard_input()
                                            : *prompt;
  return raw ? tokenizer.encode_markup(text) : tokenizer.encode_content(text);
}

void check_prompt_fits(std::size_t count, std::uint32_t context) {
  if (count > context) {
    fail(ErrorKind::Usage, "the prompt has {} tokens, the context holds {}: nothing is cut; raise --ctx",
         count, context);
  }
}

void check_folder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_errno(errno, "cannot save to " + path.string());
}

void show(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail_errno(errno, "writing to standard output");
  }
}

}  // namespace waste::runtime
