// The vocabulary of a byte-pair encoder: tiktoken's rank file. One token a line, "BASE64 RANK"; the rank is
// both the token's id and its priority when pairs are merged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace waste::runtime {

/// Immutable after loading; safe to read from several threads.
class RankTable {
 public:
  RankTable(RankTable&&) = default;
  RankTable& operator=(RankTable&&) = default;
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;

  /// Error(Data), naming `where` and the line, for anything but well-formed lines (empty ones are skipped):
  /// base64 with bits left over, a rank of 2^22 or more, a token or rank that repeats, or a table without
  /// every single byte. The last makes encoding total: any bytes whatever have ids. Ranks may leave gaps.
  static RankTable parse(std::string_view text, std::string_view where);
  static RankTable read(const std::filesystem::path& path);

  std::optional<std::uint32_t> rank(std::string_view text) const;
  /// The bytes of token `rank`; empty for a gap and past the end.
  std::string_view bytes(std::uint32_t rank) const;
  /// One more than the highest rank.
  std::uint32_t size() const { return static_cast<std::uint32_t>(tokens_.size()); }

 private:
  RankTable() = default;

  // Offsets, ranks and one block of bytes: a map of strings would take 16 MB for 163,584 tokens, this
  // takes 5.
  struct Token {
    std::uint32_t begin = 0;   // in storage_
    std::uint32_t length = 0;  // 0: a gap
  };
  std::size_t slot(std::string_view text) const;

  std::vector<char> storage_;
  std::vector<Token> tokens_;  // by rank
  std::vector<std::uint32_t>
      slots_;  // hash table, linear probing, at most half full: rank + 1, or 0 when free
  std::size_t longest_ = 0;
};

}  // namespace waste::runtime
