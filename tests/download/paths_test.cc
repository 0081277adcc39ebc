#include "download/paths.h"

#include <doctest/doctest.h>

#include <string>

namespace waste::download {
namespace {

TEST_CASE("good names, strange ones included") {
  for (const char* good :
       {"a", "model-00001-of-00096.safetensors", "dir/sub dir/file#1%20.bin", "\xc3\xa9t\xc3\xa9/x",
        ".gitattributes", "..a", "a..b/...", "xx:y", ".cache/other", ".cachehuggingface"}) {
    CAPTURE(good);
    CHECK_FALSE(path_objection(good));
  }
}

TEST_CASE("hostile names") {
  const std::string with_nul("a\0b", 3);
  for (const std::string& bad : {std::string(),
                                 std::string("../x"),
                                 std::string("/x"),
                                 std::string("C:\\x"),
                                 std::string("C:x"),
                                 std::string("a/../b"),
                                 std::string("a/.."),
                                 std::string("."),
                                 std::string("./a"),
                                 std::string("a//b"),
                                 std::string("a/"),
                                 std::string("a\\b"),
                                 std::string("a\nb"),
                                 std::string("a\x7f"),
                                 with_nul,
                                 std::string(241, 'x'),
                                 std::string(".cache/huggingface/x"),
                                 std::string(".cache/huggingface"),
                                 std::string(".cache/waste-download/journal"),
                                 std::string(".waste-download.lock")}) {
    CAPTURE(bad);
    CHECK(path_objection(bad));
  }
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "d/";
  CHECK(path_objection(deep + "f"));
}

TEST_CASE("sets of names that one folder cannot hold") {
  CHECK_FALSE(collision({"a", "b/c", "b/d", "ab", "a.b"}));
  CHECK(collision({"a", "b", "a"}));
  CHECK(collision({"a/b", "a"}));
  CHECK(collision({"a", "a-b", "a/b/c"}));
  CHECK(collision({"m.partial", "m"}));
}

TEST_CASE("repository names") {
  for (const char* good : {"gpt2", "moonshotai/Kimi-K3", "a_b/c.d-e", "_a/b"})
    CHECK(is_repository_name(good));
  for (const char* bad :
       {"", "/a", "a/", "a/b/c", "../x", "a/..", "a b", "a/-b", ".a/b", "a?b", "a#b", "a%2f", "a//b"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_repository_name(bad));
  }
}

TEST_CASE("percent encoding") {
  CHECK(percent_encode("a b/c#d%e?\xc3\xa9", true) == "a%20b/c%23d%25e%3F%C3%A9");
  CHECK(percent_encode("refs/pr/1", false) == "refs%2Fpr%2F1");
}

TEST_CASE("shell patterns over whole paths") {
  struct Case {
    const char* pattern;
    const char* path;
    bool matches;
  };
  for (const Case& c :
       {Case{"*", "a/b/c", true}, Case{"*.json", "dir/config.json", true}, Case{"*.json", "x.jsonl", false},
        Case{"dir/*", "dir/a/b", true}, Case{"dir/*", "other/a", false}, Case{"a?c", "abc", true},
        Case{"a?c", "ac", false}, Case{"m-[0-2].bin", "m-1.bin", true}, Case{"m-[0-2].bin", "m-3.bin", false},
        Case{"m-[!0-2].bin", "m-3.bin", true}, Case{"[]]", "]", true}, Case{"[a", "[a", true},
        Case{"*a*b*", "xxaxxbxx", true}, Case{"*a*b", "ab a", false}, Case{"", "", true},
        Case{"", "a", false}, Case{"a*", "a", true}, Case{"*[", "x[", true}}) {
    CAPTURE(c.pattern);
    CAPTURE(c.path);
    CHECK(matches_pattern(c.pattern, c.path) == c.matches);
  }
  // A pattern of many stars must not take exponential time.
  std::string stars;
  for (int i = 0; i < 40; ++i) stars += "*a";
  CHECK_FALSE(matches_pattern(stars + "b", std::string(300, 'a')));
}

}  // namespace
}  // namespace waste::download
