// A file that is still arriving: its bytes under the name "x.partial", and its journal. It knows which bytes
// are there, hands out what is missing, and takes bytes in whatever order connections bring them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "container/core/file.h"
#include "download/content_id.h"
#include "download/journal.h"

namespace waste::download {

/// Bytes [begin, end) of a file.
struct Run {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Used by one thread, except that file() may be read, and file() and journal() synced, from others
/// meanwhile.
class PartialFile {
 public:
  /// Opens or creates `data_path` and its journal and reserves the whole size on disk. Bytes that no journal
  /// vouches for count as missing, however long the file is.
  PartialFile(const fs::path& data_path, const fs::path& journal_path, std::uint64_t size,
              const ContentId& id);

  const File& file() const { return file_; }
  const Journal& journal() const { return journal_; }
  std::uint64_t size() const { return size_; }
  std::uint32_t block_size() const { return journal_.block_size(); }
  std::uint32_t block_count() const { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t block_length(std::uint32_t index) const { return journal_.block_length(index); }
  const Block& block(std::uint32_t index) const { return blocks_[index]; }
  bool is_complete(std::uint32_t index) const { return blocks_[index].bytes == block_length(index); }
  /// All bytes received, and those of them that the journal records.
  std::uint64_t present() const { return present_; }
  std::uint64_t journalled() const { return journalled_; }
  bool is_complete() const { return present_ == size_; }

  /// The first missing run that nobody else has claimed, at most `most` bytes (rounded up to the end of a
  /// block). The claim lasts until release() or until the bytes are there.
  std::optional<Run> claim(std::uint64_t most);
  void release_claims();
  /// Where the first missing byte is, claimed or not; size() when none is missing.
  std::uint64_t first_missing_byte() const;

  /// Takes bytes that begin at `offset`: those already there are skipped, those that continue a block are
  /// written, and those that would leave a hole in a block are dropped. Completed blocks are journalled at
  /// once.
  void write(std::uint64_t offset, std::span<const std::uint8_t> data);
  /// Journals the blocks that are there in part, so that a stop on request loses nothing.
  void save();
  /// The block's bytes are wrong: they are missing again.
  void discard(std::uint32_t index);
  /// All bytes are wrong.
  void discard_all();

 private:
  void journal_block(std::uint32_t index);

  File file_;
  Journal journal_;
  std::uint64_t size_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> recorded_;  // bytes of each block that the journal knows of
  std::vector<bool> claimed_;
  std::uint64_t present_ = 0;
  std::uint64_t journalled_ = 0;
  std::uint32_t first_missing_ = 0;  // no block before it is missing or unclaimed; a hint for claim()
};

}  // namespace waste::download
