// seal.waste: a digest of every extent of a container, so that one damaged byte anywhere is found and named.
// Readers of version 0 ignore the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/checksum.h"
#include "container/format/manifest.h"

namespace waste {

inline constexpr std::uint32_t kSealMagic = 0x4C455357;  // "WSEL"
inline constexpr std::uint32_t kSealVersion = 1;
/// Extent of trunk.bin and codebooks.bin; a bank's extent is one expert record, any other file is one extent.
inline constexpr std::uint64_t kSealExtent = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kMaxSealBytes = std::uint64_t{1} << 30;

/// One file under the seal, cut into extents of `extent_bytes` (the last may be shorter).
struct SealedFile {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t extent_bytes = 0;
  std::vector<Digest128> digests;

  std::uint64_t extent_offset(std::uint64_t i) const { return i * extent_bytes; }
  std::uint64_t extent_size(std::uint64_t i) const;
};

struct Seal {
  std::vector<SealedFile> files;  // ascending by name, bytewise

  const SealedFile* find(std::string_view name) const;
  /// Identifies the weights: the XXH3-128 of the names, sizes and digests of manifest, trunk, codebooks and
  /// banks. Sidecars (tokenizer, chat) do not enter.
  Digest128 weights_fingerprint() const;
};

/// Number of extents of a file: one for an empty file, so that its emptiness is sealed too.
std::uint64_t extent_count(std::uint64_t size, std::uint64_t extent_bytes);

/// The extent size that the format prescribes for a file of a container whose records have `record_bytes`.
/// 0 for a file that the seal does not cover (the seal itself, usage.waste, hidden and unfinished files).
std::uint64_t seal_extent_bytes(std::string_view name, std::uint64_t size, const Manifest& manifest);

/// The file's bytes. `files` may come in any order.
std::vector<std::uint8_t> write_seal(Seal seal);

/// Checks magic, version, every count against the file's size, the order of names, and the seal's digest of
/// itself. Error(Data) opened by `where`.
Seal parse_seal(std::span<const std::uint8_t> bytes, std::string_view where);

}  // namespace waste
