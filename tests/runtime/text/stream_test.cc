#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "container/core/error.h"
#include "runtime/detokenizer.h"
#include "runtime/stop.h"
#include "runtime/utf8.h"

namespace waste::runtime {
namespace {

TEST_CASE("utf8: the borders of what is valid") {
  const std::vector<std::string> valid = {
      "\x7F",         "\xC2\x80",         "\xDF\xBF",         "\xE0\xA0\x80",      "\xED\x9F\xBF",
      "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", std::string(1, '\0')};
  for (const std::string& s : valid) {
    CHECK(utf8_length(s) == s.size());
    for (std::size_t n = 1; n < s.size(); ++n) {
      CHECK(utf8_length(s.substr(0, n)) == 0);
      CHECK(utf8_incomplete(s.substr(0, n)));
    }
    CHECK_FALSE(utf8_incomplete(s));
    CHECK_FALSE(utf8_incomplete(s + "\x80"));
  }
  for (const std::string& s : std::vector<std::string>{
           "", "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC2\x41", "\xE1\x80\x41"}) {
    CHECK(utf8_length(s) == 0);
    CHECK_FALSE(utf8_incomplete(s));
  }
  CHECK(utf8_valid_prefix("a\xC3\xA9\xFFz") == 3);
  CHECK(utf8_replace_invalid("a\xC3\xA9\xFFz\xE2\x82") == "a\xC3\xA9\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("detokenizer: never half a character, and no byte lost, however the text is cut") {
  const std::string text = "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80\xF0\x9F\x87\xAB!";
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Detokenizer detokenizer;
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 4;
      const std::string piece = detokenizer.push(std::string_view(text).substr(at, n));
      REQUIRE(utf8_valid_prefix(piece) == piece.size());
      shown += piece;
      at += n;
    }
    CHECK(detokenizer.finish().empty());
    CHECK(shown == text);
  }
}

TEST_CASE("detokenizer: any bytes come out as they went in, at most three late") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    Detokenizer detokenizer;
    std::string text, shown;
    for (int i = 0; i < 30; ++i) {
      std::string piece(random() % 3, '\0');
      for (char& c : piece) c = static_cast<char>(0x70 + random() % 0x90);
      text += piece;
      shown += detokenizer.push(piece);
      REQUIRE(text.size() - shown.size() <= 3);
    }
    shown += detokenizer.finish();
    CHECK(shown == text);
  }
  Detokenizer detokenizer;
  CHECK(detokenizer.push("a\xF0\x9F\x98") == "a");
  CHECK(detokenizer.push("\x80") == "\xF0\x9F\x98\x80");
  CHECK(detokenizer.push("\xE2\x82") == "");
  CHECK(detokenizer.push("x") == "\xE2\x82x");  // it was no character after all
  CHECK(detokenizer.push("\xE2") == "");
  CHECK(detokenizer.finish() == "\xE2");
}

struct Stopped {
  std::string text, matched;
  bool operator==(const Stopped&) const = default;
};

Stopped run_stops(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Stopped result;
  for (const std::string& piece : pieces) result.text += matcher.push(piece);
  if (matcher.matched().empty()) result.text += matcher.finish();
  result.matched = matcher.matched();
  return result;
}

TEST_CASE("stop: found in one token, across two, and byte by byte") {
  CHECK(run_stops({"END"}, {"one END two"}) == Stopped{"one ", "END"});
  CHECK(run_stops({"END"}, {"one E", "ND two"}) == Stopped{"one ", "END"});
  CHECK(run_stops({"END"}, {"o", "n", "e", "E", "N", "D", "x"}) == Stopped{"one", "END"});
  CHECK(run_stops({"END"}, {"EEN", "EN", "EN", "D"}) == Stopped{"EENEN", "END"});
  CHECK(run_stops({"aab"}, {"a", "a", "a", "b"}) == Stopped{"a", "aab"});
  CHECK(run_stops({"<|end_of_msg|>"}, {"bye", "<|end_of_msg|>"}) == Stopped{"bye", "<|end_of_msg|>"});
}

TEST_CASE("stop: the first to start wins, and the longest of those that start together") {
  CHECK(run_stops({"b", "abc"}, {"xabc"}) == Stopped{"x", "abc"});
  CHECK(run_stops({"ab", "abc"}, {"xabc"}) == Stopped{"x", "abc"});
  CHECK(run_stops({"abc", "ab"}, {"xabc"}) == Stopped{"x", "abc"});
  CHECK(run_stops({"zz", "\n\n"}, {"line\n", "\nzz"}) == Stopped{"line", "\n\n"});
}

TEST_CASE("stop: without a match every byte is shown, and only a possible start is held back") {
  CHECK(run_stops({"END"}, {"the EN", "D"}) == Stopped{"the ", "END"});
  CHECK(run_stops({"END"}, {"the EN"}) == Stopped{"the EN", ""});
  CHECK(run_stops({}, {"a", "b"}) == Stopped{"ab", ""});
  StopMatcher matcher({"END"});
  CHECK(matcher.push("one") == "one");
  CHECK(matcher.push("twoE") == "two");
  CHECK(matcher.push("Nx") == "ENx");
  CHECK_THROWS_AS(StopMatcher({"a", ""}), Error);
}

}  // namespace
}  // namespace waste::runtime
