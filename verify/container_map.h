// What a container consists of, extent by extent, as its seal and its manifest say: the list that check,
// seal, copy, repair and diff walk along, and the words for each place in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/file.h"
#include "container/format/manifest.h"
#include "container/format/seal.h"

namespace waste::verify {

enum class FileRole { Manifest, Trunk, Codebooks, Bank, Sidecar };

struct MapFile {
  std::string name;
  FileRole role = FileRole::Sidecar;
  std::uint32_t layer = 0;            // of a bank
  std::optional<std::uint64_t> size;  // that it must have; nullopt when neither seal nor manifest says
  std::uint64_t extent_bytes = 0;
  const SealedFile* sealed = nullptr;  // into the map's seal
};

/// One unit of damage and of repair: an expert record, 4 MiB of trunk or codebooks, or a small file.
struct Extent {
  std::uint32_t file = 0;   // index into ContainerMap::files
  std::uint64_t index = 0;  // within the file; in a bank the expert's id
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// Not copyable: files point into the seal.
struct ContainerMap {
  fs::path directory;
  std::optional<Manifest> manifest;
  std::string manifest_problem;  // why there is no manifest
  std::optional<Seal> seal;
  std::string seal_problem;  // why a seal that is there is of no use
  std::vector<MapFile> files;
  std::vector<Extent> extents;        // by file, ascending
  std::vector<std::string> unsealed;  // files in the folder that the seal does not cover but could

  ContainerMap() = default;
  ContainerMap(ContainerMap&&) = default;
  ContainerMap& operator=(ContainerMap&&) = default;

  /// Reads manifest and seal. A folder without either is Error(Data); one of them damaged is recorded, and
  /// the other one says what there is.
  static ContainerMap read(const fs::path& directory);
  /// The same under a seal from elsewhere, whatever lies in the folder.
  static ContainerMap read(const fs::path& directory, Seal seal);

  /// "experts-L3.bin: expert 7 of layer 3" or "trunk.bin: offset 8388608: model.norm.weight and 3 more".
  std::string place(const Extent& extent) const;
  /// What a reader of the container loses with it.
  std::string meaning(const Extent& extent) const;
  const Digest128* digest(const Extent& extent) const;
  std::optional<std::uint32_t> file_index(std::string_view name) const;
  /// Index of the file's first extent; those of the next file follow its last.
  std::size_t first_extent(std::uint32_t file) const;
};

}  // namespace waste::verify
