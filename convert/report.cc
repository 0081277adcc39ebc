#include "convert/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "container/core/memory.h"
#include "container/core/text.h"
#include "convert/quality.h"

namespace waste::convert {

void Report::event(const Json& json) const {
  if (options_.json) fmt::print("{}\n", dump_json_line(json)), std::fflush(stdout);
}

void Report::text(const std::string& line) const {
  if (options_.json || options_.quiet) return;
  line_.clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Report::note(const std::string& note) const {
  text(note);
  event({{"event", "note"}, {"text", note}});
}

void Report::plan(const Plan& plan, const Source& source, const DiskNeed& need) const {
  const std::uint64_t free = free_space(options_.out);
  const double seconds = expected_seconds(plan, options_, {});
  std::string lines = describe_plan(plan, source.checkpoint, source.map, options_, need, free, seconds);
  lines.pop_back();
  text(lines);
  Json json = plan_json(plan, source.checkpoint, source.map, need, free, seconds);
  event(json);
  for (const std::string& n : source.sidecars.notes) note(n);
}

void Report::layer(std::uint32_t layer, const std::vector<ErrorSums>& errors) const {
  text(layer_line(layer, errors));
  QualityReport quality;
  quality.layers.emplace(layer, errors);
  event({{"event", "layer"}, {"layer", layer}, {"error", quality.json({})["layers"][std::to_string(layer)]}});
}

void Report::done(const Plan& plan, const Json& quality, const Meter& meter, double seconds) const {
  const StageTimes& t = meter.times();
  const std::pair<const char*, double> stages[] = {
      {"read", t.read.seconds()},   {"decode", t.decode.seconds()}, {"trunk", t.trunk.seconds()},
      {"train", t.train.seconds()}, {"encode", t.encode.seconds()}, {"write", t.write.seconds()},
  };
  std::string shares;
  Json json_stages = Json::object();
  double busy = 0;
  for (const auto& [name, s] : stages) busy += s;
  for (const auto& [name, s] : stages) {
    if (busy > 0) shares += fmt::format("{}{} {:.0f}%", shares.empty() ? "" : ", ", name, 100 * s / busy);
    json_stages[name] = s;
  }
  std::string errors;
  for (const auto& [name, value] : quality["summary"].items()) {
    errors += fmt::format("{}{} {:.4f}", errors.empty() ? "" : ", ", name, value.get<double>());
  }
  text(fmt::format("{}: {}; {} weights in {}; error {}; peak RSS {}; time: {}", options_.out.string(),
                   options_.whole() ? format_bytes(static_cast<double>(plan.output_bytes())) : "unpublished",
                   format_count(static_cast<double>(meter.written())), format_duration(seconds), errors,
                   format_bytes(static_cast<double>(peak_rss())), shares));
  event({{"event", "done"},
         {"published", options_.whole()},
         {"output_bytes", plan.output_bytes()},
         {"weights", meter.written()},
         {"seconds", seconds},
         {"peak_rss", peak_rss()},
         {"stage_seconds", json_stages},
         {"error", quality["summary"]}});
}

}  // namespace waste::convert
