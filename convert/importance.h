// Which inputs of the experts' matrices matter: the mean square of every input dimension, measured by
// whatever ran the model. With it, training and encoding weigh a column's error by what it does to the
// output.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/file.h"
#include "container/format/types.h"
#include "convert/plan.h"

namespace waste::convert {

class Importance {
 public:
  /// Every column counts the same.
  Importance() = default;
  /// A safetensors file of F32 tensors "layers.L.w1", "layers.L.w3" and "layers.L.w2", one value a column,
  /// for every MoE layer. What is missing, of another size, negative or not finite is Error(Data), all of it
  /// at once.
  static Importance load(const fs::path& path, const Plan& plan);

  /// One value a column; empty when unweighted.
  std::span<const float> columns(std::uint32_t layer, MatrixKind kind) const;
  /// Of the file; all zero when unweighted.
  Digest128 digest() const { return digest_; }

 private:
  std::map<std::uint32_t, std::array<std::vector<float>, kMatrixKinds>> layers_;
  Digest128 digest_;
};

}  // namespace waste::convert
