#include "container/core/error.h"

#include <cstring>
#include <string_view>

namespace waste {

void fail_errno(int errno_value, const std::string& what) {
  throw Error(ErrorKind::Machine, what + ": " + std::strerror(errno_value));
}

namespace {

// Length of the well-formed UTF-8 sequence at the start of `s` (2 to 4), or 0.
std::size_t utf8_sequence(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  const unsigned lead = byte(0);
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0 || s.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

}  // namespace

std::string printable(std::string_view untrusted) {
  constexpr std::size_t kMost = 200;
  std::string out;
  for (std::size_t i = 0; i < untrusted.size();) {
    if (out.size() >= kMost) return out + "...";
    const auto c = static_cast<unsigned char>(untrusted[i]);
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      out.push_back(static_cast<char>(c));
      ++i;
    } else if (const std::size_t n = c >= 0x80 ? utf8_sequence(untrusted.substr(i)) : 0; n != 0) {
      out.append(untrusted.substr(i, n));
      i += n;
    } else {
      out += fmt::format("\\x{:02x}", c);
      ++i;
    }
  }
  return out;
}

}  // namespace waste
