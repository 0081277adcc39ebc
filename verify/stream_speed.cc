#include "verify/stream_speed.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/memory.h"
#include "container/core/perf.h"

namespace waste::verify {

namespace {

// Larger than a core's share of any last-level cache.
constexpr std::size_t kBytesEach = std::size_t{64} << 20;
constexpr std::size_t kPage = 4096;

}  // namespace

double stream_gb_per_s(unsigned threads, double seconds) {
  std::vector<AlignedBuffer> buffers;
  for (unsigned i = 0; i < threads; ++i) buffers.emplace_back(kBytesEach);
  std::atomic<std::uint64_t> bytes{0};
  std::vector<std::jthread> workers;
  for (AlignedBuffer& buffer : buffers) {
    workers.emplace_back([&buffer, &bytes, seconds] {
      for (std::size_t i = 0; i < buffer.size(); i += kPage) buffer.data()[i] = 1;
      const double end = now_seconds() + seconds;
      while (now_seconds() < end) {
        xxh3_128(buffer.span());
        bytes.fetch_add(buffer.size(), std::memory_order_relaxed);
      }
    });
  }
  workers.clear();
  return static_cast<double>(bytes.load()) / seconds * 1e-9;
}

}  // namespace waste::verify
