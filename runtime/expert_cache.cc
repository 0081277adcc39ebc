#include "runtime/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "container/core/error.h"
#include "container/core/perf.h"

namespace waste::runtime {

namespace {

// Records in flight at once: enough for any disk, and a bound on the ring.
constexpr std::uint32_t kDepth = 64;

std::uint32_t count_experts(const Container& c) {
  return static_cast<std::uint32_t>(c.manifest().banks.size()) * c.model().num_experts;
}

std::uint32_t token_uses(const Container& c) {
  return static_cast<std::uint32_t>(c.manifest().banks.size()) * c.model().num_experts_per_token;
}

}  // namespace

ExpertCache::ExpertCache(const Container& container, std::uint32_t slots, IoMode io, bool verify)
    : container_(container),
      record_bytes_(container.layout().record_bytes),
      verify_(verify),
      policy_(count_experts(container), slots, token_uses(container)),
      memory_(std::size_t{policy_.slots()} * record_bytes_),
      io_(open_record_io(io, std::min(policy_.slots(), kDepth))) {
  direct_.resize(container.model().num_layers);
  first_item_.resize(container.model().num_layers);
  std::uint32_t first = 0;
  for (const auto& [layer, bank] : container.manifest().banks) {
    if (auto file = File::open_read_direct(container.bank_path(layer))) direct_[layer] = std::move(*file);
    first_item_[layer] = first;
    first += bank.experts;
  }
  flights_.resize(policy_.slots());
}

ExpertCache::~ExpertCache() {
  drain();
}

std::string ExpertCache::io_name() const {
  const bool all_direct = std::all_of(container_.manifest().banks.begin(), container_.manifest().banks.end(),
                                      [&](const auto& bank) { return direct_[bank.first].is_open(); });
  return io_->name() + (all_direct ? ", O_DIRECT" : ", page cache");
}

void ExpertCache::begin(std::uint32_t layer, std::span<const Wanted> wanted) {
  release_ready();
  layer_ = layer;
  // Residents first: they are computed while the others arrive, and cannot be evicted for them.
  wanted_.assign(wanted.begin(), wanted.end());
  std::stable_partition(wanted_.begin(), wanted_.end(),
                        [&](const Wanted& w) { return policy_.resident(item(layer, w.expert)); });
  std::reverse(wanted_.begin(), wanted_.end());
  acquire_wanted();
}

void ExpertCache::read(std::uint32_t layer, std::uint32_t expert, std::uint32_t slot) {
  const File& file = direct_[layer].is_open() ? direct_[layer] : container_.bank_file(layer);
  flights_[slot] = {layer, expert};
  io_->submit({file.fd(), std::uint64_t{expert} * record_bytes_, slot_data(slot),
               static_cast<std::uint32_t>(record_bytes_), slot});
  ++in_flight_;
}

void ExpertCache::acquire_wanted() {
  const std::uint32_t before = in_flight_;
  while (!wanted_.empty() && in_flight_ < kDepth) {
    const Wanted w = wanted_.back();
    const CachePolicy::Access access = policy_.acquire(item(layer_, w.expert), w.uses);
    if (access.slot == CachePolicy::kNone) break;
    wanted_.pop_back();
    ++counters_.uses;
    if (access.hit) {
      ++counters_.hits;
      arrived_.push_back({w.expert, slot_data(access.slot)});
    } else {
      read(layer_, w.expert, access.slot);
    }
  }
  if (in_flight_ != before) io_->flush();
}

void ExpertCache::finish(const ReadResult& result) {
  --in_flight_;
  const Flight flight = flights_[result.tag];
  const std::string name = container_.record_name(flight.layer, flight.expert);
  try {
    // An unreadable record is damage to the container, not a refusal of the machine.
    if (result.error != 0) fail_data("{}: read: {}", name, std::strerror(result.error));
    if (result.bytes != record_bytes_)
      fail_data("{}: the file ends after {} of {} bytes", name, result.bytes, record_bytes_);
    counters_.bytes_read += result.bytes;
    const std::span<const std::uint8_t> record(slot_data(result.tag), record_bytes_);
    const RecordId id = container_.record_id(flight.layer, flight.expert);
    if (verify_) {
      check_record(record, container_.layout(), id, name);
    } else {
      check_record_header(record.first(kRecordHeaderBytes), container_.layout(), id, name);
    }
  } catch (...) {
    policy_.forget(item(flight.layer, flight.expert));
    throw;
  }
}

std::span<const ExpertCache::Ready> ExpertCache::next() {
  release_ready();
  try {
    acquire_wanted();
    while (in_flight_ > 0) {
      ReadResult result;
      const bool wait = arrived_.empty();
      const double begin = wait ? now_seconds() : 0;
      const bool got = io_->next(result, wait);
      if (wait) counters_.wait_seconds += now_seconds() - begin;
      if (!got) break;
      finish(result);
      arrived_.push_back({flights_[result.tag].expert, slot_data(result.tag)});
    }
  } catch (...) {
    drain();
    for (const Ready& r : arrived_) policy_.release(item(layer_, r.expert));
    arrived_.clear();
    wanted_.clear();
    throw;
  }
  if (arrived_.empty() && !wanted_.empty())
    fail(ErrorKind::Machine, "the expert cache's {} slots are all in use", policy_.slots());
  handed_out_.swap(arrived_);
  return handed_out_;
}

void ExpertCache::release_ready() {
  for (const Ready& r : handed_out_) policy_.release(item(layer_, r.expert));
  handed_out_.clear();
}

// The kernel still writes to the buffers of reads in flight: whatever went wrong, they must come back first.
void ExpertCache::drain() noexcept {
  while (in_flight_ > 0) {
    ReadResult result;
    try {
      io_->next(result, true);
      finish(result);
      policy_.release(item(flights_[result.tag].layer, flights_[result.tag].expert));
    } catch (const Error&) {  // one is being reported already; this record was forgotten
    }
  }
}

void ExpertCache::preload(std::span<const std::uint64_t> counts) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
  });
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (const std::uint32_t i : order) policy_.seed(i, static_cast<double>(counts[i]) / total);
  if (order.size() > slots()) order.resize(slots());
  std::sort(order.begin(), order.end());
  const std::uint32_t experts = container_.model().num_experts;
  std::vector<Wanted> wanted;
  std::size_t at = 0;
  for (const auto& [layer, bank] : container_.manifest().banks) {
    wanted.clear();
    for (; at < order.size() && order[at] < first_item_[layer] + experts; ++at)
      wanted.push_back({order[at] - first_item_[layer], 1});
    begin(layer, wanted);
    while (!next().empty()) {
    }
  }
  counters_ = {};
}

}  // namespace waste::runtime
