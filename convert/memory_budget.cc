#include "convert/memory_budget.h"

#include <algorithm>

#include "container/core/memory.h"
#include "container/core/text.h"
#include "convert/layer_stage.h"
#include "convert/trunk_stage.h"

namespace waste::convert {

namespace {

// Stacks, the allocator's slack, encoder tables, the scales of the largest trunk tensor, JSON of the journal.
constexpr std::uint64_t kOverhead = 96 << 20;
// Besides those at work: one being read, one being written.
constexpr std::size_t kWaiting = 2;

}  // namespace

MemoryBudget plan_memory(const Plan& plan, const Options& options) {
  const std::uint64_t ceiling = options.memory != 0 ? options.memory : machine_memory().usable / 2;
  const std::uint64_t held = peak_rss();
  const std::uint64_t training = training_bytes(plan);
  const std::uint64_t fixed = held + training + kOverhead;
  const std::uint64_t slot = std::max<std::uint64_t>(1, expert_slot_bytes(plan, !options.importance.empty()));
  const std::uint64_t block = std::max<std::uint64_t>(1, trunk_block_bytes(plan));
  const std::uint64_t floor = fixed + std::max(slot, block);
  if (floor > ceiling) {
    const auto size = [](std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
    fail(ErrorKind::Machine,
         "--memory: a ceiling of {} is below the floor of {}: {} for the checkpoint's index, {} for "
         "training, {} "
         "besides, {} for one expert or block of the trunk in flight",
         size(ceiling), size(floor), size(held), size(training), size(kOverhead),
         size(std::max(slot, block)));
  }
  const std::size_t wanted = options.threads + kWaiting;
  MemoryBudget budget;
  budget.experts = std::min<std::uint64_t>(wanted, (ceiling - fixed) / slot);
  budget.blocks = std::min<std::uint64_t>(wanted, (ceiling - fixed) / block);
  return budget;
}

}  // namespace waste::convert
