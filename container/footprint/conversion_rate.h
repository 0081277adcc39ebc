// How fast a core encodes experts: what waste-convert expects of a conversion and waste-verify plans with.
#pragma once

#include "container/core/simd.h"

namespace waste {

/// Expert weights a second and core, by encoder quality.
struct ConversionRate {
  double fast = 0;
  double normal = 0;
  double best = 0;
};

/// Nine tenths of what `waste-convert bench` gives for 3 x 256 on one Zen 5 core; NEON is a guess between
/// them.
ConversionRate conversion_rate(SimdLevel level);

}  // namespace waste
