#include "convert/publish.h"

#include <nlohmann/json.hpp>

#include "container/format/codebooks.h"
#include "container/format/seal.h"
#include "convert/extent_writer.h"
#include "convert/layer_stage.h"
#include "convert/trunk_stage.h"

namespace waste::convert {

namespace {

Manifest build_manifest(const Plan& plan, const Json& run) {
  Manifest m;
  m.model = plan.model;
  m.config = plan.config;
  m.quant = plan.recipe.experts;
  m.layout = plan.layout;
  for (const LayerItem& item : plan.layers) m.banks.emplace(item.source->layer, item.bank);
  for (const TrunkItem& item : plan.trunk) m.trunk.push_back(item.place);
  m.extra["conversion"] = run;
  return m;
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

SealedFile write_small(const fs::path& out, const std::string& name, std::string_view content) {
  write_file_atomic(out / name, content);
  return {name, content.size(), std::max<std::uint64_t>(content.size(), 1), {xxh3_128(bytes_of(content))}};
}

SealedFile write_codebooks(const Plan& plan, const Converted& converted, const fs::path& out,
                           const Journal& journal) {
  ExtentWriter writer(out / kCodebooksFile, plan.codebook_bytes, kSealExtent);
  for (const LayerItem& item : plan.layers) {
    const std::uint32_t layer = item.source->layer;
    const auto books = journal.load_books(layer, converted.layers.at(layer).books.value());
    if (!books)
      fail_data("layer {}: its codebooks in the journal are damaged; run again to convert it anew", layer);
    writer.append(*books);
  }
  return writer.finish();
}

}  // namespace

QualityReport quality_of(const Converted& converted) {
  QualityReport report;
  report.trunk = converted.trunk.errors;
  for (const auto& [layer, state] : converted.layers) report.layers.emplace(layer, state.errors);
  return report;
}

void publish_container(const Plan& plan, const Converted& converted, const Sidecars& sidecars,
                       const Json& run, const fs::path& out, const Journal& journal) {
  Seal seal;
  seal.files.push_back(sealed_trunk(plan, converted.trunk));
  for (const LayerItem& item : plan.layers) {
    seal.files.push_back(sealed_bank(plan, item, converted.layers.at(item.source->layer)));
  }
  seal.files.push_back(write_codebooks(plan, converted, out, journal));
  for (const Sidecar& file : sidecars.files) seal.files.push_back(write_small(out, file.name, file.content));

  Json quality = run;
  quality.update(quality_of(converted).json(plan));
  seal.files.push_back(write_small(out, std::string(kQualityFile), dump_json(quality)));

  const std::string manifest = write_manifest(build_manifest(plan, run));
  seal.files.push_back(
      {std::string(kManifestFile), manifest.size(), manifest.size(), {xxh3_128(bytes_of(manifest))}});
  write_file_atomic(out / kSealFile, write_seal(std::move(seal)));
  write_file_atomic(out / kManifestFile, std::string_view(manifest));
  journal.remove();
}

}  // namespace waste::convert
