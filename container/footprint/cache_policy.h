// Which expert records stay in memory: frequency with recency (LFRU), as arithmetic alone. The runtime's
// cache and the simulator that replays routing traces both run this class, so that a prediction cannot drift
// from the truth.
//
// Time is counted in uses, over all experts. An expert's worth is n / (age + 4 T), and the resident one worth
// least goes: n counts its uses, resident or not, those before fading to half in 64 T; age is the time since
// its last use; T is the uses of one token. It is a guess at the rate of use: n says how often the expert
// came up, and the longer it has not, the less that holds. The 4 T keep what was used once just now from
// outranking everything.
//
// Hits of all requests on 300 decode steps of Kimi-Linear (6,656 experts, T = 208) and 299 of OLMoE (1,024
// experts, T = 128), by the share of the experts that there is room for:
//
//            Kimi-Linear                     OLMoE
//            3%    6%    12%   24%   48%     6%    12%   24%   48%
//   LRU      0     41.3  57.0  71.9  86.2    0     0     55.2  76.5
//   this     32.4  44.8  59.1  73.6  87.1    24.4  38.7  57.3  80.1
//   optimum  51.0  63.6  74.6  84.4  91.0    39.5  58.9  75.6  90.5
//
// (the optimum, Belady's, knows the future). The result is flat: 32 T or 128 T, 3 T or 6 T move it by 0.3
// points.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace waste {

/// Items are dense numbers 0..items-1, slots 0..slots-1. Not thread-safe. Every call is O(1), but an eviction
/// looks at one candidate for each of kClasses counts.
class CachePolicy {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// `slots` of at least 1; more slots than items are never filled. `token_uses` is T: how many items one
  /// token uses, over all layers.
  CachePolicy(std::uint32_t items, std::uint32_t slots, std::uint32_t token_uses);

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
  /// Drops every resident that is not pinned; the counts stay.
  void clear();

  /// Gives `item` the count it would have if this share of all uses so far had been its, without making it
  /// resident.
  void seed(std::uint32_t item, double share);

  bool resident(std::uint32_t item) const { return items_[item].slot != kNone; }
  std::uint32_t slots() const { return static_cast<std::uint32_t>(free_.size() + used_); }
  /// Bytes this class allocates, for the planner's arithmetic.
  static std::uint64_t bytes(std::uint32_t items, std::uint32_t slots);

 private:
  struct Item {
    double uses = 0;  // faded to the time of the last use
    double last_use = 0;
    std::uint32_t slot = kNone;
    std::uint32_t pins = 0;
    std::uint32_t newer = kNone;  // neighbours in the list of its class, while resident and unpinned
    std::uint32_t older = kNone;
  };
  // Unpinned residents of about the same count (an eighth of an octave), in the order of their last use: the
  // oldest of a class is worth least in it.
  struct Class {
    std::uint32_t newest = kNone;
    std::uint32_t oldest = kNone;
  };
  static constexpr std::uint32_t kClasses = 128;

  static std::uint32_t class_of(double uses);
  void count(Item& item, double uses);
  void attach(std::uint32_t item);
  void detach(std::uint32_t item);
  /// The unpinned resident worth least; kNone without one.
  std::uint32_t victim() const;

  double half_life_;
  double grace_;
  double time_ = 0;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_;  // empty slots, lowest last
  std::uint32_t used_ = 0;
  std::array<Class, kClasses> classes_;
};

}  // namespace waste
