#include "runtime/utf8.h"

#include <algorithm>

namespace waste::runtime {

namespace {

struct Lead {
  std::size_t length;       // of the whole sequence; 0 for a byte that starts none
  unsigned char low, high;  // bounds of the second byte
};

// Table 3-7 of the Unicode standard: only the second byte's range depends on the first.
Lead lead_of(unsigned char c) {
  if (c < 0x80) return {1, 0, 0};
  if (c < 0xC2) return {0, 0, 0};
  if (c < 0xE0) return {2, 0x80, 0xBF};
  if (c < 0xF0)
    return {3, c == 0xE0 ? std::uint8_t{0xA0} : std::uint8_t{0x80},
            c == 0xED ? std::uint8_t{0x9F} : std::uint8_t{0xBF}};
  if (c < 0xF5)
    return {4, c == 0xF0 ? std::uint8_t{0x90} : std::uint8_t{0x80},
            c == 0xF4 ? std::uint8_t{0x8F} : std::uint8_t{0xBF}};
  return {0, 0, 0};
}

// How many bytes of `text`, at most the sequence's length, agree with the sequence its first byte announces.
std::size_t agreeing(std::string_view text, const Lead& lead) {
  std::size_t n = 1;
  while (n < lead.length && n < text.size()) {
    const auto c = static_cast<unsigned char>(text[n]);
    if (n == 1 ? c < lead.low || c > lead.high : (c & 0xC0u) != 0x80u) break;
    ++n;
  }
  return n;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  return lead.length != 0 && agreeing(text, lead) == lead.length ? lead.length : 0;
}

bool utf8_incomplete(std::string_view text) {
  if (text.empty()) return false;
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  return text.size() < lead.length && agreeing(text, lead) == text.size();
}

std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::size_t n = utf8_length(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  return at;
}

std::string utf8_replace_invalid(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (true) {
    const std::size_t valid = utf8_valid_prefix(text);
    result += text.substr(0, valid);
    if (valid == text.size()) return result;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(valid + 1);
  }
}

}  // namespace waste::runtime
