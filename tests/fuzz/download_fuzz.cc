// Tree listings, revisions, shard indexes and response headers: everything a server can say before a byte of
// a file arrives. The first byte of the input chooses the parser.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "container/core/error.h"
#include "download/headers.h"
#include "download/listing.h"

namespace {

void read_head(std::string_view text) {
  using namespace waste::download;
  HeadParser parser;
  auto result = HeadParser::Result::More;
  while (!text.empty() && result == HeadParser::Result::More) {
    const std::size_t end = text.find('\n');
    result = parser.add(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  const ResponseHead& head = parser.head();
  (void)head.content_length();
  (void)head.is_identity();
  (void)head.is_html();
  for (const auto& [name, value] : head.fields) {
    (void)parse_content_range(value);
    (void)parse_retry_after(value, std::time_t{1'700'000'000});
    (void)parse_rate_limit(value);
    (void)parse_next_link(value);
    (void)parse_etag(value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0:
        read_head(text);
        break;
      case 1:
        waste::download::check_listing(waste::download::parse_tree_page(text, "page"), "page");
        break;
      case 2:
        (void)waste::download::parse_revision(text, "revision");
        break;
      default:
        (void)waste::download::parse_shard_index(text, "index", {0, 1});
        break;
    }
  } catch (const waste::Error&) {
    // A refusal is the right answer to most inputs.
  }
  return 0;
}
