#include "runtime/rank_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <functional>
#include <string>

#include "container/core/error.h"
#include "container/core/file.h"

namespace waste::runtime {

namespace {

constexpr std::uint64_t kMaxFileBytes = 64 << 20;  // Kimi K3's is 2.8 MB
constexpr std::uint32_t kMaxRank = 1 << 22;        // bounds what one hostile line can make us allocate

constexpr std::uint8_t kNoDigit = 0xFF;

constexpr std::array<std::uint8_t, 256> base64_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}

// Appends the decoded bytes; false for anything but canonical padded base64.
bool decode_base64(std::string_view text, std::vector<char>& out) {
  static constexpr auto kValues = base64_values();
  if (text.empty() || text.size() % 4 != 0) return false;
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const std::uint32_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNoDigit) return false;
    bits = bits << 6 | value;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<char>(bits >> held & 0xFFu));
    }
  }
  return (bits & ((1u << held) - 1)) == 0;
}

}  // namespace

RankTable RankTable::parse(std::string_view text, std::string_view where) {
  RankTable table;
  table.storage_.reserve(text.size() / 4 * 3);
  // The shortest line, "YQ== 0" and its end, has seven bytes: a file cannot make us allocate more than twice
  // its size.
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1;
  table.slots_.resize(std::bit_ceil(2 * std::min(lines, text.size() / 7 + 1)));
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;

    const std::size_t space = line.find(' ');
    const std::size_t begin = table.storage_.size();
    if (space == std::string_view::npos || !decode_base64(line.substr(0, space), table.storage_)) {
      fail_data("{}: line {}: expected \"BASE64 RANK\", found \"{}\"", where, number, printable(line));
    }
    const auto length = static_cast<std::uint32_t>(table.storage_.size() - begin);
    std::uint32_t rank = 0;
    const auto [end, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if (error != std::errc() || end != line.data() + line.size() || rank >= kMaxRank) {
      fail_data("{}: line {}: expected a rank below {}, found \"{}\"", where, number, kMaxRank,
                printable(line.substr(space + 1)));
    }
    if (rank >= table.tokens_.size()) table.tokens_.resize(rank + 1);
    if (table.tokens_[rank].length != 0) fail_data("{}: line {}: rank {} appears twice", where, number, rank);
    table.tokens_[rank] = {static_cast<std::uint32_t>(begin), length};
    const std::string_view token = table.bytes(rank);
    std::uint32_t& slot = table.slots_[table.slot(token)];
    if (slot != 0) fail_data("{}: line {}: token \"{}\" appears twice", where, number, printable(token));
    slot = rank + 1;
    table.longest_ = std::max<std::size_t>(table.longest_, length);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!table.rank(std::string_view(&c, 1))) {
      fail_data("{}: the byte 0x{:02x} has no token, so some texts could not be encoded", where, byte);
    }
  }
  return table;
}

// Where `text` is in slots_, or the free slot where it would be.
std::size_t RankTable::slot(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = std::hash<std::string_view>()(text) & mask;
  while (slots_[at] != 0 && bytes(slots_[at] - 1) != text) at = (at + 1) & mask;
  return at;
}

std::optional<std::uint32_t> RankTable::rank(std::string_view text) const {
  if (text.size() > longest_) return std::nullopt;
  const std::uint32_t found = slots_[slot(text)];
  return found == 0 ? std::nullopt : std::optional(found - 1);
}

std::string_view RankTable::bytes(std::uint32_t rank) const {
  if (rank >= tokens_.size()) return {};
  return {storage_.data() + tokens_[rank].begin, tokens_[rank].length};
}

RankTable RankTable::read(const std::filesystem::path& path) {
  return parse(read_text_file(path, kMaxFileBytes), path.string());
}

}  // namespace waste::runtime
