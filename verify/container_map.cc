#include "verify/container_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "container/format/codebooks.h"

namespace waste::verify {

namespace {

std::optional<std::uint32_t> layer_of_bank_name(std::string_view name) {
  constexpr std::string_view kPrefix = "experts-L";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint32_t layer = 0;
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  if (error != std::errc() || bank_file_name(layer) != name) return std::nullopt;
  return layer;
}

void set_role(MapFile& file, const std::optional<Manifest>& manifest) {
  if (file.name == kManifestFile) file.role = FileRole::Manifest;
  if (file.name == kTrunkFile) file.role = FileRole::Trunk;
  if (file.name == kCodebooksFile) file.role = FileRole::Codebooks;
  if (manifest) {
    for (const auto& [layer, bank] : manifest->banks) {
      if (bank.file != file.name) continue;
      file.role = FileRole::Bank;
      file.layer = layer;
    }
  } else if (const auto layer = layer_of_bank_name(file.name)) {
    file.role = FileRole::Bank;
    file.layer = *layer;
  }
}

// Regular files of the folder, by name; hidden ones and subfolders are nobody's business here.
std::vector<std::string> visible_files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name[0] != '.') names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void read_manifest(ContainerMap& map) {
  const fs::path path = map.directory / kManifestFile;
  try {
    map.manifest = parse_manifest(read_text_file(path, kMaxManifestBytes), path.string());
  } catch (const Error& e) {
    map.manifest_problem = e.what();
  }
}

void read_seal(ContainerMap& map) {
  const fs::path path = map.directory / kSealFile;
  if (!fs::exists(path)) return;
  try {
    map.seal = parse_seal(read_file(path, kMaxSealBytes), path.string());
  } catch (const Error& e) {
    map.seal_problem = e.what();
  }
}

// A seal that cuts banks anywhere but between records cannot say which expert is damaged.
void refuse_foreign_cuts(ContainerMap& map) {
  for (const auto& [layer, bank] : map.manifest->banks) {
    const SealedFile* sealed = map.seal->find(bank.file);
    if (sealed == nullptr || sealed->extent_bytes == map.manifest->layout.record_bytes) continue;
    map.seal_problem = fmt::format(
        "{}: {} is sealed in extents of {} bytes, but its records have {}: the seal is another container's",
        (map.directory / kSealFile).string(), bank.file, sealed->extent_bytes,
        map.manifest->layout.record_bytes);
    map.seal.reset();
    return;
  }
}

void add_sealed_files(ContainerMap& map) {
  for (const SealedFile& sealed : map.seal->files) {
    MapFile file{
        .name = sealed.name, .size = sealed.size, .extent_bytes = sealed.extent_bytes, .sealed = &sealed};
    set_role(file, map.manifest);
    map.files.push_back(std::move(file));
  }
}

// Files that the manifest or the folder has and the seal (if any) does not.
void add_unsealed_files(ContainerMap& map) {
  const auto add = [&](const std::string& name, std::optional<std::uint64_t> size) {
    if (map.file_index(name)) return;
    std::error_code missing;
    const std::uint64_t found = fs::file_size(map.directory / name, missing);
    MapFile file{.name = name, .size = size};
    file.extent_bytes = seal_extent_bytes(name, missing ? size.value_or(0) : found, *map.manifest);
    set_role(file, map.manifest);
    map.files.push_back(std::move(file));
    if (map.seal) map.unsealed.push_back(name);
  };
  add(std::string(kManifestFile), std::nullopt);
  add(std::string(kTrunkFile), std::nullopt);
  add(std::string(kCodebooksFile), std::nullopt);
  for (const auto& [layer, bank] : map.manifest->banks) add(bank.file, bank.bytes);
  for (const std::string& name : visible_files(map.directory)) {
    if (seal_extent_bytes(name, 0, *map.manifest) != 0) add(name, std::nullopt);
  }
}

void cut_into_extents(ContainerMap& map) {
  for (std::uint32_t i = 0; i < map.files.size(); ++i) {
    const MapFile& file = map.files[i];
    std::error_code missing;
    const std::uint64_t found = fs::file_size(map.directory / file.name, missing);
    const std::uint64_t size = file.size.value_or(missing ? 0 : found);
    const std::uint64_t count = extent_count(size, file.extent_bytes);
    for (std::uint64_t e = 0; e < count; ++e) {
      const std::uint64_t offset = e * file.extent_bytes;
      map.extents.push_back({i, e, offset, std::min(file.extent_bytes, size - offset)});
    }
  }
}

std::string tensors_at(const Manifest& manifest, std::uint64_t begin, std::uint64_t end) {
  std::vector<const TrunkTensor*> hit;
  for (const TrunkTensor& t : manifest.trunk) {
    if (t.offset < end && t.offset + t.bytes > begin) hit.push_back(&t);
  }
  if (hit.empty()) return "no tensor";
  std::string names = printable(hit[0]->name);
  if (hit.size() > 1) names += fmt::format(" and {} more", hit.size() - 1);
  return names;
}

std::string layers_of_books(const Manifest& manifest, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t book = codebook_bytes(manifest.quant);
  std::vector<std::uint32_t> layers;
  for (const auto& [layer, bank] : manifest.banks) {
    const std::uint64_t first = bank.codebook_base * book;
    if (first < end && first + manifest.quant.books_per_layer() * book > begin) layers.push_back(layer);
  }
  if (layers.empty()) return "no layer";
  const auto [low, high] = std::minmax_element(layers.begin(), layers.end());
  return *low == *high ? fmt::format("layer {}", *low) : fmt::format("layers {} to {}", *low, *high);
}

ContainerMap open_map(const fs::path& directory) {
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  ContainerMap map;
  map.directory = directory;
  read_manifest(map);
  return map;
}

ContainerMap finish_map(ContainerMap map) {
  if (!map.manifest && !map.seal) {
    if (map.seal_problem.empty()) fail_data("{}", map.manifest_problem);
    fail_data("{}; and {}", map.manifest_problem, map.seal_problem);
  }
  if (map.seal && map.manifest) refuse_foreign_cuts(map);
  if (map.seal) add_sealed_files(map);
  if (map.manifest) add_unsealed_files(map);
  cut_into_extents(map);
  return map;
}

}  // namespace

ContainerMap ContainerMap::read(const fs::path& directory) {
  ContainerMap map = open_map(directory);
  read_seal(map);
  return finish_map(std::move(map));
}

ContainerMap ContainerMap::read(const fs::path& directory, Seal seal) {
  ContainerMap map = open_map(directory);
  map.seal = std::move(seal);
  return finish_map(std::move(map));
}

std::optional<std::uint32_t> ContainerMap::file_index(std::string_view name) const {
  for (std::uint32_t i = 0; i < files.size(); ++i) {
    if (files[i].name == name) return i;
  }
  return std::nullopt;
}

std::size_t ContainerMap::first_extent(std::uint32_t file) const {
  const auto at = std::lower_bound(extents.begin(), extents.end(), file,
                                   [](const Extent& e, std::uint32_t f) { return e.file < f; });
  return static_cast<std::size_t>(at - extents.begin());
}

const Digest128* ContainerMap::digest(const Extent& extent) const {
  const SealedFile* sealed = files[extent.file].sealed;
  return sealed == nullptr ? nullptr : &sealed->digests[extent.index];
}

std::string ContainerMap::place(const Extent& extent) const {
  const MapFile& file = files[extent.file];
  const std::uint64_t end = extent.offset + extent.length;
  switch (file.role) {
    case FileRole::Bank:
      return fmt::format("{}: expert {} of layer {}", file.name, extent.index, file.layer);
    case FileRole::Trunk:
      if (!manifest) break;
      return fmt::format("{}: bytes {} to {}: {}", file.name, extent.offset, end,
                         tensors_at(*manifest, extent.offset, end));
    case FileRole::Codebooks:
      if (!manifest) break;
      return fmt::format("{}: bytes {} to {}: books of {}", file.name, extent.offset, end,
                         layers_of_books(*manifest, extent.offset, end));
    default:
      return file.name;
  }
  return fmt::format("{}: bytes {} to {}", file.name, extent.offset, end);
}

std::string ContainerMap::meaning(const Extent& extent) const {
  const MapFile& file = files[extent.file];
  switch (file.role) {
    case FileRole::Manifest:
      return "nothing can be read without it";
    case FileRole::Trunk:
      return "every token's result depends on it";
    case FileRole::Codebooks:
      return "all experts of these layers decode wrongly";
    case FileRole::Bank:
      return "tokens that need this expert cannot be computed";
    case FileRole::Sidecar:
      break;
  }
  if (file.name == kTokenizerFile) return "text becomes other tokens";
  if (file.name == kSpecialsFile) return "control tokens may be lost or misread";
  if (file.name == kChatFile) return "conversations may be marked up wrongly";
  if (file.name == kVisionFile) return "images may be read wrongly";
  return "the model's results do not depend on it";
}

}  // namespace waste::verify
