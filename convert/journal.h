// What is durable: a hidden folder in the output with one small file for the run and one for each unit of
// work (the trunk, each layer), every one replaced atomically, so that a kill at any instant leaves the old
// state or the new.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "convert/checkpoint.h"
#include "convert/encoder/recipe.h"

namespace waste::convert {

/// How far a unit has come. Items are tensors of the trunk or experts of a layer, in the order they are
/// written.
struct UnitState {
  bool complete = false;           // the file has its final name
  std::uint64_t items = 0;         // that are durable
  std::uint64_t bytes = 0;         // of the file that are durable
  std::vector<Digest128> digests;  // of its extents: full ones only until it is complete
  std::optional<Digest128> books;  // of the layer's codebooks
  std::vector<ErrorSums> errors;   // one a tensor, or three an expert (by MatrixKind)
};

class Journal {
 public:
  /// Locks `out` against a second converter and opens or starts its journal. `run` is what decides the
  /// output's bytes (source and recipe). If an earlier run in this folder was about something else,
  /// Error(Usage) names every difference.
  Journal(const fs::path& out, const Json& run);

  /// The unit's state; nothing durable when it has none or a file of it that cannot be read.
  UnitState trunk() const { return load("trunk"); }
  UnitState layer(std::uint32_t layer) const { return load(unit_name(layer)); }
  void save_trunk(const UnitState& state) const { save("trunk", state); }
  void save_layer(std::uint32_t layer, const UnitState& state) const { save(unit_name(layer), state); }

  /// A layer's codebooks as they will stand in codebooks.bin.
  void save_books(std::uint32_t layer, std::span<const std::uint8_t> books) const;
  /// nullopt unless the file is there and has this digest.
  std::optional<std::vector<std::uint8_t>> load_books(std::uint32_t layer, const Digest128& digest) const;

  /// Records that a shard is about to be deleted, with its header, so that a later run can do without it.
  void record_reclaimed(const std::string& shard, std::span<const std::uint8_t> header) const;

  /// Removes the journal after publication, except for what deleted shards need.
  void remove() const;

  static fs::path folder(const fs::path& out) { return out / ".waste-convert"; }
  /// The shards that earlier runs into `out` have deleted.
  static Reclaimed reclaimed(const fs::path& out);

 private:
  static std::string unit_name(std::uint32_t layer) { return "layer-" + std::to_string(layer); }
  UnitState load(const std::string& unit) const;
  void save(const std::string& unit, const UnitState& state) const;

  fs::path folder_;
  std::unique_ptr<DirectoryLock> lock_;
};

/// Throws Error(Usage) naming every key of `run` whose value differs from `earlier`'s; `what` opens the
/// message.
void refuse_other_run(const Json& earlier, const Json& run, std::string_view what);

}  // namespace waste::convert
