// The inner loop of the trunk's quantiser. Both implementations give the same bits.
#pragma once

#include <cstddef>

namespace waste::convert {

inline constexpr std::size_t kGroupWeights = 128;

/// One group rounded at one scale: sums in float, sixteen partial sums added up as a tree.
struct GroupTrial {
  float error = 0;        // of (w - q scale)^2
  float code_energy = 0;  // of q^2
  float product = 0;      // of q w
};

/// `w` and `codes` are [128]; codes are whole numbers in [low, high]; scale is not 0.
using TryGroup = GroupTrial(const float* w, float scale, float low, float high, float* codes);

namespace scalar {
TryGroup try_group;
}
namespace simd {
TryGroup try_group;
}

}  // namespace waste::convert
