// How far the container's weights are from the checkpoint's: ||W - decoded|| / ||W|| of every matrix.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "convert/encoder/recipe.h"
#include "convert/plan.h"

namespace waste::convert {

/// What was measured, of a container that need not be complete.
struct QualityReport {
  std::map<std::uint32_t, std::vector<ErrorSums>> layers;  // [expert][MatrixKind]
  std::vector<ErrorSums> trunk;                            // in the order of the plan's trunk

  /// {"summary": mean relative error by matrix kind and trunk format, "layers": per layer and kind the mean,
  /// the largest and whose that is, "trunk": every quantised tensor}.
  Json json(const Plan& plan) const;
};

/// "layer 12: error w1 0.1629, w3 0.1630, w2 0.1655; worst w2 of expert 77, 0.1712"
std::string layer_line(std::uint32_t layer, const std::vector<ErrorSums>& errors);

}  // namespace waste::convert
