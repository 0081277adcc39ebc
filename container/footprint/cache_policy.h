// Which expert records stay in memory: frequency with recency (LFRU), as arithmetic alone. The runtime's
// cache and the simulator that replays routing traces both run this class, so that a prediction cannot drift
// from the truth.
//
// Each use of an expert at time t (uses counted over all experts) is worth 2^(t / H), so that a use counts
// half as much as one H later; an expert's score is the sum over its uses, whether it was resident or not,
// and the resident one with the lowest score goes. Scores are kept as base-2 logarithms and never need
// ageing. H is four times the capacity. On 300 decode steps of Kimi-Linear (6,656 experts) that
// hits 31.3, 43.7, 57.0, 72.0 and 87.1% with room for 3, 6, 12, 24 and 48% of the experts, where
// least-recently-used hits 5.1% at 3%; the result is flat in H between one and ten times the capacity.
#pragma once

#include <cstdint>
#include <vector>

namespace waste {

/// Items are dense numbers 0..items-1, slots 0..slots-1. Not thread-safe.
class CachePolicy {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// `slots` of at least 1; more slots than items are never filled.
  CachePolicy(std::uint32_t items, std::uint32_t slots);

  struct Access {
    std::uint32_t slot = kNone;     // where the item is, or is now to be put; kNone: every slot is pinned
    bool hit = false;               // it was there already
    std::uint32_t evicted = kNone;  // the item that lost its slot
  };

  /// Counts `uses` uses of `item`, finds or makes room for it, and pins it. Pins nest.
  Access acquire(std::uint32_t item, std::uint32_t uses = 1);
  /// Takes back one pin.
  void release(std::uint32_t item);
  /// Drops an unpinned or once-pinned resident whose bytes are not good: its slot is free again.
  void forget(std::uint32_t item);
  /// Drops every resident that is not pinned; scores stay.
  void clear();

  /// Gives `item` a score as though it had been used `uses` times just now, without making it resident.
  void seed(std::uint32_t item, std::uint64_t uses);

  bool resident(std::uint32_t item) const { return items_[item].slot != kNone; }
  std::uint32_t slots() const { return static_cast<std::uint32_t>(free_.size() + used_); }
  /// Bytes this class allocates, for the planner's arithmetic.
  static std::uint64_t bytes(std::uint32_t items, std::uint32_t slots);

 private:
  struct Item {
    double score = -1e300;
    std::uint32_t slot = kNone;
    std::uint32_t heap = kNone;  // position in heap_; kNone while pinned, recent or absent
    std::uint32_t pins = 0;
    std::uint32_t newer = kNone;  // neighbours in the list of recent items
    std::uint32_t older = kNone;
    bool recent = false;
  };

  void add_uses(Item& item, double uses);
  void place(std::uint32_t position, std::uint32_t item);
  void sift_up(std::uint32_t position);
  void sift_down(std::uint32_t position);
  void heap_insert(std::uint32_t item);
  void heap_remove(std::uint32_t item);
  bool before(std::uint32_t a, std::uint32_t b) const;
  void recent_push(std::uint32_t item);
  void recent_remove(std::uint32_t item);
  /// Takes an unpinned resident out of the heap or the list of recent items.
  void detach(std::uint32_t item);

  double half_life_;
  double time_ = 0;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_;  // empty slots, lowest last
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> heap_;  // unpinned residents, lowest score first
  std::uint32_t spared_;             // how many of the unpinned residents stay out of the heap
  std::uint32_t recent_ = 0;         // how many do now
  std::uint32_t newest_ = kNone;
  std::uint32_t oldest_ = kNone;
};

}  // namespace waste
