#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer.h"

#include <doctest/doctest.h>
#include <pcre2.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "runtime/bpe.h"
#include "runtime/utf8.h"

namespace waste::runtime {
namespace {

using Ids = std::vector<std::int32_t>;
const fs::path kData = WASTE_TEST_DATA;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::from_ranks(kData / "tiny-k3/tiktoken.model");
  return tokenizer;
}

const Tokenizer& cl100k() {
  static const Tokenizer tokenizer = Tokenizer::from_ranks(kData / "golden/tokenizer/cl100k.tiktoken");
  return tokenizer;
}

const Tokenizer& tiny_model() {
  static const Tokenizer tokenizer = Tokenizer::open(kData / "golden/tiny-k3.waste", 2304);
  return tokenizer;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Every byte, the i-th at rank first + i (but '"' at rank 1, as in Kimi's file), then `more`.
std::string rank_file(std::uint32_t first, const std::vector<std::pair<std::string, int>>& more) {
  std::string text;
  for (unsigned i = 0; i < 256; ++i) {
    const char c = static_cast<char>(i);
    text += base64(std::string_view(&c, 1)) + " " + std::to_string(c == '"' ? 1 : first + i) + "\n";
  }
  for (const auto& [token, rank] : more) text += base64(token) + " " + std::to_string(rank) + "\n";
  return text;
}

TEST_CASE("tokenizer: every golden case, both rank files, there and back") {
  const fs::path path = kData / "golden/tokenizer/cases.json";
  const Json cases = parse_json(read_text_file(path, 1 << 20), path.string());
  REQUIRE(cases.size() == 91);
  for (const Json& c : cases) {
    const auto text = c.at("text").get<std::string>();
    CAPTURE(text);
    CHECK(tiny().encode_content(text) == c.at("tiny").get<Ids>());
    CHECK(cl100k().encode_content(text) == c.at("cl100k").get<Ids>());
    CHECK(tiny().decode(c.at("tiny").get<Ids>()) == text);
    CHECK(cl100k().decode(c.at("cl100k").get<Ids>()) == text);
  }
}

TEST_CASE("tokenizer: the release's known encoding and its markup, from the ranks that matter to them") {
  const Tokenizer kimi(
      RankTable::parse(rank_file(20000, {{"The", 1008},
                                         {" capital", 10484},
                                         {" of", 318},
                                         {" France", 15383},
                                         {" is", 387},
                                         {"message", 2778},
                                         {" role", 6244},
                                         {"=\"", 878},
                                         {"assistant", 69702},
                                         {"think", 39964}}),
                       "test"),
      {{163586, "<|end_of_msg|>"}, {163587, "<|open|>"}, {163588, "<|close|>"}, {163589, "<|sep|>"}}, 163840,
      "test");
  CHECK(kimi.encode_content("The capital of France is") == Ids{1008, 10484, 318, 15383, 387});
  CHECK(kimi.encode_markup("<|end_of_msg|><|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>") ==
        Ids{163586, 163587, 2778, 6244, 878, 69702, 1, 163589, 163587, 39964, 163589});
}

// The pattern as released, written with look-aheads for the intersections, matched one character at a time.
class Reference {
 public:
  explicit Reference(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
    REQUIRE(code_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Reference() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  std::vector<std::string_view> split(std::string_view text) const {
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size();) {
      REQUIRE(pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0, match_,
                          nullptr) > 0);
      const std::size_t end = pcre2_get_ovector_pointer(match_)[1];
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
    return pieces;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

const Reference& released_pattern() {
  static const Reference reference(
      R"([\p{sc:Han}]+)"
      R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|\p{N}{1,3})"
      R"(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)"
      R"(|\p{wspace}*[\r\n]+)"
      R"(|\p{wspace}+(?!\P{wspace}))"
      R"(|\p{wspace}+)");
  return reference;
}

std::string utf8(std::uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  std::string tail;
  std::uint32_t limit = 0x40;
  while (true) {
    tail.insert(tail.begin(), static_cast<char>(0x80 | (c & 0x3F)));
    c >>= 6;
    limit >>= 1;
    if (c < limit) break;
  }
  const std::uint32_t lead = tail.size() == 1 ? 0xC0 : tail.size() == 2 ? 0xE0 : 0xF0;
  return static_cast<char>(lead | c) + tail;
}

TEST_CASE("pre-tokenizer: every assigned code point is cut as by the released pattern") {
  const PreTokenizer pre_tokenizer;
  // The planes from 4 up hold a few assigned stretches only: a sample of them will do.
  for (std::uint32_t c = 0; c < 0x110000; c += c < 0x34000 ? 1 : 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    // In the middle of lower case, after upper case and before it, beside a space: each class shows
    // somewhere.
    const std::string x = utf8(c);
    const std::string text = "ab" + x + "cD" + x + x + "E " + x + " ";
    if (pre_tokenizer.split(text) != released_pattern().split(text)) FAIL("U+" << std::hex << c);
  }
}

TEST_CASE("pre-tokenizer: what PCRE2's own spelling would get wrong") {
  const auto pieces = [](std::string_view text) { return PreTokenizer().split(text); };
  using Pieces = std::vector<std::string_view>;
  // U+30FC is of no script but extended to Han; U+3005 is Han; U+3007 is a Han number.
  CHECK(pieces("\u6F22\u30FC") == Pieces{"\u6F22", "\u30FC"});
  CHECK(pieces("\u6F22\u3005\u3007a") == Pieces{"\u6F22\u3005\u3007", "a"});
  CHECK(pieces("a \u180Eb") == Pieces{"a", " \u180E", "b"});  // not white space
  CHECK(pieces("a\u0085\u0085b") == Pieces{"a", "\u0085", "\u0085b"});
  CHECK(pieces("it'\u017F") == Pieces{"it'\u017F"});  // the long s folds to s
}

TEST_CASE("pre-tokenizer: invalid bytes stand alone between valid stretches") {
  const auto pieces = [](std::string_view text) { return PreTokenizer().split(text); };
  using Pieces = std::vector<std::string_view>;
  CHECK(pieces("ab\xFF\xFE\x80 cd") == Pieces{"ab", "\xFF\xFE\x80", " cd"});
  CHECK(pieces("\xE4\xBD") == Pieces{"\xE4\xBD"});
  CHECK(pieces("\xED\xA0\x80x") == Pieces{"\xED\xA0\x80", "x"});  // a surrogate
  CHECK(pieces("a  \xFF") == Pieces{"a", "  ", "\xFF"});          // the stretch ends there, as a text would
}

// The definition, by exhaustive search: O(n^2), for short pieces only.
Ids merge_naively(const RankTable& table, std::string_view piece) {
  if (const auto rank = table.rank(piece)) return {static_cast<std::int32_t>(*rank)};
  std::vector<std::string_view> parts;
  for (std::size_t i = 0; i < piece.size(); ++i) parts.push_back(piece.substr(i, 1));
  while (true) {
    std::optional<std::uint32_t> best;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = table.rank(std::string_view(parts[i].data(), parts[i].size() + parts[i + 1].size()));
      if (rank && (!best || *rank < *best)) best = rank, where = i;
    }
    if (!best) break;
    parts[where] = std::string_view(parts[where].data(), parts[where].size() + parts[where + 1].size());
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  Ids ids;
  for (const auto part : parts) ids.push_back(static_cast<std::int32_t>(*table.rank(part)));
  return ids;
}

TEST_CASE("bpe: as the definition says, on random bytes over small alphabets") {
  const RankTable table = RankTable::read(kData / "golden/tokenizer/cl100k.tiktoken");
  BpeMerger merger(table);
  std::mt19937 random(3);
  for (const std::string_view alphabet : {"ab", "a", "aeinrst ", "\xE4\xBD\xA0\x80\xE5", " \n\t=-"}) {
    for (int round = 0; round < 60; ++round) {
      std::string piece(1 + random() % 80, '\0');
      for (char& c : piece) c = alphabet[random() % alphabet.size()];
      Ids ids;
      merger.encode(piece, ids);
      REQUIRE(ids == merge_naively(table, piece));
    }
  }
}

TEST_CASE("tokenizer: pieces of 256 KiB, which a quadratic merge or a regex stack would not survive") {
  constexpr std::size_t kSize = 1 << 18;
  std::mt19937 random(4);
  std::string letters(kSize, '\0');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  std::string han;
  while (han.size() < kSize) han += "\u6F22\u5B57";
  for (const std::string& text :
       {std::string(kSize, ' '), std::string(kSize, 'A'), std::string(kSize, '\n') + "x", letters, han,
        std::string(kSize, '\xFF'), std::string(kSize, '=')}) {
    CHECK(cl100k().decode(cl100k().encode_content(text)) == text);
  }
}

TEST_CASE("tokenizer: any bytes decode to what was encoded") {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t n = random() % 40; n > 0; --n) {
      if (random() % 3 == 0) {
        text += static_cast<char>(random());
      } else {
        const auto c = static_cast<std::uint32_t>(random() % 0x30000);
        text += utf8(c >= 0xD800 && c < 0xE000 ? 'x' : c);
      }
    }
    CHECK(tiny_model().decode(tiny_model().encode_content(text)) == text);
    CHECK(tiny_model().decode(tiny_model().encode_markup(text)) == text);
  }
}

TEST_CASE("tokenizer: control markers are special in markup and text in content") {
  const Tokenizer& t = tiny_model();
  CHECK(t.encode_markup("<|open|>x<|sep|>[EOS]") == Ids{2051, 120, 2053, 2049});
  for (const std::string_view text :
       {"<|open|>", "<|end_of_msg|>", "[EOS]", "a<|close|>message<|sep|>b", "<|reserved_token_2070|>"}) {
    CHECK(std::ranges::none_of(t.encode_content(text), [&](std::int32_t id) { return t.is_special(id); }));
    CHECK(t.decode(t.encode_content(text)) == text);
  }
  CHECK(t.encode_content("<|open|>message role=\"user\"<|sep|>") ==
        tiny().encode_content("<|open|>message role=\"user\"<|sep|>"));
}

TEST_CASE("tokenizer: special tokens have a text, and one that has no name has the release's") {
  const Tokenizer& t = tiny_model();
  CHECK(t.decode({2049, 72, 2054}) == "[EOS]H<|end_of_msg|>");
  CHECK(t.bytes(2100) == "<|reserved_token_2100|>");
  CHECK(t.encode_markup("<|reserved_token_2100|>") == Ids{2100});
  CHECK(t.special("<|sep|>") == 2053);
  CHECK_FALSE(t.special("<|nonsense|>"));
  CHECK_THROWS_AS(t.bytes(2304), Error);
  CHECK_THROWS_AS(t.bytes(-1), Error);
}

TEST_CASE("tokenizer: of special tokens that match at one place the longest is meant") {
  const Tokenizer t(RankTable::parse(rank_file(300, {}), "test"), {{600, "<a"}, {601, "<a>"}, {602, "a>"}},
                    700, "test");
  CHECK(t.encode_markup("<a>") == Ids{601});
  CHECK(t.encode_markup("<a<a>a>") == Ids{600, 601, 602});
}

void check_refused(const std::function<void()>& f, std::string_view part) {
  try {
    f();
    FAIL("accepted: " << part);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    CHECK_MESSAGE(std::string_view(e.what()).find(part) != std::string_view::npos, e.what());
  }
}

TEST_CASE("rank file: damage is refused, naming the line") {
  const auto refuse = [](const std::string& text, std::string_view part) {
    check_refused([&] { RankTable::parse(text, "ranks"); }, part);
  };
  const std::string good = rank_file(300, {});
  CHECK(RankTable::parse(good, "ranks").size() == 556);
  CHECK(RankTable::parse(good + "\r\n\n", "ranks").size() == 556);
  refuse("", "the byte 0x00 has no token");
  refuse(good.substr(good.find('\n') + 1), "the byte 0x00 has no token");
  refuse(good + "YWI", "ranks: line 257: expected \"BASE64 RANK\"");
  refuse(good + "YWI 900", "expected \"BASE64 RANK\"");   // no padding
  refuse(good + "YW?= 900", "expected \"BASE64 RANK\"");  // not base64
  refuse(good + "YWJ= 900", "expected \"BASE64 RANK\"");  // bits left over
  refuse(good + "==== 900", "expected \"BASE64 RANK\"");
  refuse(good + " 900", "expected \"BASE64 RANK\"");
  refuse(good + "YWI= ", "expected a rank");
  refuse(good + "YWI= -1", "expected a rank");
  refuse(good + "YWI= 9x", "expected a rank");
  refuse(good + "YWI=  9", "expected a rank");
  refuse(good + "YWI= 4194304", "expected a rank below 4194304");
  refuse(good + "YWI= 99999999999999999999", "expected a rank");
  refuse(good + "YWI= 300", "line 257: rank 300 appears twice");
  refuse(good + "YQ== 900", "line 257: token \"a\" appears twice");
}

TEST_CASE("specials: damage is refused") {
  const auto refuse = [](std::string_view text, std::string_view part) {
    check_refused([&] { parse_specials(text, "specials"); }, part);
  };
  CHECK(parse_specials("[]", "specials").empty());
  CHECK(parse_specials(R"([{"id": 5, "text": "x", "more": 1}])", "specials")[0].text == "x");
  refuse("{}", "expected a list");
  refuse("[1]", "entry 0");
  refuse("[{\"id\": 1}]", "text");
  refuse(R"([{"id": -1, "text": "x"}])", "id");
  refuse(R"([{"id": 1.5, "text": "x"}])", "id");
  refuse(R"([{"id": 99999999999, "text": "x"}])", "is not below");
  refuse(R"([{"id": 1, "text": ""}])", "empty");
  refuse(R"([{"id": 1, "text": "x"}, {"id": 1, "text": "y"}])", "id 1 appears twice");
  refuse(R"([{"id": 1, "text": "x"}, {"id": 2, "text": "x"}])", "\"x\" appears twice");
  refuse("[{\"id\": 1, \"text\": \"x\"", "JSON");
  const auto table = [] { return RankTable::parse(rank_file(300, {}), "test"); };
  check_refused([&] { Tokenizer(table(), {{700, "x"}}, 700, "model"); }, "outside the vocabulary of 700");
  check_refused([&] { Tokenizer(table(), {{310, "x"}}, 700, "model"); }, "is an ordinary token's");
  check_refused([&] { Tokenizer(table(), {}, 500, "model"); }, "a vocabulary of 500");
  check_refused([&] { Tokenizer(table(), {}, 0xFFFFFFFF, "model"); }, "absurd");
}

TEST_CASE("ids: numbers below the vocabulary and nothing else") {
  CHECK(parse_ids("1,2, 3", "--ids", 10) == Ids{1, 2, 3});
  CHECK(parse_ids("9", "--ids", 10) == Ids{9});
  for (const std::string_view text :
       {"", "abc", "1,", ",1", "1,,2", "10", "-1", "1 2", "1x", "4294967296", "1.0"}) {
    CHECK_THROWS_AS(parse_ids(text, "--ids", 10), Error);
  }
}

}  // namespace
}  // namespace waste::runtime
