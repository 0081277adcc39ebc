// kernel-bench: what each kernel does on one core and what memory gives, as one JSON document for
// scripts/bench-run. The data is larger than the caches, as a model's weights are.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "container/core/json.h"
#include "container/core/memory.h"
#include "container/core/perf.h"
#include "runtime/kernels/kernels.h"

using namespace waste;
using namespace waste::runtime;

namespace {

constexpr std::size_t kBytes = std::size_t{384} << 20;
constexpr std::size_t kCols = 2304;
constexpr std::size_t kBatch = 64;

/// Seconds of the fastest of three runs: the others met something else on the machine.
double fastest(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = now_seconds();
    work();
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

double memory_rate(const Kernels& k, const AlignedBuffer& data, unsigned threads) {
  std::vector<float> sums(threads);
  const std::size_t part = data.size() / threads / 64 * 16;  // floats
  const double seconds = fastest([&] {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < threads; ++t) {
      pool.emplace_back(
          [&, t] { sums[t] = k.mean_square(reinterpret_cast<const float*>(data.data()) + t * part, part); });
    }
  });
  return static_cast<double>(threads * part * sizeof(float)) / seconds;
}

Json product_rates(const Kernels& k, WeightKind kind, const AlignedBuffer& data, std::span<const float> x) {
  const std::size_t groups = kCols / kGroup;
  const std::size_t group_bytes = kind == WeightKind::Q4G ? 64 : 128;
  WeightMatrix w;
  w.kind = kind;
  w.cols = kCols;
  w.groups = groups;
  w.rows = data.size() / (groups * (group_bytes + 2)) / 16 * 16;
  w.data = data.data();
  w.scales = reinterpret_cast<const std::uint16_t*>(data.data() + w.rows * groups * group_bytes);
  std::vector<ActivationGroup> in(kBatch * groups);
  std::vector<float> scales(kBatch * groups);
  for (std::size_t t = 0; t < kBatch; ++t)
    k.quantize(&x[t * kCols], kCols, kind, &in[t * groups], &scales[t * groups]);
  const auto product = kind == WeightKind::Q4G ? k.product_q4g : k.product_q8g;
  const auto run = [&](std::size_t rows, std::size_t tokens) {
    std::vector<float> y(rows * tokens);
    const Activations a = {in.data(), scales.data(), groups, tokens};
    return fastest([&] { product(w, 0, rows, a, y.data(), rows); });
  };
  const std::size_t few = std::min<std::size_t>(w.rows, 16384);
  return {{"matrix_vector_bytes_per_second", static_cast<double>(w.rows * w.row_bytes()) / run(w.rows, 1)},
          {"batch_flops_per_second", 2.0 * static_cast<double>(few * kCols * kBatch) / run(few, kBatch)}};
}

Json expert_rates(const Kernels& k, const AlignedBuffer& data, std::span<const float> x, bool packed) {
  ExpertMatrix m;
  m.rows = 1024;
  m.positions = kCols / 8;
  m.packed = packed;
  m.stages = packed ? 4 : 3;
  const std::size_t entries = packed ? 64 : 256;
  const std::size_t bytes = m.row_blocks() * m.positions * m.position_bytes();
  const std::size_t groups = m.positions / kTablePositions;
  const std::size_t table_bytes = kTablePositions * m.stages * kTableBytes;
  AlignedBuffer tables(groups * table_bytes);
  std::vector<float> book(m.stages * 8 * entries, 0.5f), work(kTablePositions * m.stages * entries),
      scales(groups);
  std::vector<float> sums(m.row_blocks() * 64);
  const double build = fastest([&] {
    for (std::size_t g = 0; g < groups; ++g)
      scales[g] = k.build_table(&x[g * 128], kTablePositions, book.data(), m.stages, entries, work.data(),
                                tables.data() + g * table_bytes);
  });
  const auto lookups = [&](std::size_t count, std::size_t stride) {
    return fastest([&] {
      for (std::size_t i = 0; i < count; ++i) {
        m.indices = data.data() + i * stride;
        for (std::size_t g = 0; g < groups; ++g)
          k.add_group(m, 0, m.row_blocks(), g * kTablePositions, kTablePositions,
                      tables.data() + g * table_bytes, scales[g], sums.data());
      }
    });
  };
  const std::size_t count = data.size() / bytes;
  return {{"from_memory_bytes_per_second", static_cast<double>(count * bytes) / lookups(count, bytes)},
          {"from_cache_bytes_per_second", static_cast<double>(32 * bytes) / lookups(32, 0)},
          {"table_build_seconds", build}};
}

}  // namespace

int main() {
  AlignedBuffer data(kBytes);
  std::uint64_t random = 1;
  for (std::size_t i = 0; i < data.size(); i += 8) {
    random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    // No half among these bytes is infinite: they also serve as scales.
    const std::uint64_t word = random & 0xBFFFBFFFBFFFBFFF;
    std::memcpy(data.data() + i, &word, 8);
  }
  std::vector<float> x(kBatch * kCols);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 2654435761u % 1000) * 0.002f - 1.0f;
  const Kernels& k = kernels();
  const unsigned cpus = usable_cpus();
  const Json result = {{"kernels", k.name},
                       {"memory_bytes_per_second_one_core", memory_rate(k, data, 1)},
                       {"memory_bytes_per_second", memory_rate(k, data, cpus)},
                       {"cpus", cpus},
                       {"q4g", product_rates(k, WeightKind::Q4G, data, x)},
                       {"q8g", product_rates(k, WeightKind::Q8G, data, x)},
                       {"experts_3x256", expert_rates(k, data, x, false)},
                       {"experts_4x64", expert_rates(k, data, x, true)}};
  fmt::print("{}", dump_json(result));
  return 0;
}
