#include "runtime/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/text.h"
#include "runtime/bpe.h"

namespace waste::runtime {

namespace {

constexpr std::uint64_t kMaxSpecialsBytes = 16 << 20;
constexpr std::uint32_t kMaxVocabulary =
    1 << 24;  // bounds the reserved names a hostile config can make us write

}  // namespace

std::vector<SpecialToken> parse_specials(std::string_view json, std::string_view where) {
  const Json list = parse_json(json, where);
  if (!list.is_array()) fail_data("{}: expected a list of special tokens", where);
  std::vector<SpecialToken> specials;
  std::unordered_set<std::uint64_t> ids;
  std::unordered_set<std::string> texts;
  for (const Json& entry : list) {
    const std::string at = fmt::format("{}: entry {}", where, specials.size());
    if (!entry.is_object()) fail_data("{}: expected an object with \"id\" and \"text\"", at);
    const std::uint64_t id = json_u64(entry, "id", at);
    std::string text = json_string(entry, "text", at);
    if (id >= kMaxVocabulary) fail_data("{}: id {} is not below {}", at, id, kMaxVocabulary);
    if (text.empty()) fail_data("{}: the text of id {} is empty", at, id);
    if (!ids.insert(id).second) fail_data("{}: id {} appears twice", at, id);
    if (!texts.insert(text).second) fail_data("{}: \"{}\" appears twice", at, printable(text));
    specials.push_back({static_cast<std::int32_t>(id), std::move(text)});
  }
  return specials;
}

Tokenizer Tokenizer::open(const std::filesystem::path& container, std::uint32_t vocabulary) {
  const std::filesystem::path specials = container / "specials.json";
  std::vector<SpecialToken> list;
  if (std::filesystem::exists(specials)) {
    list = parse_specials(read_text_file(specials, kMaxSpecialsBytes), specials.string());
  }
  return Tokenizer(RankTable::read(container / "tokenizer.model"), std::move(list), vocabulary,
                   container.string());
}

Tokenizer Tokenizer::from_ranks(const std::filesystem::path& path) {
  RankTable ranks = RankTable::read(path);
  const std::uint32_t size = ranks.size();
  return Tokenizer(std::move(ranks), {}, size, path.string());
}

Tokenizer::Tokenizer(RankTable ranks, std::vector<SpecialToken> specials, std::uint32_t vocabulary,
                     std::string_view where)
    : ranks_(std::move(ranks)), specials_(std::move(specials)), vocabulary_(vocabulary) {
  if (vocabulary > kMaxVocabulary) fail_data("{}: a vocabulary of {} is absurd", where, vocabulary);
  if (ranks_.size() > vocabulary) {
    fail_data("{}: tokenizer.model has ids up to {}, the model a vocabulary of {}", where, ranks_.size() - 1,
              vocabulary);
  }
  std::unordered_set<std::int32_t> named;
  for (const SpecialToken& token : specials_) {
    if (static_cast<std::uint32_t>(token.id) >= vocabulary) {
      fail_data("{}: specials.json: id {} of \"{}\" is outside the vocabulary of {}", where, token.id,
                printable(token.text), vocabulary);
    }
    if (!ranks_.bytes(static_cast<std::uint32_t>(token.id)).empty()) {
      fail_data("{}: specials.json: id {} of \"{}\" is an ordinary token's", where, token.id,
                printable(token.text));
    }
    named.insert(token.id);
  }
  for (auto id = static_cast<std::int32_t>(ranks_.size()); id < static_cast<std::int32_t>(vocabulary); ++id) {
    if (!named.contains(id)) specials_.push_back({id, fmt::format("<|reserved_token_{}|>", id)});
  }
  std::ranges::stable_sort(specials_, std::greater<>(), [](const SpecialToken& t) { return t.text.size(); });
  for (const SpecialToken& token : specials_) {
    starts_special_[static_cast<unsigned char>(token.text[0])] = true;
    special_text_.emplace(token.id, token.text);
  }
}

void Tokenizer::encode_into(std::string_view text, std::vector<std::int32_t>& ids) const {
  BpeMerger merger(ranks_);
  for (const std::string_view piece : pre_tokenizer_.split(text)) merger.encode(piece, ids);
}

std::vector<std::int32_t> Tokenizer::encode_content(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode_into(text, ids);
  return ids;
}

const SpecialToken* Tokenizer::special_at(std::string_view text) const {
  if (!starts_special_[static_cast<unsigned char>(text[0])]) return nullptr;
  for (const SpecialToken& token : specials_) {
    if (text.starts_with(token.text)) return &token;
  }
  return nullptr;
}

std::vector<std::int32_t> Tokenizer::encode_markup(std::string_view text) const {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;  // of the ordinary text since the last special token
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* token = special_at(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    encode_into(text.substr(begin, at - begin), ids);
    ids.push_back(token->id);
    at += token->text.size();
    begin = at;
  }
  encode_into(text.substr(begin), ids);
  return ids;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  const auto rank = static_cast<std::uint32_t>(id);  // a negative id becomes one past any vocabulary
  if (const std::string_view ordinary = ranks_.bytes(rank); !ordinary.empty()) return ordinary;
  if (const auto it = special_text_.find(id); it != special_text_.end()) return it->second;
  if (rank >= vocabulary_)
    fail(ErrorKind::Usage, "token {} is outside the vocabulary of {}", id, vocabulary_);
  return {};  // a gap in the rank file: an id that stands for nothing
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += bytes(id);
  return text;
}

std::optional<std::int32_t> Tokenizer::special(std::string_view text) const {
  const auto it = std::ranges::find(specials_, text, &SpecialToken::text);
  return it == specials_.end() ? std::nullopt : std::optional(it->id);
}

std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view option,
                                    std::uint32_t vocabulary) {
  std::vector<std::int32_t> ids;
  while (true) {
    std::string_view item = text.substr(0, text.find(','));
    const bool last = item.size() == text.size();
    text.remove_prefix(last ? text.size() : item.size() + 1);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\n')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\n')) item.remove_suffix(1);
    ids.push_back(static_cast<std::int32_t>(parse_integer(item, option, 0, vocabulary - 1)));
    if (last) return ids;
  }
}

}  // namespace waste::runtime
