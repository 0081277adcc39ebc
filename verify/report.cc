#include "verify/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "container/core/perf.h"
#include "container/core/text.h"

namespace waste::verify {

std::string finding_text(const ContainerMap& map, const Finding& finding) {
  // A message of the parsers opens with the path already.
  if (!finding.extent) {
    const bool named = finding.problem.find(finding.file) != std::string::npos;
    return named ? finding.problem : fmt::format("{}: {}", finding.file, finding.problem);
  }
  const Extent& extent = map.extents[*finding.extent];
  return fmt::format("{} (offset {}, {} bytes): {}; {}", map.place(extent), finding.offset, finding.bytes,
                     finding.problem, map.meaning(extent));
}

Json finding_json(const ContainerMap& map, const Finding& finding) {
  Json out;
  out["file"] = finding.file;
  out["offset"] = finding.extent ? Json(finding.offset) : Json(nullptr);
  out["bytes"] = finding.bytes;
  out["layer"] = nullptr;
  out["expert"] = nullptr;
  if (const auto file = map.file_index(finding.file); file && map.files[*file].role == FileRole::Bank) {
    out["layer"] = map.files[*file].layer;
    if (finding.extent) out["expert"] = map.extents[*finding.extent].index;
  }
  out["place"] = finding.extent ? map.place(map.extents[*finding.extent]) : finding.file;
  out["problem"] = finding.problem;
  out["meaning"] = finding.extent ? Json(map.meaning(map.extents[*finding.extent])) : Json(nullptr);
  return out;
}

void ByteProgress::show(std::uint64_t done, std::uint64_t total) {
  const double now = now_seconds();
  if (!started_) rate_.start(now, done);
  started_ = true;
  rate_.update(now, done);
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  line_.show(share, [&] {
    const double rate = rate_.rate(now);
    std::string text = fmt::format("{} {} of {}, {}/s", verb_, format_bytes(static_cast<double>(done)),
                                   format_bytes(static_cast<double>(total)), format_bytes(rate));
    if (const double eta = rate_.eta(now, total); eta >= 0) text += ", " + format_duration(eta) + " left";
    return text;
  });
}

}  // namespace waste::verify
