#include "download/partial_file.h"

#include <algorithm>

#include "container/core/checksum.h"

namespace waste::download {

PartialFile::PartialFile(const fs::path& data_path, const fs::path& journal_path, std::uint64_t size,
                         const ContentId& id)
    : file_(File::open_write(data_path)),
      journal_(journal_path, size, id),
      size_(size),
      blocks_(journal_.blocks()) {
  const std::uint64_t length = file_.size();
  // Journalled bytes behind the end of a file that lost its tail would read as zeros once it is extended.
  if (length < size_) {
    for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].bytes == 0 || std::uint64_t{i} * block_size() + blocks_[i].bytes <= length) continue;
      blocks_[i] = {};
      journal_.append(i, {});
    }
  }
  if (size_ != 0) file_.reserve(size_);
  if (length > size_) file_.truncate(size_);
  for (const Block& block : blocks_) {
    present_ += block.bytes;
    recorded_.push_back(block.bytes);
  }
  journalled_ = present_;
  claimed_.resize(blocks_.size());
}

std::optional<Run> PartialFile::claim(std::uint64_t most) {
  while (first_missing_ < blocks_.size() && (claimed_[first_missing_] || is_complete(first_missing_)))
    ++first_missing_;
  if (first_missing_ == blocks_.size()) return std::nullopt;
  std::uint32_t i = first_missing_;
  Run run;
  run.begin = run.end = std::uint64_t{i} * block_size() + blocks_[i].bytes;
  do {
    claimed_[i] = true;
    run.end = std::uint64_t{i} * block_size() + block_length(i);
    ++i;
  } while (i < blocks_.size() && !claimed_[i] && blocks_[i].bytes == 0 && run.end - run.begin < most);
  return run;
}

void PartialFile::release_claims() {
  std::fill(claimed_.begin(), claimed_.end(), false);
  first_missing_ = 0;
}

std::uint64_t PartialFile::first_missing_byte() const {
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    if (!is_complete(i)) return std::uint64_t{i} * block_size() + blocks_[i].bytes;
  }
  return size_;
}

void PartialFile::write(std::uint64_t offset, std::span<const std::uint8_t> data) {
  if (offset >= size_) return;
  data = data.first(static_cast<std::size_t>(std::min<std::uint64_t>(data.size(), size_ - offset)));
  while (!data.empty()) {
    const auto index = static_cast<std::uint32_t>(offset / block_size());
    const auto inside = static_cast<std::uint32_t>(offset % block_size());
    const std::size_t here = std::min<std::size_t>(data.size(), block_length(index) - inside);
    Block& block = blocks_[index];
    if (inside <= block.bytes && inside + here > block.bytes) {
      const auto fresh = data.first(here).subspan(block.bytes - inside);
      file_.write_exact(offset + (block.bytes - inside), fresh);
      block.crc = crc32(fresh, block.bytes == 0 ? 0 : block.crc);
      block.bytes += static_cast<std::uint32_t>(fresh.size());
      present_ += fresh.size();
      if (is_complete(index)) {
        claimed_[index] = false;
        journal_block(index);
      }
    }
    offset += here;
    data = data.subspan(here);
  }
}

void PartialFile::journal_block(std::uint32_t index) {
  if (recorded_[index] == blocks_[index].bytes) return;
  journal_.append(index, blocks_[index]);
  journalled_ += blocks_[index].bytes;
  journalled_ -= recorded_[index];
  recorded_[index] = blocks_[index].bytes;
}

void PartialFile::save() {
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) journal_block(i);
}

void PartialFile::discard(std::uint32_t index) {
  present_ -= blocks_[index].bytes;
  blocks_[index] = {};
  claimed_[index] = false;
  first_missing_ = 0;
  journal_block(index);
}

void PartialFile::discard_all() {
  for (Block& block : blocks_) block = {};
  std::fill(recorded_.begin(), recorded_.end(), 0);
  present_ = journalled_ = 0;
  release_claims();
  journal_.reset();
}

}  // namespace waste::download
