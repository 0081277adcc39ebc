#include "container/footprint/cache_policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

using waste::CachePolicy;

namespace {

bool use(CachePolicy& policy, std::uint32_t item, std::uint32_t uses = 1) {
  const auto access = policy.acquire(item, uses);
  policy.release(item);
  return access.hit;
}

// Uses per age as the header writes it, kept for every item, without classes or lists.
class WrittenOut {
 public:
  WrittenOut(std::uint32_t items, double token_uses) : token_uses_(token_uses), count_(items), last_(items) {}
  void use(std::uint32_t item, std::uint32_t uses) {
    now_ += uses;
    count_[item] = count_[item] * std::exp2((last_[item] - now_) / (64 * token_uses_)) + uses;
    last_[item] = now_;
  }
  double worth(std::uint32_t item) const { return count_[item] / (now_ - last_[item] + 4 * token_uses_); }

 private:
  double token_uses_;
  double now_ = 0;
  std::vector<double> count_;
  std::vector<double> last_;
};

}  // namespace

TEST_CASE("frequent items outlive a stream of new ones") {
  CachePolicy policy(1000, 10, 4);
  std::uint32_t fresh = 8;
  int hits = 0;
  int asked = 0;
  for (int round = 0; round < 50; ++round) {
    for (std::uint32_t item = 0; item < 8; ++item, ++asked) hits += use(policy, item);
    // More than the cache holds: recency alone would lose everything.
    for (int i = 0; i < 10; ++i) use(policy, fresh++);
  }
  CHECK(hits >= asked - 16);
}

TEST_CASE("old favourites give way to new ones") {
  CachePolicy policy(100, 4, 1);
  for (int i = 0; i < 100; ++i)
    for (std::uint32_t item = 0; item < 4; ++item) use(policy, item);
  for (int i = 0; i < 100; ++i)
    for (std::uint32_t item = 10; item < 14; ++item) use(policy, item);
  for (std::uint32_t item = 0; item < 4; ++item) CHECK_FALSE(policy.resident(item));
  for (std::uint32_t item = 10; item < 14; ++item) CHECK(policy.resident(item));
}

TEST_CASE("a pinned item keeps its slot and a cache of pins refuses") {
  CachePolicy policy(10, 2, 1);
  const auto a = policy.acquire(1);
  const auto b = policy.acquire(2);
  CHECK(a.slot != b.slot);
  CHECK(policy.acquire(3).slot == CachePolicy::kNone);
  policy.acquire(1);  // a second pin
  policy.release(1);
  policy.release(2);
  const auto c = policy.acquire(3);
  CHECK(c.slot == b.slot);
  CHECK(c.evicted == 2);
  CHECK(policy.resident(1));
  policy.release(1);
  policy.release(3);
  policy.forget(3);
  CHECK_FALSE(policy.resident(3));
  CHECK(policy.acquire(4).evicted == CachePolicy::kNone);  // into the slot that came free
}

TEST_CASE("slots never collide and what goes is worth least, within the width of a class") {
  constexpr std::uint32_t kItems = 64;
  CachePolicy policy(kItems, 16, 8);
  WrittenOut written_out(kItems, 8);
  std::vector<std::uint32_t> where(kItems, CachePolicy::kNone);
  std::uint32_t x = 1;
  int evictions = 0;
  for (int i = 0; i < 20000; ++i) {
    x = x * 1664525 + 1013904223;
    const std::uint32_t item = (x >> 16) % (i % 3 == 0 ? kItems : 20);
    const std::uint32_t uses = 1 + (x >> 8) % 3;
    const auto access = policy.acquire(item, uses);
    written_out.use(item, uses);
    REQUIRE(access.slot < 16);
    REQUIRE(access.hit == (where[item] != CachePolicy::kNone));
    if (access.hit) {
      REQUIRE(where[item] == access.slot);
    } else {
      if (access.evicted != CachePolicy::kNone) {
        REQUIRE(where[access.evicted] == access.slot);
        ++evictions;
        const double worth = written_out.worth(access.evicted);
        for (std::uint32_t other = 0; other < kItems; ++other) {
          if (where[other] != CachePolicy::kNone) REQUIRE(worth <= written_out.worth(other) * 1.125);
        }
        where[access.evicted] = CachePolicy::kNone;
      }
      where[item] = access.slot;
    }
    policy.release(item);
  }
  CHECK(evictions > 1000);
  std::set<std::uint32_t> slots;
  for (const auto slot : where)
    if (slot != CachePolicy::kNone) CHECK(slots.insert(slot).second);
  CHECK(slots.size() == 16);
  policy.clear();
  for (std::uint32_t item = 0; item < kItems; ++item) CHECK_FALSE(policy.resident(item));
}

TEST_CASE("pins that are taken back in another order leave the oldest use first in line") {
  CachePolicy policy(10, 3, 1);
  for (const std::uint32_t item : {0u, 1u, 2u}) policy.acquire(item);
  for (const std::uint32_t item : {1u, 2u, 0u}) policy.release(item);
  CHECK(policy.acquire(3).evicted == 0);
  CHECK(policy.acquire(4).evicted == 1);
  CHECK(policy.acquire(5).evicted == 2);
}

TEST_CASE("a seeded share decides the first evictions and fades") {
  CachePolicy policy(100, 2, 1);
  policy.seed(5, 0.5);
  use(policy, 5);
  use(policy, 6);
  CHECK(policy.acquire(7).evicted == 6);
  policy.release(7);
  std::uint32_t fresh = 10;
  while (policy.resident(5) && fresh < 90) {
    use(policy, fresh);
    use(policy, fresh++);
  }
  CHECK(fresh > 20);
  CHECK_FALSE(policy.resident(5));
}
