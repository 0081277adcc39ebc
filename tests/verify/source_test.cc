#include <doctest/doctest.h>

#include <string_view>

#include "verify/source.h"

namespace waste::verify {
namespace {

TEST_CASE("source: Content-Range") {
  ContentRange range;
  REQUIRE(parse_content_range("bytes 5-99/1234", range));
  CHECK(range == ContentRange{5, 99, 1234});
  REQUIRE(parse_content_range("bytes 0-0/1", range));
  for (const std::string_view bad : {"", "bytes", "bytes ", "bytes 5-99", "bytes 5-99/*", "bytes 99-5/1234",
                                     "bytes 5-1234/1234", "bytes -5-9/10", "bytes 5-9/10x", "octets 5-9/10",
                                     "bytes 5/10", "bytes 0-18446744073709551616/18446744073709551617"}) {
    CAPTURE(bad);
    CHECK(!parse_content_range(bad, range));
  }
}

TEST_CASE("source: what is an address") {
  CHECK(is_url("http://localhost:8000/x"));
  CHECK(is_url("https://example.org"));
  CHECK(!is_url("/mnt/http"));
  CHECK(!is_url("ftp://example.org"));
}

}  // namespace
}  // namespace waste::verify
