#include "convert/consumers.h"

#include <set>

namespace waste::convert {

Consumers::Consumers(const Checkpoint& checkpoint, const Plan& plan)
    : units_left_(checkpoint.shards().size(), 0) {
  std::vector<std::uint64_t> used_bytes(checkpoint.shards().size(), 0);
  const auto add_unit = [&](std::uint32_t unit, const std::set<std::uint32_t>& shards) {
    shards_[unit].assign(shards.begin(), shards.end());
    for (const std::uint32_t shard : shards) ++units_left_[shard];
  };
  std::set<std::uint32_t> shards;
  const auto use = [&](const Tensor* tensor) {
    if (tensor == nullptr) return;
    shards.insert(tensor->shard);
    used_bytes[tensor->shard] += tensor->bytes;
  };
  for (const TrunkItem& item : plan.trunk) use(item.source);
  add_unit(kTrunk, shards);
  for (const LayerItem& item : plan.layers) {
    shards.clear();
    for (const auto& expert : item.source->experts) {
      for (const MatrixSource& matrix : expert) {
        use(matrix.weight);
        use(matrix.scale);
      }
    }
    add_unit(item.source->layer, shards);
  }
  std::vector<std::uint64_t> held_bytes(checkpoint.shards().size(), 0);
  for (const Tensor& tensor : checkpoint.tensors()) held_bytes[tensor.shard] += tensor.bytes;
  for (std::size_t i = 0; i < units_left_.size(); ++i) {
    if (held_bytes[i] != used_bytes[i]) ++units_left_[i];  // never reaches zero
  }
}

std::vector<std::uint32_t> Consumers::finish(std::uint32_t unit) {
  std::vector<std::uint32_t> free;
  const auto it = shards_.find(unit);
  if (it == shards_.end()) return free;
  for (const std::uint32_t shard : it->second) {
    if (--units_left_[shard] == 0) free.push_back(shard);
  }
  shards_.erase(it);
  return free;
}

}  // namespace waste::convert
