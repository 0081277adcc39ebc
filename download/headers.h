// Response headers as the Hub and its CDN send them, and the values inside them. Every parser takes untrusted
// text and answers nullopt for what it does not understand; none of them throws or allocates more than its
// input.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "download/content_id.h"

namespace waste::download {

/// Status line and header fields of one response.
struct ResponseHead {
  int status = 0;
  std::string url;  // what was asked; its query may be a signature, so messages print url_for_people(url)
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  /// The first field of that (lower-case) name, or nullptr.
  const std::string* find(std::string_view name) const;
  std::optional<std::uint64_t> content_length() const;
  /// Content-Encoding is absent or "identity": the bytes are the file's own.
  bool is_identity() const;
  bool is_html() const;
};

/// Collects a head line by line, as libcurl hands them over.
class HeadParser {
 public:
  enum class Result { More, Complete, Bad };

  /// One line with or without its CRLF. Complete comes with the empty line; interim (1xx) heads are skipped;
  /// Bad means more than 256 fields or 64 KiB, which no honest server sends.
  Result add(std::string_view line);
  const ResponseHead& head() const { return head_; }
  void reset();

 private:
  ResponseHead head_;
  std::size_t bytes_ = 0;
};

/// "bytes 0-99/1000"; the total may be "*".
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view value);

/// Retry-After, seconds or an HTTP date, as seconds from `now` (never negative, at most an hour).
std::optional<double> parse_retry_after(std::string_view value, std::time_t now);

/// `"resolvers";r=0;t=55`: requests left in the window and seconds until the next one (at most an hour). Of
/// several policies in one header the emptiest counts.
struct RateWindow {
  std::uint64_t remaining = 0;
  double reset = 0;
};
std::optional<RateWindow> parse_rate_limit(std::string_view value);

/// The target of `<...>; rel="next"` in a Link header.
std::optional<std::string> parse_next_link(std::string_view value);

/// An ETag or X-Linked-ETag, quoted or not, perhaps weak: 64 hex digits are a SHA-256, 40 a git SHA-1.
std::optional<ContentId> parse_etag(std::string_view value);

/// Whether `text` is exactly `digits` lower- or upper-case hex digits.
bool is_hex(std::string_view text, std::size_t digits);

}  // namespace waste::download
