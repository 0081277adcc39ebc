#include "convert/quality.h"

#include <array>
#include <nlohmann/json.hpp>

namespace waste::convert {

namespace {

constexpr MatrixKind kKinds[] = {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down};

struct KindSummary {
  double mean = 0, max = 0;
  std::size_t worst = 0;
};

KindSummary summarise(const std::vector<ErrorSums>& errors, MatrixKind kind) {
  KindSummary s;
  const std::size_t experts = errors.size() / kMatrixKinds;
  for (std::size_t e = 0; e < experts; ++e) {
    const double error = errors[e * kMatrixKinds + static_cast<std::size_t>(kind)].relative();
    s.mean += error;
    if (error > s.max) {
      s.max = error;
      s.worst = e;
    }
  }
  if (experts != 0) s.mean /= static_cast<double>(experts);
  return s;
}

}  // namespace

Json QualityReport::json(const Plan& plan) const {
  Json summary = Json::object();
  Json by_layer = Json::object();
  Json by_tensor = Json::array();
  std::array<double, kMatrixKinds> means{};
  for (const auto& [layer, errors] : layers) {
    Json entry = Json::object();
    for (const MatrixKind kind : kKinds) {
      const KindSummary s = summarise(errors, kind);
      means[static_cast<std::size_t>(kind)] += s.mean / static_cast<double>(layers.size());
      entry[std::string(matrix_name(kind))] = {{"mean", s.mean}, {"max", s.max}, {"worst_expert", s.worst}};
    }
    by_layer[std::to_string(layer)] = std::move(entry);
  }
  if (!layers.empty()) {
    for (const MatrixKind kind : kKinds)
      summary[std::string(matrix_name(kind))] = means[static_cast<std::size_t>(kind)];
  }
  std::map<std::string, std::pair<double, std::size_t>> formats;
  for (std::size_t i = 0; i < trunk.size(); ++i) {
    const TrunkTensor& place = plan.trunk[i].place;
    if (!place.quantised()) continue;
    const std::string format(format_name(place.format));
    by_tensor.push_back({{"name", place.name}, {"fmt", format}, {"error", trunk[i].relative()}});
    formats[format].first += trunk[i].relative();
    ++formats[format].second;
  }
  for (const auto& [format, sum] : formats) {
    summary["trunk " + format] = sum.first / static_cast<double>(sum.second);
  }
  return {{"summary", std::move(summary)}, {"layers", std::move(by_layer)}, {"trunk", std::move(by_tensor)}};
}

std::string layer_line(std::uint32_t layer, const std::vector<ErrorSums>& errors) {
  std::string text = fmt::format("layer {}: error", layer);
  KindSummary worst;
  MatrixKind worst_kind = MatrixKind::Gate;
  for (const MatrixKind kind : kKinds) {
    const KindSummary s = summarise(errors, kind);
    text += fmt::format("{} {} {:.4f}", kind == MatrixKind::Gate ? "" : ",", matrix_name(kind), s.mean);
    if (s.max > worst.max) {
      worst = s;
      worst_kind = kind;
    }
  }
  return text +
         fmt::format("; worst {} of expert {}, {:.4f}", matrix_name(worst_kind), worst.worst, worst.max);
}

}  // namespace waste::convert
