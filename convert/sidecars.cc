#include "convert/sidecars.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "container/core/error.h"
#include "container/format/manifest.h"

namespace waste::convert {

namespace {

constexpr std::uint64_t kMaxTokenizer = 256 << 20;
constexpr std::uint64_t kMaxJson = 64 << 20;
constexpr std::uint64_t kMaxTemplate = 4 << 20;

// What the released image preprocessor uses and no config file states.
constexpr double kVisionRmsEps = 1.1920928955078125e-07;  // float32 epsilon
constexpr std::uint64_t kVisionMaxPatches = 1024;         // of one image, before merging

// [prefix, suffix] of a message by role, and what gives the model the floor.
struct ChatMarkup {
  std::string_view arch;
  std::string_view system[2], user[2], assistant[2];
  std::string_view open;
};

constexpr ChatMarkup kChat[] = {
    {"kimi-k3",
     {"<|open|>message role=\"system\"<|sep|>", "<|close|>message<|sep|><|end_of_msg|>"},
     {"<|open|>message role=\"user\"<|sep|>", "<|close|>message<|sep|><|end_of_msg|>"},
     {"<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>",
      "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"},
     "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>"},
    {"kimi-linear",
     {"<|im_system|>system<|im_middle|>", "<|im_end|>"},
     {"<|im_user|>user<|im_middle|>", "<|im_end|>"},
     {"<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"},
     "<|im_assistant|>assistant<|im_middle|>"},
};

Json read_json(const fs::path& path) {
  return parse_json(read_text_file(path, kMaxJson), path.string());
}

std::map<std::uint64_t, std::string> read_specials(const fs::path& path) {
  const Json config = read_json(path);
  std::map<std::uint64_t, std::string> specials;
  for (const auto& [key, token] : json_object(config, "added_tokens_decoder", path.string()).items()) {
    std::uint64_t id = 0;
    const char* end = key.data() + key.size();
    if (const auto [rest, error] = std::from_chars(key.data(), end, id);
        error != std::errc() || rest != end) {
      fail_data("{}: added_tokens_decoder: \"{}\" is not a token id", path.string(), printable(key));
    }
    specials[id] = json_string(token, "content", path.string() + ": added_tokens_decoder");
  }
  return specials;
}

// The markers "<|...|>" that a text uses and the tokenizer does not have.
std::string missing_markers(std::string_view text, const std::set<std::string, std::less<>>& known) {
  std::set<std::string_view> missing;
  for (std::size_t at = text.find("<|"); at != text.npos; at = text.find("<|", at + 2)) {
    const std::size_t end = text.find("|>", at + 2);
    if (end == text.npos) break;
    const std::string_view marker = text.substr(at, end + 2 - at);
    const bool name = marker.find_first_not_of("abcdefghijklmnopqrstuvwxyz_<|>") == marker.npos;
    if (name && !known.contains(marker)) missing.insert(marker);
  }
  std::string list;
  for (const std::string_view m : missing) list += (list.empty() ? "" : ", ") + std::string(m);
  return list;
}

std::string specials_json(const std::map<std::uint64_t, std::string>& specials) {
  Json list = Json::array();
  for (const auto& [id, text] : specials) list.push_back({{"id", id}, {"text", text}});
  return dump_json(list);
}

std::string chat_json(const ChatMarkup& chat) {
  Json out;
  out["system"] = {chat.system[0], chat.system[1]};
  out["user"] = {chat.user[0], chat.user[1]};
  out["assistant"] = {chat.assistant[0], chat.assistant[1]};
  out["open"] = chat.open;
  return dump_json(out);
}

std::string vision_json(const Json& config, const fs::path& preprocessor) {
  const Json file = read_json(preprocessor);
  const std::string where = preprocessor.string();
  const Json* nested = json_find(file, "media_proc_cfg");
  const Json& normalisation = nested != nullptr ? *nested : file;
  Json out = json_object(config, "vision_config", "config.json");
  out["vt_rms_eps"] = kVisionRmsEps;
  out["media_placeholder_token_id"] = json_u64(config, "media_placeholder_token_id", "config.json");
  out["max_patches"] = kVisionMaxPatches;
  for (const char* key : {"image_mean", "image_std"}) {
    const Json& values = json_array(normalisation, key, where);
    bool numbers = values.size() == 3;
    for (const Json& v : values) numbers = numbers && v.is_number();
    if (!numbers)
      fail_data("{}: {}: expected three numbers, found {}", where, key, printable(dump_json_line(values)));
    out[key] = values;
  }
  for (const char* key : {"in_patch_limit", "patch_limit_on_one_side"}) {
    if (const Json* value = json_find(normalisation, key)) out[key] = *value;
  }
  return dump_json(out);
}

}  // namespace

Sidecars collect_sidecars(const fs::path& source, const ModelConfig& model, const Json& config) {
  Sidecars out;
  out.files.push_back(
      {std::string(kTokenizerFile), read_text_file(source / "tiktoken.model", kMaxTokenizer)});
  const auto specials = read_specials(source / "tokenizer_config.json");
  out.files.push_back({std::string(kSpecialsFile), specials_json(specials)});
  std::set<std::string, std::less<>> markers;
  for (const auto& [id, text] : specials) markers.insert(text);

  const auto add_if_known = [&](std::string name, std::string content) {
    // JSON escapes only quotes here: markers look the same inside and outside of it.
    if (const std::string missing = missing_markers(content, markers); !missing.empty()) {
      out.notes.push_back(fmt::format("no {}: the tokenizer does not have {}", name, missing));
    } else {
      out.files.push_back({std::move(name), std::move(content)});
    }
  };
  for (const ChatMarkup& chat : kChat) {
    if (chat.arch == model.arch) add_if_known(std::string(kChatFile), chat_json(chat));
  }
  if (const fs::path path = source / "chat_template.jinja"; fs::exists(path)) {
    add_if_known("chat_template.jinja", read_text_file(path, kMaxTemplate));
  }
  if (json_find(config, "vision_config") != nullptr) {
    out.files.push_back({std::string(kVisionFile), vision_json(config, source / "preprocessor_config.json")});
  }
  return out;
}

}  // namespace waste::convert
