#include "runtime/bpe.h"

#include <algorithm>
#include <functional>

#include "container/core/error.h"

namespace waste::runtime {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

}  // namespace

// Looks the pair that starts at `at` up and queues it.
void BpeMerger::offer(std::string_view piece, std::uint32_t at) {
  Part& part = parts_[at];
  part.pair_rank = kNone;
  if (part.next == kNone) return;
  const auto rank = table_.rank(piece.substr(at, part.length + parts_[part.next].length));
  if (!rank) return;
  part.pair_rank = *rank;
  heap_.push_back(std::uint64_t{*rank} << 32 | at);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::encode(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (const auto rank = table_.rank(piece)) {
    ids.push_back(static_cast<std::int32_t>(*rank));
    return;
  }
  if (piece.size() >= kNone)
    fail(ErrorKind::Usage, "a run of {} bytes without a break is too long", piece.size());
  const auto size = static_cast<std::uint32_t>(piece.size());
  parts_.resize(size);
  heap_.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    parts_[i] = {i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1, 1, *table_.rank(piece.substr(i, 1)),
                 kNone};
  }
  for (std::uint32_t i = 0; i < size; ++i) offer(piece, i);

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto at = static_cast<std::uint32_t>(heap_.back());
    const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    Part& part = parts_[at];
    if (part.pair_rank != rank) continue;  // one of the two has been merged since
    Part& right = parts_[part.next];
    part.length += right.length;
    part.rank = rank;
    part.next = right.next;
    right.pair_rank = kNone;
    if (part.next != kNone) parts_[part.next].previous = at;
    offer(piece, at);
    if (part.previous != kNone) offer(piece, part.previous);
  }
  for (std::uint32_t i = 0; i != kNone && i < size; i = parts_[i].next) {
    ids.push_back(static_cast<std::int32_t>(parts_[i].rank));
  }
}

}  // namespace waste::runtime
