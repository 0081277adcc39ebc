#include "container/format/trunk_recipe.h"

namespace waste {

namespace {

constexpr std::uint64_t kSmallTensor = 65'536;  // elements

bool is_delicate(std::string_view name) {
  if (name.starts_with("vision_tower.") || name.starts_with("mm_projector.")) return true;
  for (const std::string_view end : {"embed_tokens.weight", "lm_head.weight", ".mlp.gate_proj.weight",
                                     ".mlp.up_proj.weight", ".mlp.down_proj.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

TensorFormat trunk_format(std::string_view name, std::size_t rank, std::uint64_t elements,
                          TensorFormat large) {
  if (rank <= 1 || elements < kSmallTensor) return TensorFormat::F32;
  return is_delicate(name) ? TensorFormat::Q8G : large;
}

}  // namespace waste
