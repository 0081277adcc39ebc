#include "download/settings.h"

#include <algorithm>
#include <cstdlib>

#include "container/core/text.h"
#include "download/url.h"

namespace waste::download {

namespace {

constexpr std::uint64_t kLongestToken = 4096;

std::optional<std::string> non_empty(const Environment& environment, const char* name) {
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

bool is_true(const Environment& environment, const char* name) {
  std::string value = environment(name).value_or("");
  for (char& c : value) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - ('a' - 'A'));
  }
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path hf_home(const Environment& environment) {
  if (const auto home = non_empty(environment, "HF_HOME")) return *home;
  if (const auto cache = non_empty(environment, "XDG_CACHE_HOME")) return fs::path(*cache) / "huggingface";
  return fs::path(non_empty(environment, "HOME").value_or("/")) / ".cache" / "huggingface";
}

Token find_token(const Environment& environment, const fs::path& token_file) {
  if (!token_file.empty()) {
    Token token(read_text_file(token_file, kLongestToken), "the file " + token_file.string());
    if (token.empty()) fail(ErrorKind::Usage, "--token-file: {} holds no token", token_file.string());
    return token;
  }
  if (is_true(environment, "HF_HUB_DISABLE_IMPLICIT_TOKEN")) return {};
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    Token token(environment(name).value_or(""), name);
    if (!token.empty()) return token;
  }
  const auto named = non_empty(environment, "HF_TOKEN_PATH");
  const fs::path path = named ? fs::path(*named) : hf_home(environment) / "token";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  return Token(read_text_file(path, kLongestToken), "the file " + path.string());
}

}  // namespace

Token::Token(std::string text, std::string source) : source_(std::move(source)) {
  constexpr const char* kWhite = " \r\n\t";
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string::npos) return;
  value_ = text.substr(first, text.find_last_not_of(kWhite) - first + 1);
  const bool good = std::all_of(value_.begin(), value_.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!good) {
    fail(ErrorKind::Usage,
         "the token from {} has white space or other impossible characters inside; copy it again", source_);
  }
}

std::string Token::redact(std::string text) const {
  if (value_.empty()) return text;
  for (std::size_t at = text.find(value_); at != std::string::npos; at = text.find(value_, at)) {
    text.replace(at, value_.size(), "(token)");
  }
  return text;
}

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Settings read_settings(const Environment& environment, const std::string& endpoint,
                       const fs::path& token_file) {
  Settings settings;
  settings.endpoint =
      !endpoint.empty() ? endpoint : non_empty(environment, "HF_ENDPOINT").value_or("https://huggingface.co");
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!parse_url(settings.endpoint) || settings.endpoint.find_first_of("?#") != std::string::npos) {
    fail(ErrorKind::Usage, "{}: not an http or https URL (one without user name and query)",
         endpoint.empty() ? "HF_ENDPOINT" : "--endpoint");
  }
  settings.offline = is_true(environment, "HF_HUB_OFFLINE");
  settings.token = find_token(environment, token_file);
  const auto cache = non_empty(environment, "HF_HUB_CACHE");
  settings.hub_cache = cache ? fs::path(*cache) : hf_home(environment) / "hub";
  if (const auto timeout = non_empty(environment, "HF_HUB_DOWNLOAD_TIMEOUT")) {
    settings.stall_timeout =
        static_cast<double>(parse_integer(*timeout, "HF_HUB_DOWNLOAD_TIMEOUT", 1, 86400));
  }
  return settings;
}

}  // namespace waste::download
