// A container opened for reading: everything is checked against the files before anything is used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "container/core/file.h"
#include "container/format/codebooks.h"
#include "container/format/manifest.h"
#include "container/format/seal.h"

namespace waste {

/// Thread-safe after construction. Errors are Error(Data) naming the file.
class Container {
 public:
  /// Reads manifest and codebooks, opens trunk and banks, and compares every size with the manifest's. A
  /// seal, if there is one, is parsed but its digests are not verified.
  static Container open(const fs::path& directory);

  const fs::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const ModelConfig& model() const { return manifest_.model; }
  const ExpertLayout& layout() const { return manifest_.layout; }
  const Codebooks& codebooks() const { return codebooks_; }
  const std::optional<Seal>& seal() const { return seal_; }

  const File& trunk_file() const { return trunk_; }
  const File& bank_file(std::uint32_t layer) const { return banks_.at(layer); }
  const Bank& bank(std::uint32_t layer) const { return manifest_.banks.at(layer); }
  fs::path bank_path(std::uint32_t layer) const { return directory_ / bank(layer).file; }

  RecordId record_id(std::uint32_t layer, std::uint32_t expert) const {
    return {layer, expert, bank(layer).codebook_base};
  }
  /// "experts-L3.bin: expert 7 at offset 86847488", for messages.
  std::string record_name(std::uint32_t layer, std::uint32_t expert) const;

  /// Reads one record (record_bytes) and checks its header and crc32.
  void read_expert(std::uint32_t layer, std::uint32_t expert, std::span<std::uint8_t> record) const;
  /// Decodes one matrix of a record that has been checked; `out` is [rows][cols] of that kind.
  void decode_matrix(std::uint32_t layer, std::span<const std::uint8_t> record, MatrixKind kind,
                     std::span<float> out) const;

  /// Reads and decodes rows [first, first + count) of a trunk tensor; `out` is [count][cols].
  void read_trunk_rows(const TrunkTensor& tensor, std::uint64_t first, std::uint64_t count,
                       std::span<float> out) const;

 private:
  fs::path directory_;
  Manifest manifest_;
  Codebooks codebooks_;
  File trunk_;
  std::map<std::uint32_t, File> banks_;
  std::optional<Seal> seal_;
};

}  // namespace waste
