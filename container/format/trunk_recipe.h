// How a trunk tensor is stored: one rule for the converter that writes it and the planner that counts it.
#pragma once

#include <cstdint>
#include <string_view>

#include "container/format/types.h"

namespace waste {

/// One-dimensional tensors and those below 65,536 elements stay F32. Embeddings, the output head, everything
/// visual and the MLPs of the dense layers are Q8G; the rest is `large`.
///
/// The dense MLPs stand in front of every MoE layer, once a model, and what four bits lose there runs through
/// all that follows: on the bundled model with a Q4G trunk, they alone are a quarter of the divergence from
/// the checkpoint's predictions. For Kimi K3 the four bits more are 0.34 GiB, 1.2% of the least memory it
/// runs in.
TensorFormat trunk_format(std::string_view name, std::size_t rank, std::uint64_t elements,
                          TensorFormat large);

}  // namespace waste
