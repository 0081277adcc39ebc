#include "runtime/model_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/format/manifest.h"

namespace waste::runtime {

namespace {

void add_end(std::vector<std::int32_t>& ends, std::int32_t id) {
  if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
}

void add_configured_ends(std::vector<std::int32_t>& ends, const Json& config, const ModelConfig& model,
                         const std::string& where) {
  const Json* value = json_find(config, "eos_token_id");
  if (value == nullptr) return;
  for (const std::int32_t id : ids_from_json(*value, model.vocab_size, where + ": config: eos_token_id"))
    add_end(ends, id);
}

}  // namespace

std::vector<std::int32_t> ids_from_json(const Json& value, std::uint32_t vocabulary, std::string_view where) {
  std::vector<std::int32_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocabulary) {
      fail_data("{}: expected ids below {}, found {}", where, vocabulary, printable(id.dump()));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

ModelText ModelText::open(const std::filesystem::path& container) {
  const std::filesystem::path path = container / kManifestFile;
  const Manifest manifest = parse_manifest(read_text_file(path, kMaxManifestBytes), path.string());
  ModelText text{manifest.model.arch, Tokenizer::open(container, manifest.model.vocab_size), {}};
  add_configured_ends(text.end_ids, manifest.config, manifest.model, path.string());
  if (const Json* outer = json_find(manifest.config, "_outer")) {
    add_configured_ends(text.end_ids, *outer, manifest.model, path.string());
  }
  for (const std::string_view name : {"[EOS]", "<|end_of_msg|>", "<|im_end|>"}) {
    if (const auto id = text.tokenizer.special(name)) add_end(text.end_ids, *id);
  }
  return text;
}

bool ModelText::ends(std::int32_t id) const {
  return std::ranges::find(end_ids, id) != end_ids.end();
}

}  // namespace waste::runtime
