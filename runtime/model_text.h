// What a container says about its model's text, without opening its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/json.h"
#include "runtime/tokenizer.h"

namespace waste::runtime {

/// A JSON list of token ids (or a single one) below `vocabulary`; anything else is Error(Data), opened by
/// `where`.
std::vector<std::int32_t> ids_from_json(const Json& value, std::uint32_t vocabulary, std::string_view where);

/// Immutable after opening.
struct ModelText {
  std::string arch;
  Tokenizer tokenizer;
  /// Tokens at which generation ends: the configuration's eos_token_id, one or a list, and the tokenizer's
  /// [EOS],
  /// <|end_of_msg|> and <|im_end|>.
  std::vector<std::int32_t> end_ids;

  /// Reads manifest.json, tokenizer.model and specials.json. Error(Data) names the file.
  static ModelText open(const std::filesystem::path& container);
  bool ends(std::int32_t id) const;
};

}  // namespace waste::runtime
