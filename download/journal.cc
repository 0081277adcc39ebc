#include "download/journal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "container/core/bytes.h"
#include "container/core/checked.h"
#include "container/core/checksum.h"

namespace waste::download {

namespace {

constexpr std::string_view kMagic = "WDJRNL01";
constexpr std::size_t kHeaderBytes = 60;
constexpr std::size_t kRecordBytes = 16;
constexpr std::uint32_t kSmallestBlock = 256 << 10;
constexpr std::uint32_t kLargestBlock = 4 << 20;

using Header = std::array<std::uint8_t, kHeaderBytes>;

Header encode_header(std::uint64_t size, std::uint32_t block_size, const ContentId& id) {
  Header header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  store_u64(header.data() + 8, size);
  store_u32(header.data() + 16, block_size);
  store_u32(header.data() + 20, id.kind == ContentId::Kind::Sha256 ? 0 : 1);
  const auto nibble = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (std::size_t i = 0; i + 1 < id.hex.size() && i < 64; i += 2) {
    header[24 + i / 2] = static_cast<std::uint8_t>(nibble(id.hex[i]) << 4 | nibble(id.hex[i + 1]));
  }
  store_u32(header.data() + 56, crc32({header.data(), 56}));
  return header;
}

}  // namespace

std::uint32_t block_size_for(std::uint64_t size) {
  return static_cast<std::uint32_t>(
      std::bit_floor(std::clamp<std::uint64_t>(size / 64, kSmallestBlock, kLargestBlock)));
}

Journal::Journal(File file, std::uint64_t size)
    : file_(std::move(file)), size_(size), block_size_(block_size_for(size)) {
  blocks_.resize(ceil_div(size_, block_size_));
}

Journal::Journal(const fs::path& path, std::uint64_t size, const ContentId& id)
    : Journal(File::open_write(path), size) {
  if (read_header(id)) {
    read_records();
    // Old records behind a damaged one must not come back to life once it has been overwritten.
    file_.truncate(end_);
  } else {
    write_header(id);
  }
}

std::uint64_t Journal::recorded_bytes(const fs::path& path, std::uint64_t size, const ContentId& id) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return 0;
  Journal journal(File::open_read(path), size);
  if (!journal.read_header(id)) return 0;
  journal.read_records();
  std::uint64_t bytes = 0;
  for (const Block& block : journal.blocks_) bytes += block.bytes;
  return bytes;
}

std::uint32_t Journal::block_length(std::uint32_t index) const {
  const std::uint64_t begin = std::uint64_t{index} * block_size_;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(block_size_, size_ - begin));
}

bool Journal::read_header(const ContentId& id) {
  Header found{};
  return file_.read_some(0, found) == found.size() && found == encode_header(size_, block_size_, id);
}

void Journal::write_header(const ContentId& id) {
  file_.truncate(0);
  file_.write_exact(0, encode_header(size_, block_size_, id));
  end_ = kHeaderBytes;
}

void Journal::read_records() {
  std::vector<std::uint8_t> chunk(4096 * kRecordBytes);
  end_ = kHeaderBytes;
  while (true) {
    const std::size_t got = file_.read_some(end_, chunk);
    for (std::size_t at = 0; at + kRecordBytes <= got; at += kRecordBytes) {
      const std::uint8_t* record = chunk.data() + at;
      const std::uint32_t index = load_u32(record);
      const Block block{load_u32(record + 4), load_u32(record + 8)};
      const bool whole = load_u32(record + 12) == crc32({record, 12});
      if (!whole || index >= blocks_.size() || block.bytes > block_length(index)) return;
      blocks_[index] = block;
      end_ += kRecordBytes;
    }
    if (got < chunk.size()) return;
  }
}

void Journal::append(std::uint32_t index, const Block& block) {
  std::array<std::uint8_t, kRecordBytes> record{};
  store_u32(record.data(), index);
  store_u32(record.data() + 4, block.bytes);
  store_u32(record.data() + 8, block.crc);
  store_u32(record.data() + 12, crc32({record.data(), 12}));
  file_.write_exact(end_, record);
  end_ += kRecordBytes;
}

void Journal::reset() {
  file_.truncate(kHeaderBytes);
  end_ = kHeaderBytes;
  std::fill(blocks_.begin(), blocks_.end(), Block{});
}

}  // namespace waste::download
