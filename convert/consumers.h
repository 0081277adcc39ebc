// Which shards are still needed: every shard counts the units of work (the trunk, each layer) that read from
// it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/plan.h"

namespace waste::convert {

class Consumers {
 public:
  Consumers(const Checkpoint& checkpoint, const Plan& plan);

  /// The unit is durable. Returns the shards that nothing needs any more, ascending. A shard that also holds
  /// a tensor the container has no place for is never among them: deleting it would lose that tensor.
  std::vector<std::uint32_t> finish_trunk() { return finish(kTrunk); }
  std::vector<std::uint32_t> finish_layer(std::uint32_t layer) { return finish(layer); }

 private:
  static constexpr std::uint32_t kTrunk = ~std::uint32_t{0};
  std::vector<std::uint32_t> finish(std::uint32_t unit);

  std::map<std::uint32_t, std::vector<std::uint32_t>> shards_;  // of a unit
  std::vector<std::uint32_t> units_left_;                       // of a shard
};

}  // namespace waste::convert
