#include "verify/source.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>

#include "container/core/file.h"

namespace waste::verify {

namespace {

class FolderSource final : public Source {
 public:
  explicit FolderSource(fs::path directory) : directory_(std::move(directory)) {
    if (!fs::is_directory(directory_)) fail_data("{}: not a directory", directory_.string());
  }
  void read(std::string_view name, std::uint64_t offset, std::span<std::uint8_t> out) override {
    const File file = File::open_read(directory_ / name);
    file.read_exact(offset, out);
    file.drop_cache(offset, out.size());
  }
  std::vector<std::uint8_t> read_all(std::string_view name, std::uint64_t limit) override {
    return read_file(directory_ / name, limit);
  }

 private:
  fs::path directory_;
};

constexpr int kAttempts = 5;
constexpr std::chrono::milliseconds kFirstPause{500};  // doubled after each failure
constexpr long kConnectSeconds = 30;
constexpr long kStallSeconds = 30;  // without a byte

// A body that arrives: where it goes, and why it was cut off.
struct Body {
  std::vector<std::uint8_t> bytes;
  std::uint64_t limit = 0;
  bool too_long = false;
  std::optional<ContentRange> range;
};

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& body = *static_cast<Body*>(user);
  const std::size_t n = size * count;
  if (n > body.limit - body.bytes.size()) {
    body.too_long = true;
    return 0;
  }
  body.bytes.insert(body.bytes.end(), data, data + n);
  return n;
}

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& body = *static_cast<Body*>(user);
  std::string line(data, size * count);
  std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::string_view kName = "content-range:";
  if (line.starts_with("http/"))
    body.range.reset();  // the headers of an answer before a redirect do not count
  if (line.starts_with(kName)) {
    std::string_view value(line);
    value.remove_prefix(kName.size());
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front()))) value.remove_prefix(1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back()))) value.remove_suffix(1);
    ContentRange range;
    if (parse_content_range(value, range)) body.range = range;
  }
  return size * count;
}

class UrlSource final : public Source {
 public:
  explicit UrlSource(std::string base) : base_(std::move(base)), curl_(::curl_easy_init()) {
    if (curl_ == nullptr) fail(ErrorKind::Machine, "libcurl cannot be initialised");
    while (base_.ends_with('/')) base_.pop_back();
  }
  ~UrlSource() override { ::curl_easy_cleanup(curl_); }

  void read(std::string_view name, std::uint64_t offset, std::span<std::uint8_t> out) override {
    if (out.empty()) return;
    const std::uint64_t last = offset + out.size() - 1;
    Body body;
    const long status = get(name, fmt::format("{}-{}", offset, last), out.size(), body);
    const std::string url = address(name);
    // A server that ignores the range sends the whole file: only if that is what was asked for is it of use.
    if (status == 206) {
      if (!body.range || body.range->first != offset || body.range->last != last) {
        fail(ErrorKind::Network, "{}: asked for bytes {} to {}, the server sent others", url, offset, last);
      }
    } else if (offset != 0) {
      fail(ErrorKind::Network, "{}: the server does not answer range requests", url);
    }
    if (body.bytes.size() != out.size()) {
      fail(ErrorKind::Network, "{}: asked for {} bytes, got {}", url, out.size(), body.bytes.size());
    }
    std::copy(body.bytes.begin(), body.bytes.end(), out.begin());
  }

  std::vector<std::uint8_t> read_all(std::string_view name, std::uint64_t limit) override {
    Body body;
    get(name, {}, limit, body);
    return std::move(body.bytes);
  }

 private:
  std::string address(std::string_view name) const {
    char* escaped = ::curl_easy_escape(curl_, name.data(), static_cast<int>(name.size()));
    std::string url = base_ + "/" + (escaped != nullptr ? escaped : "");
    ::curl_free(escaped);
    return url;
  }

  // One GET with retries of what may pass by itself; returns the status, 200 or 206.
  long get(std::string_view name, const std::string& range, std::uint64_t limit, Body& body) {
    const std::string url = address(name);
    auto pause = kFirstPause;
    for (int attempt = 1;; ++attempt) {
      body = {.bytes = {}, .limit = limit, .too_long = false, .range = {}};
      const CURLcode code = perform(url, range, body);
      long status = 0;
      ::curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
      if (code == CURLE_OK && (status == 200 || status == 206)) return status;
      if (body.too_long) fail(ErrorKind::Network, "{}: more than the {} bytes asked for", url, limit);
      if (code == CURLE_OK && (status == 404 || status == 410 || status == 416)) {
        fail_data("{}: not there (HTTP {})", url, status);
      }
      const bool passing = code != CURLE_OK
                               ? code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL
                               : status == 408 || status == 429 || status >= 500;
      if (!passing || attempt == kAttempts) {
        const std::string reason =
            code != CURLE_OK ? ::curl_easy_strerror(code) : fmt::format("HTTP {}", status);
        fail(ErrorKind::Network, "{}: {} after {} attempt{}", url, reason, attempt, attempt == 1 ? "" : "s");
      }
      std::this_thread::sleep_for(pause);
      pause *= 2;
    }
  }

  CURLcode perform(const std::string& url, const std::string& range, Body& body) {
    ::curl_easy_reset(curl_);
    ::curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
    ::curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(curl_, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(curl_, CURLOPT_FOLLOWLOCATION, 1L);
    ::curl_easy_setopt(curl_, CURLOPT_MAXREDIRS, 10L);
    ::curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    ::curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, 1L);
    ::curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
    if (!range.empty()) ::curl_easy_setopt(curl_, CURLOPT_RANGE, range.c_str());
    ::curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, take_body);
    ::curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &body);
    ::curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, take_header);
    ::curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &body);
    return ::curl_easy_perform(curl_);
  }

  std::string base_;
  CURL* curl_;
};

}  // namespace

bool parse_content_range(std::string_view value, ContentRange& out) {
  constexpr std::string_view kUnit = "bytes ";
  if (!value.starts_with(kUnit)) return false;
  const char* at = value.data() + kUnit.size();
  const char* end = value.data() + value.size();
  const auto number = [&](std::uint64_t& n, char after) {
    const auto [rest, error] = std::from_chars(at, end, n);
    if (error != std::errc() || (after == '\0' ? rest != end : rest == end || *rest != after)) return false;
    at = rest + (after == '\0' ? 0 : 1);
    return true;
  };
  ContentRange range;
  if (!number(range.first, '-') || !number(range.last, '/') || !number(range.total, '\0')) return false;
  if (range.first > range.last || range.last >= range.total) return false;
  out = range;
  return true;
}

bool is_url(std::string_view from) {
  return from.starts_with("http://") || from.starts_with("https://");
}

std::unique_ptr<Source> open_source(const std::string& from) {
  if (is_url(from)) return std::make_unique<UrlSource>(from);
  return std::make_unique<FolderSource>(from);
}

}  // namespace waste::verify
