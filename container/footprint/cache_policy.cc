#include "container/footprint/cache_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

namespace waste {

CachePolicy::CachePolicy(std::uint32_t items, std::uint32_t slots, std::uint32_t token_uses)
    : half_life_(64.0 * std::max(token_uses, 1u)), grace_(4.0 * std::max(token_uses, 1u)), items_(items) {
  const std::uint32_t count = std::min(std::max(slots, 1u), std::max(items, 1u));
  free_.reserve(count);
  for (std::uint32_t i = count; i-- > 0;) free_.push_back(i);
}

std::uint64_t CachePolicy::bytes(std::uint32_t items, std::uint32_t slots) {
  return items * sizeof(Item) + std::uint64_t{std::min(slots, items)} * sizeof(std::uint32_t);
}

void CachePolicy::count(Item& item, double uses) {
  item.uses = item.uses * std::exp2((item.last_use - time_) / half_life_) + uses;
  item.last_use = time_;
}

CachePolicy::Access CachePolicy::acquire(std::uint32_t item, std::uint32_t uses) {
  Item& it = items_[item];
  if (it.slot != kNone && it.pins == 0) detach(item);
  time_ += uses;
  count(it, uses);
  Access access;
  if (it.slot != kNone) {
    access.hit = true;
  } else if (!free_.empty()) {
    it.slot = free_.back();
    free_.pop_back();
    ++used_;
  } else {
    access.evicted = victim();
    if (access.evicted == kNone) return access;
    detach(access.evicted);
    it.slot = std::exchange(items_[access.evicted].slot, kNone);
  }
  ++it.pins;
  access.slot = it.slot;
  return access;
}

void CachePolicy::release(std::uint32_t item) {
  if (--items_[item].pins == 0) attach(item);
}

void CachePolicy::forget(std::uint32_t item) {
  Item& it = items_[item];
  if (it.slot == kNone) return;
  if (it.pins == 0) detach(item);
  it.pins = 0;
  free_.push_back(std::exchange(it.slot, kNone));
  --used_;
}

void CachePolicy::clear() {
  for (const Class& c : classes_) {
    while (c.oldest != kNone) forget(c.oldest);
  }
}

void CachePolicy::seed(std::uint32_t item, double share) {
  Item& it = items_[item];
  const bool listed = it.slot != kNone && it.pins == 0;
  if (listed) detach(item);
  count(it, share * half_life_ * std::numbers::log2e);  // what a fading count settles at
  if (listed) attach(item);
}

// Exponent and three bits of the fraction: eight classes an octave, the first from a count of 1 down.
std::uint32_t CachePolicy::class_of(double uses) {
  const auto leading = [](double x) { return std::bit_cast<std::uint64_t>(x) >> 49; };
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(leading(std::max(uses, 1.0)) - leading(1.0), kClasses - 1));
}

// Items come back in about the order of their last use, so the place is found after a step or two.
void CachePolicy::attach(std::uint32_t item) {
  Item& it = items_[item];
  Class& c = classes_[class_of(it.uses)];
  std::uint32_t older = c.newest;
  std::uint32_t newer = kNone;
  while (older != kNone && items_[older].last_use > it.last_use)
    newer = std::exchange(older, items_[older].older);
  it.older = older;
  it.newer = newer;
  (older == kNone ? c.oldest : items_[older].newer) = item;
  (newer == kNone ? c.newest : items_[newer].older) = item;
}

void CachePolicy::detach(std::uint32_t item) {
  const Item& it = items_[item];
  Class& c = classes_[class_of(it.uses)];
  (it.newer == kNone ? c.newest : items_[it.newer].older) = it.older;
  (it.older == kNone ? c.oldest : items_[it.older].newer) = it.newer;
}

std::uint32_t CachePolicy::victim() const {
  std::uint32_t least = kNone;
  double least_worth = 0;
  for (const Class& c : classes_) {
    if (c.oldest == kNone) continue;
    const Item& it = items_[c.oldest];
    const double worth = it.uses / (time_ - it.last_use + grace_);
    if (least == kNone || worth < least_worth) {
      least = c.oldest;
      least_worth = worth;
    }
  }
  return least;
}

}  // namespace waste
