#include "download/headers.h"

#include <doctest/doctest.h>

#include <string>

namespace waste::download {
namespace {

using Result = HeadParser::Result;

TEST_CASE("a head is complete at its empty line, names fold case, interim heads vanish") {
  HeadParser parser;
  CHECK(parser.add("HTTP/1.1 100 Continue\r\n") == Result::More);
  CHECK(parser.add("X-Early: 1\r\n") == Result::More);
  CHECK(parser.add("\r\n") == Result::More);
  CHECK(parser.add("HTTP/1.1 206 Partial Content\r\n") == Result::More);
  CHECK(parser.add("Content-LENGTH:  42 \r\n") == Result::More);
  CHECK(parser.add("no colon here\r\n") == Result::More);
  CHECK(parser.add("Content-Type: TEXT/html; charset=utf-8\r\n") == Result::More);
  CHECK(parser.add("\r\n") == Result::Complete);
  CHECK(parser.head().status == 206);
  CHECK(parser.head().content_length() == 42);
  CHECK(parser.head().find("x-early") == nullptr);
  CHECK(parser.head().is_html());
  CHECK(parser.head().is_identity());
}

TEST_CASE("a head that never ends is refused") {
  HeadParser many;
  many.add("HTTP/1.1 200 OK");
  Result result = Result::More;
  for (int i = 0; i < 300 && result == Result::More; ++i) result = many.add("a: b");
  CHECK(result == Result::Bad);
  HeadParser statuses;
  result = Result::More;
  for (int i = 0; i < 100000 && result == Result::More; ++i) result = statuses.add("HTTP/1.1 100 Continue");
  CHECK(result == Result::Bad);
  CHECK(HeadParser().add("HTTP/1.1 2000 OK") == Result::Bad);
  CHECK(HeadParser().add("HTTP/1.1") == Result::Bad);
}

TEST_CASE("Content-Range") {
  const auto range = parse_content_range("bytes 10-19/100");
  REQUIRE(range);
  CHECK(range->first == 10);
  CHECK(range->last == 19);
  CHECK(range->total == 100);
  CHECK_FALSE(parse_content_range("Bytes 0-0/*")->total);
  for (const char* bad :
       {"", "bytes", "bytes 5-4/10", "bytes 0-10/10", "bytes */10", "bytes 0-1", "bytes -1-2/3", "bytes 0-1/",
        "items 0-1/2", "bytes 0-99999999999999999999/*", "bytes 1/2-3"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_content_range(bad));
  }
}

TEST_CASE("Retry-After in both its forms") {
  CHECK(parse_retry_after("120", 0) == 120.0);
  CHECK(parse_retry_after(" 0 ", 0) == 0.0);
  CHECK(parse_retry_after("999999999999", 0) == 3600.0);
  const std::time_t now = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  CHECK(parse_retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now) == 10.0);
  CHECK(parse_retry_after("Sun, 06 Nov 1994 08:49:27 GMT", now) == 0.0);
  CHECK_FALSE(parse_retry_after("soon", now));
  CHECK_FALSE(parse_retry_after("", now));
  CHECK_FALSE(parse_retry_after("-5", now));
}

TEST_CASE("RateLimit: the emptiest policy counts") {
  const auto one = parse_rate_limit("\"resolvers\";r=0;t=55");
  REQUIRE(one);
  CHECK(one->remaining == 0);
  CHECK(one->reset == 55.0);
  const auto two = parse_rate_limit("\"api;x=1,\";r=10;t=9, \"resolvers\"; r=3; t=4");
  REQUIRE(two);
  CHECK(two->remaining == 3);
  CHECK(two->reset == 4.0);
  for (const char* bad :
       {"", "\"a\"", "\"a\";r=1", "\"a\";t=1", "\"a\";r=x;t=1", ";;;,,,", "\"unclosed;r=0;t=5"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_rate_limit(bad));
  }
}

TEST_CASE("Link: only rel=next, with commas and semicolons inside the target") {
  CHECK(parse_next_link("<https://h/x?a=1,2;3>; rel=\"next\"") == "https://h/x?a=1,2;3");
  CHECK(parse_next_link("<a>; rel=prev, <b>; foo=\"x,y\"; REL=Next") == "b");
  CHECK_FALSE(parse_next_link("<a>; rel=\"last\""));
  CHECK_FALSE(parse_next_link("a; rel=next"));
  CHECK_FALSE(parse_next_link("<a"));
  CHECK_FALSE(parse_next_link(""));
}

TEST_CASE("ETags") {
  const std::string sha256(64, 'A');
  const std::string sha1(40, 'b');
  CHECK(parse_etag("\"" + sha256 + "\"") == ContentId{ContentId::Kind::Sha256, std::string(64, 'a')});
  CHECK(parse_etag("W/\"" + sha1 + "\"") == ContentId{ContentId::Kind::GitSha1, sha1});
  CHECK(parse_etag(sha1)->kind == ContentId::Kind::GitSha1);
  CHECK_FALSE(parse_etag(std::string(64, '*')));
  CHECK_FALSE(parse_etag("\"abc\""));
}

}  // namespace
}  // namespace waste::download
