#include "container/core/text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "container/core/error.h"

namespace waste {

namespace {

std::string scaled(double value, const char* unit) {
  constexpr std::array<const char*, 7> kPrefix = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t i = 0;
  while (std::abs(value) >= 999.5 && i + 1 < kPrefix.size()) {
    value /= 1000;
    ++i;
  }
  const int decimals = i == 0 || std::abs(value) >= 100 ? (i >= 3 ? 1 : 0) : std::abs(value) >= 10 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (kPrefix[i][0] == '\0' && unit[0] == '\0') return text;
  return text + " " + kPrefix[i] + unit;
}

}  // namespace

std::string format_bytes(double bytes) {
  return scaled(bytes, "B");
}
std::string format_count(double count) {
  return scaled(count, "");
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "unknown";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<std::uint64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
}

std::uint64_t parse_size(std::string_view text, std::string_view option) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  double unit = 1;
  if (!suffix.empty()) {
    constexpr std::string_view kLetters = "KMGTP";
    const auto power = kLetters.find(static_cast<char>(suffix[0] & ~0x20));
    if (power != std::string_view::npos) {
      suffix.remove_prefix(1);
      const bool binary = !suffix.empty() && suffix[0] == 'i';
      if (binary) suffix.remove_prefix(1);
      unit = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
    }
    if (!suffix.empty() && (suffix[0] == 'B' || suffix[0] == 'b')) suffix.remove_prefix(1);
  }
  if (error != std::errc() || !suffix.empty() || !(value >= 0) || value * unit >= 0x1p63) {
    fail(ErrorKind::Usage, "{}: \"{}\" is not a size; write 4G, 512M or 4GiB", option, printable(text));
  }
  return static_cast<std::uint64_t>(value * unit);
}

std::uint64_t parse_integer(std::string_view text, std::string_view option, std::uint64_t low,
                            std::uint64_t high) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < low || value > high) {
    fail(ErrorKind::Usage, "{}: \"{}\" is not a whole number from {} to {}", option, printable(text), low,
         high);
  }
  return value;
}

}  // namespace waste
