// Text to token ids and back. Two kinds of text never mix: content (what people, documents and tools wrote),
// in which nothing is special, and markup (what a template wrote), in which special tokens are recognised.
// Each fragment is encoded on its own; joining fragments first would change the ids, and would let content
// forge markup.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/pretokenizer.h"
#include "runtime/rank_table.h"

namespace waste::runtime {

struct SpecialToken {
  std::int32_t id = 0;
  std::string text;
};

/// specials.json: [{"id": 163586, "text": "<|end_of_msg|>"}, ...]. Anything else, an empty text, or an id or
/// text that repeats is Error(Data) naming `where`.
std::vector<SpecialToken> parse_specials(std::string_view json, std::string_view where);

/// Immutable; safe to use from several threads.
class Tokenizer {
 public:
  /// Reads tokenizer.model and specials.json (which may be missing) from a container's folder.
  static Tokenizer open(const std::filesystem::path& container, std::uint32_t vocabulary);
  /// A rank file alone: no special tokens, and as many ids as it has.
  static Tokenizer from_ranks(const std::filesystem::path& path);

  /// Ids from ranks.size() up to `vocabulary` that `specials` does not name are called <|reserved_token_ID|>,
  /// as in the release. An id that is not below `vocabulary`, or is a rank's, is Error(Data) naming `where`.
  Tokenizer(RankTable ranks, std::vector<SpecialToken> specials, std::uint32_t vocabulary,
            std::string_view where);

  /// Any bytes have an encoding, and decoding it gives the same bytes back.
  std::vector<std::int32_t> encode_content(std::string_view text) const;
  /// As encode_content, but special tokens are recognised: leftmost first, and the longest where several
  /// match.
  std::vector<std::int32_t> encode_markup(std::string_view text) const;

  /// The bytes of a token, not necessarily whole characters. Special tokens have their text, so that nothing
  /// the model says is invisible to a stop string. Error(Usage) for an id at or above vocabulary().
  std::string_view bytes(std::int32_t id) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;

  std::optional<std::int32_t> special(std::string_view text) const;
  bool is_special(std::int32_t id) const { return special_text_.contains(id); }
  std::uint32_t vocabulary() const { return vocabulary_; }

 private:
  void encode_into(std::string_view text, std::vector<std::int32_t>& ids) const;
  const SpecialToken* special_at(std::string_view text) const;

  PreTokenizer pre_tokenizer_;
  RankTable ranks_;
  std::vector<SpecialToken> specials_;                               // longest text first
  std::array<bool, 256> starts_special_{};                           // by first byte
  std::unordered_map<std::int32_t, std::string_view> special_text_;  // into specials_
  std::uint32_t vocabulary_ = 0;
};

/// "1,2,3" as ids below `vocabulary`; spaces around a comma are allowed. Anything else is Error(Usage) naming
/// `option`.
std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view option, std::uint32_t vocabulary);

}  // namespace waste::runtime
