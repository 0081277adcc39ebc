// The engine's parts on their own: threads, reads, the cache of records, the router.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "container/core/memory.h"
#include "runtime/expert_cache.h"
#include "runtime/io.h"
#include "runtime/router.h"
#include "runtime/thread_pool.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"

using namespace waste;
using namespace waste::runtime;

TEST_CASE("every task runs once, region after region, also after a sleep") {
  for (const unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> count(round % 7 * 3);
      std::atomic<bool> sound{true};
      pool.run(count.size(), [&](std::size_t i, unsigned thread) {
        if (thread >= threads) sound = false;
        ++count[i];
      });
      for (const auto& c : count) CHECK(c == 1);
      CHECK(sound);
      if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

TEST_CASE("reads come back whole, with their errors, whichever way they are made") {
  const TempDir dir;
  std::vector<std::uint8_t> data(50'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 7 >> 3);
  write_file_atomic(dir / "f", data);
  const File file = File::open_read(dir / "f");
  for (const IoMode mode : {IoMode::Auto, IoMode::Pread}) {
    const auto io = open_record_io(mode, 4);
    std::vector<std::vector<std::uint8_t>> buffers(4, std::vector<std::uint8_t>(10'000));
    ReadResult result;
    for (std::uint32_t i = 0; i < 4; ++i)
      io->submit({i == 2 ? -1 : file.fd(), i * 15'000u, buffers[i].data(), 10'000, i});
    io->flush();
    std::set<std::uint32_t> seen;
    for (int i = 0; i < 4; ++i) {
      REQUIRE(io->next(result, true));
      CHECK(seen.insert(result.tag).second);
      if (result.tag == 2) {
        CHECK(result.error == EBADF);
        continue;
      }
      CHECK(result.error == 0);
      CHECK(result.bytes == (result.tag == 3 ? 5'000u : 10'000u));  // the file ends there
      CHECK(std::memcmp(buffers[result.tag].data(), &data[result.tag * 15'000], result.bytes) == 0);
    }
    CHECK_FALSE(io->next(result, false));
  }
}

TEST_CASE("the cache hands out what was asked for, through as few slots as a token needs") {
  const Container container = Container::open(golden_dir() / "tiny-linear.waste");
  std::vector<std::uint8_t> record(container.layout().record_bytes);
  for (const std::uint32_t slots : {5u, 30u, 1000u}) {
    ExpertCache cache(container, slots, IoMode::Auto, true);
    CHECK(cache.slots() == std::min(slots, 64u));
    std::uint32_t x = 1;
    for (int round = 0; round < 60; ++round) {
      std::set<std::uint32_t> experts;
      while (experts.size() < 1 + round % 12u) {
        x = x * 1664525 + 1013904223;
        experts.insert(x >> 28);
      }
      std::vector<ExpertCache::Wanted> wanted;
      for (const std::uint32_t e : experts) wanted.push_back({e, 1});
      const std::uint32_t layer = 1 + static_cast<std::uint32_t>(round) % 4;
      cache.begin(layer, wanted);
      for (auto ready = cache.next(); !ready.empty(); ready = cache.next()) {
        for (const auto& r : ready) {
          REQUIRE(experts.erase(r.expert) == 1);
          container.read_expert(layer, r.expert, record);
          REQUIRE(std::memcmp(record.data(), r.record, record.size()) == 0);
        }
      }
      CHECK(experts.empty());
    }
    const auto& c = cache.counters();
    CHECK(c.bytes_read == (c.uses - c.hits) * record.size());
    if (slots == 1000) CHECK(c.bytes_read <= 64 * record.size());
  }
}

TEST_CASE("routing: bias chooses, scores weigh, ties go to the lower number") {
  ModelConfig m;
  m.num_experts = 16;
  m.num_experts_per_token = 3;
  m.renormalize = true;
  m.routed_scaling_factor = 2;
  std::vector<float> bias(16, 0.0f);
  std::vector<std::uint32_t> experts(3);
  std::vector<float> weights(3);
  std::vector<float> logits(16, -1.0f);
  logits[4] = 3;
  logits[9] = 2;
  logits[12] = 2;
  bias[7] = 5;
  route(baseline_kernels(), m, logits.data(), bias.data(), experts, weights);
  CHECK(experts == std::vector<std::uint32_t>{7, 4, 9});
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const double total = sigmoid(-1) + sigmoid(3) + sigmoid(2);
  CHECK(weights[0] == doctest::Approx(2 * sigmoid(-1) / total));
  CHECK(weights[1] == doctest::Approx(2 * sigmoid(3) / total));

  // Groups {0-3}, {4-7}, {8-11}, {12-15}: the two best pairs are groups 1 and 2, although expert 12 is the
  // second best.
  m.expert_groups = 4;
  m.topk_groups = 2;
  bias.assign(16, 0.0f);
  logits.assign(16, -4.0f);
  logits[5] = 1;
  logits[6] = 1;
  logits[8] = 0.5f;
  logits[9] = 1.5f;
  logits[12] = 1.2f;
  route(baseline_kernels(), m, logits.data(), bias.data(), experts, weights);
  CHECK(experts == std::vector<std::uint32_t>{9, 5, 6});

  m.expert_groups = 1;
  m.topk_groups = 1;
  m.router_activation = RouterActivation::Softmax;
  m.renormalize = false;
  m.routed_scaling_factor = 1;
  logits.assign(16, 0.0f);
  logits[3] = static_cast<float>(std::log(5.0));
  route(baseline_kernels(), m, logits.data(), bias.data(), experts, weights);
  CHECK(experts[0] == 3);
  CHECK(weights[0] == doctest::Approx(0.25));
}
