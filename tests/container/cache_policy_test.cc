#include "container/footprint/cache_policy.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

using waste::CachePolicy;

TEST_CASE("frequent items outlive a stream of new ones") {
  CachePolicy policy(1000, 10);
  auto use = [&](std::uint32_t item) {
    const auto access = policy.acquire(item);
    policy.release(item);
    return access.hit;
  };
  std::uint32_t fresh = 8;
  int hits = 0;
  int asked = 0;
  for (int round = 0; round < 50; ++round) {
    for (std::uint32_t item = 0; item < 8; ++item, ++asked) hits += use(item);
    for (int i = 0; i < 10; ++i)
      use(fresh++);  // more than the cache holds: recency alone would lose everything
  }
  CHECK(hits >= asked - 16);
}

TEST_CASE("old favourites give way to new ones") {
  CachePolicy policy(100, 4);
  auto use = [&](std::uint32_t item) {
    policy.acquire(item);
    policy.release(item);
  };
  for (int i = 0; i < 100; ++i)
    for (std::uint32_t item = 0; item < 4; ++item) use(item);
  for (int i = 0; i < 100; ++i)
    for (std::uint32_t item = 10; item < 14; ++item) use(item);
  for (std::uint32_t item = 0; item < 4; ++item) CHECK_FALSE(policy.resident(item));
  for (std::uint32_t item = 10; item < 14; ++item) CHECK(policy.resident(item));
}

TEST_CASE("a pinned item keeps its slot and a cache of pins refuses") {
  CachePolicy policy(10, 2);
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

TEST_CASE("slots never collide and eviction is by lowest score") {
  CachePolicy policy(64, 16);
  std::vector<std::uint32_t> where(64, CachePolicy::kNone);
  std::uint32_t x = 1;
  for (int i = 0; i < 20000; ++i) {
    x = x * 1664525 + 1013904223;
    const std::uint32_t item = (x >> 16) % (i % 3 == 0 ? 64 : 20);
    const auto access = policy.acquire(item);
    REQUIRE(access.slot < 16);
    REQUIRE(access.hit == (where[item] != CachePolicy::kNone));
    if (access.hit) {
      REQUIRE(where[item] == access.slot);
    } else {
      if (access.evicted != CachePolicy::kNone) {
        REQUIRE(where[access.evicted] == access.slot);
        where[access.evicted] = CachePolicy::kNone;
      }
      where[item] = access.slot;
    }
    policy.release(item);
  }
  std::set<std::uint32_t> slots;
  for (const auto slot : where)
    if (slot != CachePolicy::kNone) CHECK(slots.insert(slot).second);
  CHECK(slots.size() == 16);
  policy.clear();
  for (std::uint32_t item = 0; item < 64; ++item) CHECK_FALSE(policy.resident(item));
}

TEST_CASE("a seeded score decides the first evictions") {
  CachePolicy policy(10, 2);
  policy.seed(5, 100);
  policy.acquire(5);
  policy.release(5);
  policy.acquire(6);
  policy.release(6);
  CHECK(policy.acquire(7).evicted == 6);
}

TEST_CASE("a newcomer survives until its next use although its score is the lowest") {
  CachePolicy policy(1000, 40);
  auto use = [&](std::uint32_t item) {
    const auto access = policy.acquire(item);
    policy.release(item);
    return access.hit;
  };
  for (int round = 0; round < 50; ++round)
    for (std::uint32_t item = 0; item < 40; ++item) use(item);  // full of favourites
  for (std::uint32_t fresh = 100; fresh < 160; fresh += 4) {
    for (std::uint32_t i = 0; i < 4; ++i) CHECK_FALSE(use(fresh + i));
    for (std::uint32_t i = 0; i < 4; ++i) CHECK(use(fresh + i));
  }
  std::uint32_t kept = 0;
  for (std::uint32_t item = 0; item < 40; ++item) kept += policy.resident(item);
  CHECK(kept >= 34);
}
