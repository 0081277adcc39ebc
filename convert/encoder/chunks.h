// Parallel work whose result does not depend on the number of threads: it is cut at fixed places.
#pragma once

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstddef>

namespace waste::convert {

inline constexpr std::size_t kChunkVectors = 4096;

/// Calls body(begin, end) for every `chunk` of [0, count), in any order and at the same time.
template <typename Body>
void for_chunks(std::size_t count, std::size_t chunk, const Body& body) {
  tbb::parallel_for(std::size_t{0}, (count + chunk - 1) / chunk,
                    [&](std::size_t i) { body(i * chunk, std::min(count, (i + 1) * chunk)); });
}

}  // namespace waste::convert
