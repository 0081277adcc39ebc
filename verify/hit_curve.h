// How often an expert is in memory, as a function of how many records the cache holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "verify/trace.h"

namespace waste::verify {

class HitCurve {
 public:
  /// Replays `trace` through the runtime's own policy at each capacity that is asked about.
  /// A trace that names layers or experts which a model of `moe_layers` x `experts` lacks is Error(Data).
  static HitCurve of_trace(Trace trace, std::uint32_t moe_layers, std::uint32_t experts, std::string name);

  /// Without a trace: the policy's hit rates on 300 decode steps of Kimi-Linear 48B (256 experts, 8 a token,
  /// 26 layers, greedy decoding, an empty cache at the start), taken by the share of the expert set that
  /// fits.
  static HitCurve measured();

  /// In [0, 1]. `records` of the `all` that the model has; all of them in memory never miss.
  double rate(std::uint64_t records, std::uint64_t all) const;

  /// Where the figures come from, for people.
  const std::string& source() const { return source_; }

 private:
  std::optional<Trace> trace_;
  mutable std::map<std::uint64_t, double> replayed_;
  std::string source_;
};

}  // namespace waste::verify
