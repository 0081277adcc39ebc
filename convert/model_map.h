// Which tensors a model is made of: from its config to every name, shape and dtype that its checkpoint must
// have. A family is a table of rules; another family is one more table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "container/format/model_config.h"
#include "container/format/types.h"
#include "convert/checkpoint.h"

namespace waste::convert {

/// One expert matrix of the checkpoint: a float tensor, or an MXFP4 pair.
struct MatrixSource {
  const Tensor* weight = nullptr;  // [rows][cols] floats, or [rows][cols / 2] nibbles
  const Tensor* scale = nullptr;   // [rows][cols / 32] exponents; null for floats
};

struct LayerSource {
  std::uint32_t layer = 0;
  std::vector<std::array<MatrixSource, kMatrixKinds>> experts;
};

struct ModelMap {
  std::vector<const Tensor*> trunk;     // every tensor that is not a routed expert, by name
  std::vector<LayerSource> moe_layers;  // ascending
  std::vector<const Tensor*> unused;    // tensors of the checkpoint that the model has no place for
};

/// Finds every tensor that `model` needs. `config` is the checkpoint's whole config.json: it says whether
/// experts are MXFP4 pairs (quantization_config) and describes the vision tower (vision_config). Throws one
/// Error(Data) that lists every missing tensor, wrong shape and wrong dtype, experts of a layer gathered into
/// one entry.
ModelMap map_model(const Checkpoint& checkpoint, const ModelConfig& model, const Json& config);

}  // namespace waste::convert
