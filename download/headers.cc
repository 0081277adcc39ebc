#include "download/headers.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>

namespace waste::download {

namespace {

constexpr std::size_t kMostFields = 256;
constexpr std::size_t kMostBytes = 64 << 10;
constexpr double kLongestWait = 3600;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// ASCII only: the C locale functions would follow the user's locale.
std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return out;
}

std::optional<std::uint64_t> number(std::string_view s) {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc() || rest != s.data() + s.size()) return std::nullopt;
  return value;
}

// Cuts `text` at the first `separator` outside quotes and angle brackets, and returns what stood before it.
std::string_view next_item(std::string_view& text, char separator) {
  bool quoted = false;
  bool bracketed = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && !bracketed) quoted = !quoted;
    if (c == '<' && !quoted) bracketed = true;
    if (c == '>' && !quoted) bracketed = false;
    if (c == separator && !quoted && !bracketed) break;
  }
  const std::string_view item = trim(text.substr(0, i));
  text.remove_prefix(std::min(i + 1, text.size()));
  return item;
}

std::string_view unquote(std::string_view s) {
  if (s.size() >= 2 && s.front() == '"' && s.back() == '"') return s.substr(1, s.size() - 2);
  return s;
}

}  // namespace

const std::string* ResponseHead::find(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<std::uint64_t> ResponseHead::content_length() const {
  const std::string* value = find("content-length");
  return value == nullptr ? std::nullopt : number(*value);
}

bool ResponseHead::is_identity() const {
  const std::string* value = find("content-encoding");
  return value == nullptr || value->empty() || lower(*value) == "identity";
}

bool ResponseHead::is_html() const {
  const std::string* value = find("content-type");
  return value != nullptr && lower(*value).starts_with("text/html");
}

HeadParser::Result HeadParser::add(std::string_view line) {
  bytes_ += line.size();
  if (bytes_ > kMostBytes) return Result::Bad;
  line = trim(line);
  if (line.starts_with("HTTP/")) {
    const std::size_t bytes = bytes_;
    reset();
    bytes_ = bytes;
    std::string_view rest = line;
    next_item(rest, ' ');
    const auto status = number(next_item(rest, ' '));
    if (!status || *status < 100 || *status > 999) return Result::Bad;
    head_.status = static_cast<int>(*status);
    return Result::More;
  }
  if (line.empty()) return head_.status < 200 ? Result::More : Result::Complete;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return Result::More;
  if (head_.fields.size() == kMostFields) return Result::Bad;
  head_.fields.emplace_back(lower(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1))));
  return Result::More;
}

void HeadParser::reset() {
  head_ = {};
  bytes_ = 0;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trim(value);
  if (!lower(value.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  value = trim(value.substr(6));
  const std::size_t dash = value.find('-');
  const std::size_t slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = number(value.substr(0, dash));
  const auto last = number(value.substr(dash + 1, slash - dash - 1));
  const std::string_view total_text = value.substr(slash + 1);
  const auto total = number(total_text);
  if (!first || !last || *last < *first || (!total && total_text != "*")) return std::nullopt;
  if (total && *last >= *total) return std::nullopt;
  return ContentRange{*first, *last, total};
}

std::optional<double> parse_retry_after(std::string_view value, std::time_t now) {
  value = trim(value);
  if (const auto seconds = number(value)) return std::min(static_cast<double>(*seconds), kLongestWait);
  if (value.size() > 64) return std::nullopt;
  const std::time_t date = curl_getdate(std::string(value).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return std::clamp(std::difftime(date, now), 0.0, kLongestWait);
}

std::optional<RateWindow> parse_rate_limit(std::string_view value) {
  std::optional<RateWindow> emptiest;
  while (!value.empty()) {
    std::string_view policy = next_item(value, ',');
    std::optional<std::uint64_t> remaining;
    std::optional<std::uint64_t> reset;
    while (!policy.empty()) {
      const std::string_view parameter = next_item(policy, ';');
      if (parameter.starts_with("r=")) remaining = number(trim(parameter.substr(2)));
      if (parameter.starts_with("t=")) reset = number(trim(parameter.substr(2)));
    }
    if (!remaining || !reset) continue;
    const RateWindow window{*remaining, std::min(static_cast<double>(*reset), kLongestWait)};
    const bool emptier = !emptiest || window.remaining < emptiest->remaining ||
                         (window.remaining == emptiest->remaining && window.reset > emptiest->reset);
    if (emptier) emptiest = window;
  }
  return emptiest;
}

std::optional<std::string> parse_next_link(std::string_view value) {
  while (!value.empty()) {
    std::string_view link = next_item(value, ',');
    const std::string_view target = next_item(link, ';');
    if (target.size() < 2 || target.front() != '<' || target.back() != '>') continue;
    while (!link.empty()) {
      const std::string_view parameter = next_item(link, ';');
      const std::size_t equals = parameter.find('=');
      if (equals == std::string_view::npos || lower(trim(parameter.substr(0, equals))) != "rel") continue;
      if (lower(unquote(trim(parameter.substr(equals + 1)))) == "next") {
        return std::string(target.substr(1, target.size() - 2));
      }
    }
  }
  return std::nullopt;
}

std::optional<ContentId> parse_etag(std::string_view value) {
  value = trim(value);
  if (value.starts_with("W/")) value.remove_prefix(2);
  value = unquote(value);
  if (is_hex(value, 64)) return ContentId{ContentId::Kind::Sha256, lower(value)};
  if (is_hex(value, 40)) return ContentId{ContentId::Kind::GitSha1, lower(value)};
  return std::nullopt;
}

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
         });
}

}  // namespace waste::download
