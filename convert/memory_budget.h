// How much may be in flight under a ceiling on memory.
#pragma once

#include <cstddef>

#include "convert/plan.h"

namespace waste::convert {

struct MemoryBudget {
  std::size_t experts = 1;  // in the experts' pipeline at once
  std::size_t blocks = 1;   // blocks of rows in the trunk's
};

/// Call after planning: what the process holds by then is part of the sum. Enough to keep `options.threads`
/// busy, or as much as `options.memory` (without one: half of what the machine has) allows; when that is not
/// even one expert, Error(Machine) says what the floor is made of.
MemoryBudget plan_memory(const Plan& plan, const Options& options);

}  // namespace waste::convert
