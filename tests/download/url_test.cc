#include "download/url.h"

#include <doctest/doctest.h>

namespace waste::download {
namespace {

TEST_CASE("origins: what a token may be sent to") {
  CHECK(parse_url("https://HuggingFace.co/x")->origin == "https://huggingface.co:443");
  CHECK(parse_url("http://127.0.0.1:8080/x?y#z")->origin == "http://127.0.0.1:8080");
  CHECK(parse_url("https://huggingface.co:8443")->origin != parse_url("https://huggingface.co")->origin);
  CHECK(parse_url("http://huggingface.co:443")->origin != parse_url("https://huggingface.co")->origin);
  CHECK(parse_url("https://huggingface.co.evil.org/")->origin !=
        parse_url("https://huggingface.co/")->origin);
}

TEST_CASE("what is no URL for this program") {
  for (const char* bad : {"", "huggingface.co", "file:///etc/passwd", "ftp://h/x", "https://user:secret@h/x",
                          "https://user@h/", "http://", "https://h/a b", "https://h/a\nb", "//h/x"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_url(bad));
  }
}

TEST_CASE("redirect targets") {
  CHECK(resolve_url("https://h/a/b?q", "/c")->text == "https://h/c");
  CHECK(resolve_url("https://h/a/b", "https://cdn/x?s=1")->text == "https://cdn/x?s=1");
  CHECK_FALSE(resolve_url("https://h/a", "file:///etc/passwd"));
  CHECK_FALSE(resolve_url("https://h/a", "https://u:p@h/"));
}

TEST_CASE("redirects that are not followed") {
  const Url https = *parse_url("https://huggingface.co/a");
  const Url http = *parse_url("http://huggingface.co/a");
  CHECK_FALSE(redirect_objection(https, https, 1));
  CHECK_FALSE(redirect_objection(http, https, 1));
  CHECK_FALSE(redirect_objection(http, http, 1));
  CHECK(redirect_objection(https, http, 1));
  CHECK(redirect_objection(https, std::nullopt, 1));
  CHECK_FALSE(redirect_objection(https, https, 8));
  CHECK(redirect_objection(https, https, 9));
}

TEST_CASE("no signature in what people read") {
  CHECK(url_for_people("https://cdn/x?Signature=secret") == "https://cdn/x");
  CHECK(url_for_people("https://cdn/x#frag") == "https://cdn/x");
}

}  // namespace
}  // namespace waste::download
