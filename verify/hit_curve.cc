#include "verify/hit_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "container/core/error.h"
#include "verify/simulate.h"

namespace waste::verify {

namespace {

struct Point {
  double share;  // of the expert set that fits
  double hits;
};

// waste-verify simulate on that trace. The last of the misses are first uses: they end when the set is in
// memory.
constexpr Point kMeasured[] = {{0, 0},         {0.005, 0.0748}, {0.01, 0.1599}, {0.02, 0.2627},
                               {0.03, 0.3240}, {0.06, 0.4478},  {0.12, 0.5908}, {0.18, 0.6745},
                               {0.24, 0.7355}, {0.36, 0.8196},  {0.48, 0.8709}, {0.72, 0.9173},
                               {1.0, 0.9185}};

double interpolate(double share) {
  const auto above = std::upper_bound(std::begin(kMeasured), std::end(kMeasured), share,
                                      [](double s, const Point& p) { return s < p.share; });
  if (above == std::end(kMeasured)) return std::prev(above)->hits;
  const Point& b = *above;
  const Point& a = *std::prev(above);
  return a.hits + (b.hits - a.hits) * (share - a.share) / (b.share - a.share);
}

}  // namespace

HitCurve HitCurve::of_trace(Trace trace, std::uint32_t moe_layers, std::uint32_t experts, std::string name) {
  std::set<std::uint16_t> layers;
  for (const Trace::Expert& e : trace.experts) {
    layers.insert(e.layer);
    if (e.expert >= experts) {
      fail_data("{}: a trace of another model: expert {} of layer {}, but this one has {} experts a layer",
                name, e.expert, e.layer, experts);
    }
  }
  if (layers.size() > moe_layers) {
    fail_data("{}: a trace of another model: {} layers, but this one has {} with experts", name,
              layers.size(), moe_layers);
  }
  HitCurve curve;
  curve.source_ =
      fmt::format("{}: {} requests replayed through the runtime's policy", name, trace.requests.size());
  curve.trace_ = std::move(trace);
  return curve;
}

HitCurve HitCurve::measured() {
  HitCurve curve;
  curve.source_ =
      "no trace of this model: the runtime's policy on 300 decode steps of Kimi-Linear 48B, by share of the "
      "experts";
  return curve;
}

double HitCurve::rate(std::uint64_t records, std::uint64_t all) const {
  if (records >= all) return 1;
  if (!trace_) return interpolate(static_cast<double>(records) / static_cast<double>(all));
  const auto [it, fresh] = replayed_.try_emplace(records, 0);
  if (fresh) {
    it->second =
        static_cast<double>(lfru_hits(*trace_, records)) / static_cast<double>(trace_->requests.size());
  }
  return it->second;
}

}  // namespace waste::verify
