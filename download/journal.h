// Which blocks of a file that is still arriving are on the disk, and what they hash to. The journal is what
// makes a download resumable after a kill, and what finds the bad block of a file whose digest is wrong.
//
//   journal := header record*                    little-endian, appended to and never rewritten
//   header  := magic "WDJRNL01"                  8 bytes
//              size u64                          of the whole file
//              block_size u32
//              kind u32                          0 SHA-256, 1 git SHA-1
//              digest 32 bytes                   of the whole file; zero-padded
//              crc32 u32                         of the 56 bytes before it
//   record  := block u32                         its number
//              bytes u32                         how many of its bytes are there, from its start; 0 takes it
//              back data_crc32 u32                    of those bytes crc32 u32                         of the
//              12 bytes before it
//
// A later record for a block replaces an earlier one. Reading stops at the first record that is torn or
// wrong, and the next append overwrites it. Records are written without waiting for the disk: a killed
// process loses none, and after a power failure `data_crc32` tells which blocks did not make it. What this
// costs: a file's blocks must be read once more after a restart, which its digest needs anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "container/core/file.h"
#include "download/content_id.h"

namespace waste::download {

struct Block {
  std::uint32_t bytes = 0;  // present from its start
  std::uint32_t crc = 0;    // crc32 of them
};

/// The block size for a file: a sixty-fourth of it, rounded down to a power of two, from 256 KiB to 4 MiB.
/// Small blocks bound what a kill can cost on a fast line with many connections; large ones keep the records
/// of a large file few.
std::uint32_t block_size_for(std::uint64_t size);

class Journal {
 public:
  /// Bytes that the journal at `path` records for this content, without touching it; 0 when there is none.
  static std::uint64_t recorded_bytes(const fs::path& path, std::uint64_t size, const ContentId& id);

  /// Opens the journal at `path`. One that belongs to other content, or whose header is damaged, is started
  /// anew and says that nothing is there. Error(Machine) when the disk refuses.
  Journal(const fs::path& path, std::uint64_t size, const ContentId& id);

  std::uint32_t block_size() const { return block_size_; }
  /// The state that the journal held when it was opened; index = block number.
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Length of block `index` in bytes.
  std::uint32_t block_length(std::uint32_t index) const;

  void append(std::uint32_t index, const Block& block);
  /// Forgets everything: all blocks are missing.
  void reset();
  void sync() const { file_.sync(); }

 private:
  Journal(File file, std::uint64_t size);
  bool read_header(const ContentId& id);
  void read_records();
  void write_header(const ContentId& id);

  File file_;
  std::uint64_t size_ = 0;
  std::uint32_t block_size_ = 0;
  std::uint64_t end_ = 0;  // where the next record goes
  std::vector<Block> blocks_;
};

}  // namespace waste::download
