// Counts that follow from a manifest.
#pragma once

#include <cstdint>

#include "container/format/manifest.h"

namespace waste::verify {

struct ModelFacts {
  std::uint64_t trunk_parameters = 0;
  std::uint64_t expert_parameters = 0;  // of all routed experts
  std::uint64_t active_parameters = 0;  // that one token of text uses
  std::uint64_t expert_bytes = 0;       // of all banks
  std::uint64_t picks = 0;              // expert records one token uses, over all layers
  std::uint64_t pick_bytes = 0;         // of them

  std::uint64_t parameters() const { return trunk_parameters + expert_parameters; }
};

ModelFacts model_facts(const Manifest& manifest);

}  // namespace waste::verify
