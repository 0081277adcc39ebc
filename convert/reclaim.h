// Deleting shards of the source once everything that reads from them is durable.
#pragma once

#include "convert/checkpoint.h"
#include "convert/consumers.h"
#include "convert/journal.h"
#include "convert/options.h"

namespace waste::convert {

/// Throws Error(Usage) naming what would make deleting unsafe: a run that will not end with a published
/// container, an output inside the source, a shard that is a symbolic link, has another name (hard links) or
/// cannot be deleted.
void check_reclaim_is_safe(const Checkpoint& checkpoint, const Options& options);

class Reclaimer {
 public:
  Reclaimer(const Checkpoint& checkpoint, const Plan& plan, const Options& options, const Journal& journal)
      : checkpoint_(checkpoint), options_(options), journal_(journal), consumers_(checkpoint, plan) {}

  /// The unit is durable and its digests are in the journal. Returns one line for each shard that was
  /// deleted, or with Reclaim::Dry would be.
  std::vector<std::string> trunk_done() { return reclaim(consumers_.finish_trunk()); }
  std::vector<std::string> layer_done(std::uint32_t layer) { return reclaim(consumers_.finish_layer(layer)); }

 private:
  std::vector<std::string> reclaim(const std::vector<std::uint32_t>& shards);

  const Checkpoint& checkpoint_;
  const Options& options_;
  const Journal& journal_;
  Consumers consumers_;
};

}  // namespace waste::convert
