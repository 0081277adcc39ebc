// The small files beside the weights: tokenizer, special tokens, conversation markup, image preprocessing.
#pragma once

#include <string>
#include <vector>

#include "container/core/file.h"
#include "container/core/json.h"
#include "container/format/model_config.h"

namespace waste::convert {

struct Sidecar {
  std::string name;
  std::string content;
};

struct Sidecars {
  std::vector<Sidecar> files;
  std::vector<std::string> notes;  // what was left out, and why
};

/// Reads what the container takes over from the checkpoint's folder; nothing is written yet. Error(Data) when
/// the tokenizer, or the image normalisation of a model with a vision tower, is missing or malformed.
///   tokenizer.model      the tiktoken rank file, as it is
///   specials.json        added_tokens_decoder of tokenizer_config.json, ascending
///   chat.json            the family's conversation markup, only if the tokenizer has every marker in it
///   chat_template.jinja  as it is, under the same condition
///   vision.json          vision_config with preprocessor_config.json's normalisation
Sidecars collect_sidecars(const fs::path& source, const ModelConfig& model, const Json& config);

}  // namespace waste::convert
