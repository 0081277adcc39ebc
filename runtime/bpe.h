// Byte-pair merging within one piece of text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/rank_table.h"

namespace waste::runtime {

/// Keeps its working memory between pieces. Not thread-safe; the table must outlive it.
class BpeMerger {
 public:
  explicit BpeMerger(const RankTable& table) : table_(table) {}

  /// Appends the ids of `piece` (shorter than 2^32 bytes): its own if it is a token; else, starting from
  /// single bytes, again and again the adjacent pair whose concatenation has the lowest rank becomes one,
  /// leftmost first. O(n log n) in the length of the piece.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids);

 private:
  // A run of bytes that is one token so far, in a doubly linked list in text order; indexed by its first
  // byte.
  struct Part {
    std::uint32_t previous, next;  // kNone at the ends
    std::uint32_t length;
    std::uint32_t rank;  // of this part
    std::uint32_t
        pair_rank;  // of this part joined with the next; kNone if that is no token, or the part is gone
  };
  void offer(std::string_view piece, std::uint32_t at);

  const RankTable& table_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> heap_;  // pair_rank << 32 | first byte: the smallest is the next merge
};

}  // namespace waste::runtime
