#include "convert/bench.h"

#include <fmt/core.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "container/core/json.h"
#include "container/core/perf.h"
#include "container/core/simd.h"
#include "container/core/text.h"
#include "convert/encoder/codebooks.h"
#include "convert/encoder/fma_peak.h"
#include "convert/encoder/group_quantiser.h"
#include "convert/encoder/matrix_encoder.h"
#include "convert/encoder/synthetic.h"
#include "convert/source.h"
#include "convert/source_rows.h"

namespace waste::convert {

namespace {

constexpr std::size_t kSyntheticCols = 3584;  // of an expert of Kimi K3
constexpr std::size_t kSyntheticRows = 3072;
constexpr std::size_t kBlockRows = 64;  // the pipeline's unit
constexpr double kSecondsPerFigure = 0.3;
constexpr std::uint64_t kSeed = 0xBE7C;

struct Data {
  std::string name;
  std::size_t cols = 0;
  std::vector<float> train;
  std::vector<float> measure;
};

std::vector<Data> synthetic_data(std::size_t training) {
  const std::size_t train_rows = training * kVectorDim / kSyntheticCols + 1;
  const std::size_t train = train_rows * kSyntheticCols;
  const std::size_t measure = kSyntheticRows * kSyntheticCols;
  std::vector<Data> data;
  data.push_back({"gaussian", kSyntheticCols, gaussian_weights(train, 1), gaussian_weights(measure, 2)});
  data.push_back({"mxfp4", kSyntheticCols, mxfp4_weights(train, 1), mxfp4_weights(measure, 2)});
  // The column scales belong to the matrix: what is measured continues what is trained on.
  auto heavy = heavy_weights(train_rows + kSyntheticRows, kSyntheticCols, 3);
  data.push_back({"student-t",
                  kSyntheticCols,
                  {heavy.begin(), heavy.begin() + static_cast<std::ptrdiff_t>(train)},
                  {heavy.begin() + static_cast<std::ptrdiff_t>(train), heavy.end()}});
  return data;
}

// Every expert's gate matrix of the first MoE layer, as far as training and measuring want them.
Data checkpoint_data(const std::filesystem::path& directory, std::size_t training) {
  const Source source = open_source(directory, {});
  if (source.map.moe_layers.empty()) fail_data("{}: no MoE layer to measure", directory.string());
  const LayerSource& layer = source.map.moe_layers.front();
  Data data;
  for (const auto& expert : layer.experts) {
    const MatrixSource& matrix = expert[static_cast<std::size_t>(MatrixKind::Gate)];
    const auto& shape = matrix.weight->shape;
    const std::uint64_t rows = shape.dims[0];
    data.cols = shape.dims[1] * (matrix.scale != nullptr ? 2 : 1);
    std::vector<std::uint8_t> weight(matrix.weight->bytes);
    std::vector<std::uint8_t> scale(matrix.scale != nullptr ? matrix.scale->bytes : 0);
    source.checkpoint.read(*matrix.weight, 0, weight);
    if (matrix.scale != nullptr) source.checkpoint.read(*matrix.scale, 0, scale);
    std::vector<float> values(rows * data.cols);
    decode_rows(matrix, 0, rows, data.cols, weight, scale, values);
    data.measure.insert(data.measure.end(), values.begin(), values.end());
    if (data.measure.size() >= 2 * training * kVectorDim) break;
  }
  data.name = fmt::format("layer {} w1", layer.layer);
  data.train = data.measure;
  return data;
}

// Calls work(block number) until enough time has passed, and returns calls a second.
double calls_per_second(std::size_t blocks, const std::function<void(std::size_t)>& work) {
  work(0);
  const double begin = now_seconds();
  std::size_t calls = 0;
  double elapsed = 0;
  while ((elapsed = now_seconds() - begin) < kSecondsPerFigure) work(++calls % blocks);
  return static_cast<double>(calls) / elapsed;
}

struct Figure {
  std::string data, recipe, path;
  double error = 0;
  double weights_per_second = 0;
  double peak_share = 0;  // 0 where there is nothing to compare with
};

class Report {
 public:
  explicit Report(bool json) : json_(json) {
    if (!json_)
      fmt::print("{:<12} {:<16} {:<7} {:>8} {:>12} {:>9}\n", "data", "recipe", "path", "error", "weights/s",
                 "FMA peak");
  }

  void add(const Figure& figure) const {
    if (json_) {
      Json line;
      line["data"] = figure.data;
      line["recipe"] = figure.recipe;
      line["path"] = figure.path;
      line["error"] = figure.error;
      line["weights_per_second"] = figure.weights_per_second;
      if (figure.peak_share > 0) line["fma_peak_share"] = figure.peak_share;
      fmt::print("{}\n", dump_json_line(line));
    } else {
      fmt::print("{:<12} {:<16} {:<7} {:>7.2f}% {:>12} {:>9}\n", figure.data, figure.recipe, figure.path,
                 100 * figure.error, format_count(figure.weights_per_second),
                 figure.peak_share > 0 ? fmt::format("{:.0f}%", 100 * figure.peak_share) : "-");
    }
    std::fflush(stdout);
  }

 private:
  bool json_;
};

std::string recipe_name(const ExpertRecipe& recipe) {
  return fmt::format("{} x {} {}", recipe.stages, recipe.entries, quality_name(recipe.quality));
}

// Every path runs the same code on the same books, with the same result; the error is measured on the
// fastest.
void bench_recipe(const Data& data, const ExpertRecipe& recipe, const std::vector<double>& peaks,
                  const Report& report) {
  const Codebooks books = train_codebooks(data.train, data.cols, recipe, kSeed);
  const MatrixEncoder encoder(books, recipe);
  EncodeScratch scratch;
  const std::size_t rows = data.measure.size() / data.cols;
  std::vector<std::uint8_t> indices(rows * data.cols / kVectorDim * recipe.stages);
  std::vector<std::uint16_t> scales(rows);
  ErrorSums sums;
  encoder.encode(data.measure, rows, data.cols, indices, scales, sums, scratch);

  const std::size_t block = std::min(kBlockRows, rows);
  const auto encode_block = [&](std::size_t b) {
    ErrorSums ignored;
    encoder.encode(std::span(data.measure).subspan(b * block * data.cols, block * data.cols), block,
                   data.cols, std::span(indices).first(indices.size() / rows * block),
                   std::span(scales).first(block), ignored, scratch);
  };
  const auto levels = simd_levels();
  for (std::size_t l = 0; l < levels.size(); l++) {
    force_simd(simd_name(levels[l]));
    const double rate = calls_per_second(rows / block, encode_block) * static_cast<double>(block * data.cols);
    const double passes = recipe.quality == Quality::Best ? 2 : 1;
    const double operations = rate * passes * recipe.stages * recipe.entries;
    report.add({data.name, recipe_name(recipe), std::string(simd_name(levels[l])), sums.relative(), rate,
                levels[l] == SimdLevel::Scalar ? 0 : operations / peaks[l]});
  }
}

void bench_trunk(const Data& data, GroupFormat format, const Report& report) {
  const std::size_t rows = data.measure.size() / data.cols;
  const std::size_t block = std::min(kBlockRows, rows);
  std::vector<std::uint8_t> codes(rows * row_code_bytes(format, data.cols));
  std::vector<std::uint16_t> scales(rows * row_groups(data.cols));
  ErrorSums sums;
  quantise_rows(format, data.measure, rows, data.cols, codes, scales, sums);
  for (const SimdLevel level : simd_levels()) {
    force_simd(simd_name(level));
    const double rate = calls_per_second(rows / block, [&](std::size_t b) {
      ErrorSums ignored;
      quantise_rows(format, std::span(data.measure).subspan(b * block * data.cols, block * data.cols), block,
                    data.cols, codes, scales, ignored);
    });
    report.add({data.name, format == GroupFormat::Q4G ? "trunk Q4G" : "trunk Q8G",
                std::string(simd_name(level)), sums.relative(), rate * static_cast<double>(block * data.cols),
                0});
  }
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, options.threads);
  std::size_t training = 0;
  for (const ExpertRecipe& recipe : options.recipes)
    training = std::max(training, training_vectors(recipe.quality));
  auto all = synthetic_data(training);
  if (!options.source.empty()) all.push_back(checkpoint_data(options.source, training));

  const std::string_view chosen = simd_name(simd_level());
  std::vector<double> peaks;
  for (const SimdLevel level : simd_levels()) {
    force_simd(simd_name(level));
    peaks.push_back(measure_fma_peak());
    if (!options.json && level != SimdLevel::Scalar) {
      fmt::print("{}: {}FMA/s a core\n", simd_name(level), format_count(peaks.back()));
    }
  }
  const Report report(options.json);
  for (const Data& data : all) {
    force_simd(chosen);
    const double reference = reference_error(data.train, data.cols, {3, 256, Quality::Fast}, kSeed);
    report.add({data.name, "3 x 256 in use", "-", reference, 0, 0});
    for (const ExpertRecipe& recipe : options.recipes) {
      force_simd(chosen);
      bench_recipe(data, recipe, peaks, report);
    }
    for (const GroupFormat format : {GroupFormat::Q4G, GroupFormat::Q8G}) {
      force_simd(chosen);
      bench_trunk(data, format, report);
    }
  }
  force_simd(chosen);
  return 0;
}

}  // namespace waste::convert
