// Whether the bytes of one extent are what they must be: the seal's digest, a record's header, crc32, padding
// and scales, and the floats of the trunk.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "verify/container_map.h"

namespace waste::verify {

struct Verdict {
  Digest128 digest;
  std::string problem;  // empty when the extent is sound
};

/// Thread-safe. Refers to `map`, which must outlive it.
class ExtentJudge {
 public:
  explicit ExtentJudge(const ContainerMap& map);

  /// `next` gives the extent's bytes in order, in views, and an empty one after the last. A record, and an
  /// extent of the trunk, must come in one view for more than its digest to be judged.
  Verdict judge(const Extent& extent, const std::function<std::span<const std::uint8_t>()>& next) const;

  /// The longest extent that must come in one view.
  std::uint64_t longest_view() const;

 private:
  struct Floats {  // a run of values of one width in trunk.bin
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    std::uint32_t width = 0;  // 2: halves, 4: float32
    std::uint32_t tensor = 0;
  };

  std::string record_problem(const Extent& extent, std::span<const std::uint8_t> record,
                             std::uint32_t crc) const;
  std::string trunk_problem(const Extent& extent, std::span<const std::uint8_t> bytes) const;

  const ContainerMap& map_;
  std::vector<Floats> floats_;  // by offset
};

}  // namespace waste::verify
