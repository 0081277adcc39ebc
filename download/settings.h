// What the environment of the Hugging Face tools says: endpoint, token, folders, offline mode. Read once, at
// the start; command-line options override it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "container/core/file.h"

namespace waste::download {

/// A secret. Nothing prints it: the value leaves only through `value()`, which two places call: the
/// Authorization header, and redact().
class Token {
 public:
  Token() = default;
  /// `text` loses surrounding white space; anything but printable ASCII inside is Error(Usage) naming
  /// `source`.
  Token(std::string text, std::string source);

  bool empty() const { return value_.empty(); }
  const std::string& value() const { return value_; }
  const std::string& source() const { return source_; }  // "HF_TOKEN", "the file ~/.cache/huggingface/token"
  /// `text` with every occurrence of the token replaced: servers may echo what they were sent.
  std::string redact(std::string text) const;

 private:
  std::string value_;
  std::string source_;
};

/// How a variable is looked up; std::getenv outside tests.
using Environment = std::function<std::optional<std::string>(const char*)>;
Environment process_environment();

struct Settings {
  std::string endpoint;       // "https://huggingface.co", without a trailing slash
  Token token;                // empty when there is none
  fs::path hub_cache;         // the cache that the Hugging Face tools share
  bool offline = false;       // HF_HUB_OFFLINE
  double stall_timeout = 30;  // seconds; HF_HUB_DOWNLOAD_TIMEOUT
};

/// `endpoint` and `token_file` are the options' values, empty when not given. Error(Usage) names the variable
/// or option that is wrong.
Settings read_settings(const Environment& environment, const std::string& endpoint,
                       const fs::path& token_file);

}  // namespace waste::download
