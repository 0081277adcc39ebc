// Expert records in memory: a bounded number of slots, filled from the bank files, kept by CachePolicy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "container/core/file.h"
#include "container/core/memory.h"
#include "container/footprint/cache_policy.h"
#include "container/format/container.h"
#include "runtime/io.h"

namespace waste::runtime {

/// Not thread-safe. A layer's experts are asked for together and handed out as they arrive:
///
///   cache.begin(layer, wanted);
///   for (auto ready = cache.next(); !ready.empty(); ready = cache.next()) compute(ready);
///
/// What next() has handed out stays pinned until it is called again.
class ExpertCache {
 public:
  struct Wanted {
    std::uint32_t expert = 0;
    std::uint32_t uses = 1;  // tokens that go to it
  };
  struct Ready {
    std::uint32_t expert = 0;
    const std::uint8_t* record = nullptr;
  };
  struct Counters {
    std::uint64_t uses = 0;
    std::uint64_t hits = 0;
    std::uint64_t bytes_read = 0;
    double wait_seconds = 0;
  };

  /// `slots` must be at least the records that one token needs of a layer. The container must outlive the
  /// cache.
  ExpertCache(const Container& container, std::uint32_t slots, IoMode io, bool verify);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  void begin(std::uint32_t layer, std::span<const Wanted> wanted);
  /// At least one record of the layer, or none when all have been handed out. A read that fails or a record
  /// that is not what it must be throws an Error naming it, after every other read has come back; the cache
  /// stays usable.
  std::span<const Ready> next();

  void clear() { policy_.clear(); }
  /// Fills the cache with the experts counted most, as far as there is room for them.
  void preload(std::span<const std::uint64_t> counts);

  std::uint32_t slots() const { return policy_.slots(); }
  const Counters& counters() const { return counters_; }
  std::string io_name() const;
  /// Number of `expert` of `layer` among all experts of the container.
  std::uint32_t item(std::uint32_t layer, std::uint32_t expert) const { return first_item_[layer] + expert; }

 private:
  void acquire_wanted();
  void read(std::uint32_t layer, std::uint32_t expert, std::uint32_t slot);
  void finish(const ReadResult& result);
  void drain() noexcept;
  void release_ready();
  std::uint8_t* slot_data(std::uint32_t slot) { return memory_.data() + std::size_t{slot} * record_bytes_; }

  const Container& container_;
  std::size_t record_bytes_;
  bool verify_;
  std::vector<File> direct_;               // by layer; closed where O_DIRECT is refused
  std::vector<std::uint32_t> first_item_;  // by layer
  CachePolicy policy_;
  AlignedBuffer memory_;
  std::unique_ptr<RecordIo> io_;

  std::uint32_t layer_ = 0;
  std::vector<Wanted> wanted_;  // not yet asked for; the next one last
  std::vector<Ready> arrived_;  // to be handed out
  std::vector<Ready> handed_out_;
  struct Flight {
    std::uint32_t layer = 0;
    std::uint32_t expert = 0;
  };
  std::vector<Flight> flights_;  // by slot
  std::uint32_t in_flight_ = 0;
  Counters counters_;
};

}  // namespace waste::runtime
