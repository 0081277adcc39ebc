#include "container/footprint/cache_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace waste {

CachePolicy::CachePolicy(std::uint32_t items, std::uint32_t slots)
    : half_life_(4.0 * std::max(slots, 1u)), items_(items), spared_(slots / 10) {
  const std::uint32_t count = std::min(std::max(slots, 1u), std::max(items, 1u));
  free_.reserve(count);
  for (std::uint32_t i = count; i-- > 0;) free_.push_back(i);
  heap_.reserve(count);
}

std::uint64_t CachePolicy::bytes(std::uint32_t items, std::uint32_t slots) {
  return items * sizeof(Item) + std::uint64_t{std::min(slots, items)} * 2 * sizeof(std::uint32_t);
}

void CachePolicy::add_uses(Item& item, double uses) {
  const double now = time_ / half_life_ + std::log2(uses);
  const double high = std::max(item.score, now);
  const double low = std::min(item.score, now);
  item.score = high + std::log2(1.0 + std::exp2(low - high));
}

CachePolicy::Access CachePolicy::acquire(std::uint32_t item, std::uint32_t uses) {
  Item& it = items_[item];
  time_ += uses;
  add_uses(it, uses);
  Access access;
  if (it.slot != kNone) {
    access.hit = true;
    if (it.pins == 0) detach(item);
  } else if (!free_.empty()) {
    it.slot = free_.back();
    free_.pop_back();
    ++used_;
  } else {
    access.evicted = heap_.empty() ? oldest_ : heap_.front();
    if (access.evicted == kNone) return access;
    detach(access.evicted);
    it.slot = std::exchange(items_[access.evicted].slot, kNone);
  }
  ++it.pins;
  access.slot = it.slot;
  return access;
}

void CachePolicy::release(std::uint32_t item) {
  if (--items_[item].pins != 0) return;
  recent_push(item);
  if (recent_ <= spared_) return;
  const std::uint32_t oldest = oldest_;
  recent_remove(oldest);
  heap_insert(oldest);
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
  while (!heap_.empty()) forget(heap_.front());
  while (oldest_ != kNone) forget(oldest_);
}

void CachePolicy::seed(std::uint32_t item, std::uint64_t uses) {
  if (uses == 0) return;
  Item& it = items_[item];
  const bool in_heap = it.heap != kNone;
  if (in_heap) heap_remove(item);
  add_uses(it, static_cast<double>(uses));
  if (in_heap) heap_insert(item);
}

// Equal scores are told apart by number, so that a replay evicts the same items everywhere.
bool CachePolicy::before(std::uint32_t a, std::uint32_t b) const {
  return items_[a].score != items_[b].score ? items_[a].score < items_[b].score : a < b;
}

void CachePolicy::place(std::uint32_t position, std::uint32_t item) {
  heap_[position] = item;
  items_[item].heap = position;
}

void CachePolicy::sift_up(std::uint32_t position) {
  const std::uint32_t item = heap_[position];
  while (position > 0 && before(item, heap_[(position - 1) / 2])) {
    place(position, heap_[(position - 1) / 2]);
    position = (position - 1) / 2;
  }
  place(position, item);
}

void CachePolicy::sift_down(std::uint32_t position) {
  const std::uint32_t item = heap_[position];
  const auto size = static_cast<std::uint32_t>(heap_.size());
  for (std::uint32_t child = 2 * position + 1; child < size; child = 2 * position + 1) {
    if (child + 1 < size && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], item)) break;
    place(position, heap_[child]);
    position = child;
  }
  place(position, item);
}

void CachePolicy::heap_insert(std::uint32_t item) {
  heap_.push_back(item);
  sift_up(static_cast<std::uint32_t>(heap_.size() - 1));
}

void CachePolicy::heap_remove(std::uint32_t item) {
  const std::uint32_t position = std::exchange(items_[item].heap, kNone);
  const std::uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == item) return;
  place(position, last);
  sift_up(position);
  sift_down(items_[last].heap);
}

void CachePolicy::recent_push(std::uint32_t item) {
  Item& it = items_[item];
  it.recent = true;
  it.newer = kNone;
  it.older = newest_;
  (newest_ == kNone ? oldest_ : items_[newest_].newer) = item;
  newest_ = item;
  ++recent_;
}

void CachePolicy::recent_remove(std::uint32_t item) {
  Item& it = items_[item];
  (it.newer == kNone ? newest_ : items_[it.newer].older) = it.older;
  (it.older == kNone ? oldest_ : items_[it.older].newer) = it.newer;
  it.recent = false;
  --recent_;
}

void CachePolicy::detach(std::uint32_t item) {
  items_[item].recent ? recent_remove(item) : heap_remove(item);
}

}  // namespace waste
