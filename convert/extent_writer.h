// A large output file, written from front to back: digested extent by extent as the seal wants it, kept under
// its partial name until it is whole, and able to go on after an interruption.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/file.h"
#include "container/format/seal.h"

namespace waste::convert {

/// Not thread-safe.
class ExtentWriter {
 public:
  /// Opens `path`.partial and reserves `size` bytes, so that a full disk shows now. When `durable` bytes of
  /// an earlier run are claimed, they are read back and held against `digests` (those of the extents they
  /// fill); if they do not match, writing starts at zero: see position().
  ExtentWriter(const fs::path& path, std::uint64_t size, std::uint64_t extent_bytes,
               std::uint64_t durable = 0, std::span<const Digest128> digests = {});

  /// Where the next byte goes.
  std::uint64_t position() const { return position_; }
  void append(std::span<const std::uint8_t> data);
  /// Appends zeros up to `position`.
  void pad_to(std::uint64_t position);
  /// Makes what was appended durable.
  void checkpoint();
  /// Digests of the extents that are full so far.
  const std::vector<Digest128>& digests() const { return digests_; }
  /// Closes the last extent, makes everything durable and gives the file its name. All `size` bytes must be
  /// there.
  SealedFile finish();

 private:
  void write_back();
  void digest(std::span<const std::uint8_t> data);
  bool verify(std::uint64_t durable, std::span<const Digest128> digests);

  fs::path path_;
  std::uint64_t size_;
  std::uint64_t extent_bytes_;
  std::uint64_t position_ = 0;
  std::uint64_t dropped_ = 0;  // start of what may still lie in the page cache
  std::uint64_t started_ = 0;  // start of what is not on its way to the disk
  File file_;
  Xxh3Stream extent_;
  std::vector<Digest128> digests_;
};

/// Whether the file is there, has that size, and every extent its digest. Reads past or out of the page
/// cache.
bool matches(const fs::path& path, const SealedFile& sealed);

}  // namespace waste::convert
