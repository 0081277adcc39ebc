// The manifest that a conversion would write, from a model's config.json alone: names, shapes, formats and
// sizes of all that a container holds. What lies in a checkpoint is not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "container/format/manifest.h"

namespace waste::verify {

/// What can be chosen when converting.
struct Recipe {
  ExpertQuant experts = ExpertQuant::vq3();
  TensorFormat trunk = TensorFormat::Q4G;  // of what trunk_format() does not keep at 8 bits
};

/// A tensor of a checkpoint that is not a routed expert's.
struct SourceTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

/// Every such tensor, from the released modelling code of Kimi-Linear and Kimi K3. `config` is what `model`
/// was parsed from; only its vision_config is looked at.
std::vector<SourceTensor> trunk_inventory(const ModelConfig& model, const Json& config);

/// Bytes of the checkpoint's tensors: bf16, A_log, dt_bias and router bias f32, K3's routed experts MXFP4.
std::uint64_t checkpoint_bytes(const ModelConfig& model, const Json& config);

/// Parses `config` (a checkpoint's config.json); what it cannot describe is Error(Data) opened by `where`.
Manifest planned_manifest(const Json& config, const Recipe& recipe, std::string_view where);

}  // namespace waste::verify
