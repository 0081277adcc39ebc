// waste-run tokenize and detokenize: text to ids and back.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "runtime/commands.h"
#include "runtime/model_text.h"
#include "runtime/options.h"
#include "runtime/utf8.h"

namespace waste::runtime {

namespace {

struct Source {
  Tokenizer tokenizer;
  std::string text;
};

// MODEL TEXT, or --ranks FILE TEXT; TEXT is standard input when it is "-" or missing.
Source open_source(const po::variables_map& vm) {
  const auto ranks = text_option(vm, "ranks"), first = text_option(vm, "MODEL"),
             second = text_option(vm, "TEXT");
  if (ranks && second)
    fail(ErrorKind::Usage, "unexpected argument \"{}\": --ranks replaces MODEL", printable(*second));
  if (!ranks && !first) fail(ErrorKind::Usage, "MODEL or --ranks FILE is missing; see --help");
  const auto& text = ranks ? first : second;
  Tokenizer tokenizer = ranks ? Tokenizer::from_ranks(*ranks) : ModelText::open(*first).tokenizer;
  return {std::move(tokenizer), text && *text != "-" ? *text : read_standard_input()};
}

int tokenize(const po::variables_map& vm) {
  const bool markup = flag(vm, "markup");
  if (markup && flag(vm, "ranks"))
    fail(ErrorKind::Usage, "--markup: a rank file has no special tokens; give a MODEL");
  const Source source = open_source(vm);
  const std::vector<std::int32_t> ids =
      markup ? source.tokenizer.encode_markup(source.text) : source.tokenizer.encode_content(source.text);
  if (flag(vm, "json")) {
    show(dump_json_line({{"ids", ids}}) + "\n");
  } else {
    show(fmt::format("{}\n", fmt::join(ids, ",")));
  }
  return 0;
}

int detokenize(const po::variables_map& vm) {
  const Source source = open_source(vm);
  std::string list = source.text;
  while (!list.empty() && (list.back() == '\n' || list.back() == '\r')) list.pop_back();
  const std::string text =
      list.empty() ? "" : source.tokenizer.decode(parse_ids(list, "IDS", source.tokenizer.vocabulary()));
  if (flag(vm, "json")) {
    show(dump_json_line({{"text", utf8_replace_invalid(text)}}) + "\n");
  } else {
    show(text);
  }
  return 0;
}

}  // namespace

cli::Command tokenize_command() {
  cli::Command command{
      .name = "tokenize",
      .usage = "MODEL|--ranks FILE [TEXT|-]",
      .summary = "print the ids of a text",
      .help =
          "examples:\n"
          "  waste-run tokenize kimi.waste \"The capital of France is\"\n"
          "  waste-run tokenize --ranks tiktoken.model - < notes.txt\n\n"
          "Without TEXT standard input is read. Control markers are text unless --markup is given.\n",
      .positionals = {{"MODEL", false}, {"TEXT", false}},
      .options = {},
      .run = tokenize};
  command.options.add_options()  //
      ("ranks", po::value<std::string>()->value_name("FILE"),
       "a tiktoken rank file in place of a container")  //
      ("markup", "recognise special tokens")            //
      ("json", "print {\"ids\": [...]}");
  return command;
}

cli::Command detokenize_command() {
  cli::Command command{
      .name = "detokenize",
      .usage = "MODEL|--ranks FILE [IDS|-]",
      .summary = "print the text of comma-separated ids, byte for byte",
      .help =
          "examples:\n"
          "  waste-run detokenize kimi.waste 1008,10484,318\n"
          "  waste-run tokenize kimi.waste - < a | waste-run detokenize kimi.waste | cmp - a\n",
      .positionals = {{"MODEL", false}, {"TEXT", false}},
      .options = {},
      .run = detokenize};
  command.options.add_options()  //
      ("ranks", po::value<std::string>()->value_name("FILE"),
       "a tiktoken rank file in place of a container")  //
      ("json", "print {\"text\": \"...\"}, with U+FFFD for what is not UTF-8");
  return command;
}

}  // namespace waste::runtime
