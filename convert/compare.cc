#include "convert/compare.h"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "container/codec/rvq.h"
#include "container/core/text.h"
#include "container/format/container.h"
#include "convert/journal.h"
#include "convert/quality.h"
#include "convert/source.h"
#include "convert/source_rows.h"

namespace waste::convert {

namespace {

constexpr std::uint64_t kMaxQuality = 256 << 20;
constexpr std::uint64_t kBlockWeights = 1 << 20;

struct Scratch {
  std::vector<std::uint8_t> record, weight, scale;
  std::vector<float> source, decoded;
};

ErrorSums difference(std::span<const float> source, std::span<const float> decoded) {
  ErrorSums sums;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const double d = static_cast<double>(source[i]) - static_cast<double>(decoded[i]);
    sums.error += d * d;
    sums.energy += static_cast<double>(source[i]) * static_cast<double>(source[i]);
  }
  return sums;
}

void read_source(const Checkpoint& checkpoint, const MatrixSource& matrix, std::uint64_t first,
                 std::uint64_t rows, std::uint64_t cols, Scratch& s) {
  const RowBytes bytes = row_bytes(matrix, cols);
  s.weight.resize(rows * bytes.weight);
  s.scale.resize(rows * bytes.scale);
  s.source.resize(rows * cols);
  s.decoded.resize(rows * cols);
  checkpoint.read(*matrix.weight, first * bytes.weight, s.weight);
  if (matrix.scale != nullptr) checkpoint.read(*matrix.scale, first * bytes.scale, s.scale);
  decode_rows(matrix, first, rows, cols, s.weight, s.scale, s.source);
}

ErrorSums compare_matrix(const Checkpoint& checkpoint, const MatrixSource& matrix, const Container& container,
                         std::uint32_t layer, MatrixKind kind, Scratch& s) {
  const ExpertLayout& layout = container.layout();
  const auto k = static_cast<std::size_t>(kind);
  const std::span<const float> books = container.codebooks().books(container.bank(layer).codebook_base, kind);
  const std::uint32_t cols = layout.cols[k];
  const std::size_t packed = std::size_t{cols} / kVecDim * kIndexBlock * layout.quant.bytes_per_vector();
  const std::span<const std::uint8_t> record = s.record;
  ErrorSums sums;
  for (std::uint32_t first = 0; first < layout.rows[k]; first += kIndexBlock) {
    const std::uint32_t rows = std::min(kIndexBlock, layout.rows[k] - first);
    read_source(checkpoint, matrix, first, rows, cols, s);
    decode_rvq(layout.quant, rows, cols,
               record.subspan(layout.index_offset[k] + first / kIndexBlock * packed, packed),
               record.subspan(layout.scale_offset + 2 * std::size_t{layout.first_scale[k] + first},
                              2 * std::size_t{rows}),
               books, s.decoded);
    sums.add(difference(s.source, s.decoded));
  }
  return sums;
}

ErrorSums compare_tensor(const Checkpoint& checkpoint, const Tensor& source, const Container& container,
                         const TrunkTensor& place, Scratch& s) {
  ErrorSums sums;
  const std::uint64_t block = std::max<std::uint64_t>(1, kBlockWeights / place.cols());
  for (std::uint64_t first = 0; first < place.rows(); first += block) {
    const std::uint64_t rows = std::min(block, place.rows() - first);
    read_source(checkpoint, {&source, nullptr}, first, rows, place.cols(), s);
    container.read_trunk_rows(place, first, rows, s.decoded);
    sums.add(difference(s.source, s.decoded));
  }
  return sums;
}

// What make_plan would give, but as the container has it.
Plan plan_of(const Source& source, const Container& container) {
  Plan plan;
  plan.model = container.model();
  for (const Tensor* tensor : source.map.trunk) {
    plan.trunk.push_back({tensor, container.manifest().tensor(tensor->name)});
    const TrunkTensor& place = plan.trunk.back().place;
    if (place.elements() != tensor->shape.volume()) {
      fail_data("tensor {}: {} in the checkpoint, {} elements in the container", printable(tensor->name),
                tensor->shape.text(), place.elements());
    }
  }
  return plan;
}

void check_recorded(const Json& measured, const Json& recorded, const std::string& path,
                    const std::string& where) {
  constexpr double kTolerance = 0.01;
  for (const auto& [key, value] : measured.items()) {
    const Json* other = recorded.is_array() ? &recorded.at(std::stoul(key)) : json_find(recorded, key);
    if (other == nullptr) fail_data("{}: {}/{} is missing", where, path, key);
    if (value.is_structured()) {
      check_recorded(value, *other, path + "/" + key, where);
    } else if (value.is_number_float()) {
      const double a = value.get<double>();
      const double b = other->is_number() ? other->get<double>() : NAN;
      if (!(std::abs(a - b) <= kTolerance * std::max(a, b))) {
        fail_data("{}: {}/{}: recorded {}, measured {}", where, path, key, b, a);
      }
    }
  }
}

}  // namespace

int run_compare(const CompareOptions& options) {
  tbb::global_control limit(tbb::global_control::max_allowed_parallelism, options.threads);
  tbb::task_arena arena(static_cast<int>(options.threads));
  cli::ProgressLine line(options.quiet);
  const Source source = open_source(options.source, Journal::reclaimed(options.container));
  const Container container = Container::open(options.container);
  if (dump_json_line(container.manifest().config) != dump_json_line(manifest_config(*source.config))) {
    fail_data("{}: its config is not that of {}", options.container.string(), options.source.string());
  }
  const Plan plan = plan_of(source, container);
  QualityReport report;
  report.trunk.resize(plan.trunk.size());
  for (const LayerSource& layer : source.map.moe_layers) {
    report.layers[layer.layer].resize(layer.experts.size() * kMatrixKinds);
  }
  const std::size_t total = plan.trunk.size() + source.map.moe_layers.size() * container.model().num_experts;
  std::atomic<std::size_t> done = 0;
  const auto step = [&] {
    if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted");
    const std::size_t n = ++done;
    line.show(static_cast<double>(n) / static_cast<double>(total),
              [&] { return fmt::format("{} of {}", n, total); });
  };
  tbb::enumerable_thread_specific<Scratch> scratch;
  arena.execute([&] {
    tbb::parallel_for(std::size_t{0}, plan.trunk.size(), [&](std::size_t i) {
      const TrunkItem& item = plan.trunk[i];
      report.trunk[i] =
          compare_tensor(source.checkpoint, *item.source, container, item.place, scratch.local());
      step();
    });
    for (const LayerSource& layer : source.map.moe_layers) {
      tbb::parallel_for(std::size_t{0}, layer.experts.size(), [&](std::size_t e) {
        Scratch& s = scratch.local();
        s.record.resize(container.layout().record_bytes);
        container.read_expert(layer.layer, static_cast<std::uint32_t>(e), s.record);
        for (const MatrixKind kind : {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down}) {
          const auto k = static_cast<std::size_t>(kind);
          report.layers.at(layer.layer)[e * kMatrixKinds + k] =
              compare_matrix(source.checkpoint, layer.experts[e][k], container, layer.layer, kind, s);
        }
        step();
      });
    }
  });
  line.clear();
  const Json quality = report.json(plan);
  if (options.json) {
    fmt::print("{}", dump_json(quality));
  } else {
    for (const auto& [layer, errors] : report.layers) fmt::print("{}\n", layer_line(layer, errors));
    for (const auto& [name, value] : quality["summary"].items())
      fmt::print("{:<10} {:.6f}\n", name, value.get<double>());
  }
  if (const fs::path path = options.container / kQualityFile; fs::exists(path)) {
    check_recorded(quality, parse_json(read_text_file(path, kMaxQuality), path.string()), "", path.string());
  }
  return 0;
}

}  // namespace waste::convert
