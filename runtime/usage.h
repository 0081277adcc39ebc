// usage.waste: how often each expert was used, learned from earlier runs. Only a hint: a file that is
// damaged, or entries that name what the container lacks, count for nothing.
//
// u32 magic 0x47535557 ("WUSG"), u32 version, u64 tokens; then 16-byte entries u16 layer, u16 expert, u32
// hits, u32 last seen, u32 reserved.
#pragma once

#include <cstdint>
#include <vector>

#include "container/format/container.h"

namespace waste::runtime {

struct Usage {
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> hits;  // by layer in ascending order, then expert
};

/// Empty counts when there is no usable file.
Usage read_usage(const Container& container);
/// Replaces the file atomically.
void write_usage(const Container& container, const Usage& usage);

}  // namespace waste::runtime
