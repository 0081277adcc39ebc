#include "convert/extent_writer.h"

#include <algorithm>

namespace waste::convert {

namespace {

constexpr std::size_t kReadBlock = 4 << 20;
// What is appended starts for the disk in runs of at least this much.
constexpr std::uint64_t kWriteRun = 4 << 20;

// Calls take(bytes) for [0, size) of the file in blocks.
template <typename Take>
void read_through(const File& file, std::uint64_t size, const Take& take) {
  std::vector<std::uint8_t> block(std::min<std::uint64_t>(size, kReadBlock));
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    const std::span part = std::span(block).first(std::min<std::uint64_t>(block.size(), size - at));
    file.read_exact(at, part);
    take(part);
    file.drop_cache(at, part.size());
  }
}

}  // namespace

ExtentWriter::ExtentWriter(const fs::path& path, std::uint64_t size, std::uint64_t extent_bytes,
                           std::uint64_t durable, std::span<const Digest128> digests)
    : path_(path), size_(size), extent_bytes_(extent_bytes), file_(File::open_write(partial_path(path))) {
  if (file_.size() > size) file_.truncate(size);
  if (durable != 0 && !verify(durable, digests)) {
    position_ = 0;
    digests_.clear();
    extent_.reset();
  }
  dropped_ = started_ = position_;
  if (size != 0) file_.reserve(size);
}

bool ExtentWriter::verify(std::uint64_t durable, std::span<const Digest128> digests) {
  if (durable > size_ || durable > file_.size()) return false;
  read_through(file_, durable, [&](std::span<const std::uint8_t> part) {
    digest(part);
    position_ += part.size();
  });
  return std::equal(digests_.begin(), digests_.end(), digests.begin(), digests.end());
}

void ExtentWriter::digest(std::span<const std::uint8_t> data) {
  std::uint64_t filled = position_ % extent_bytes_;
  while (!data.empty()) {
    const std::uint64_t n = std::min<std::uint64_t>(data.size(), extent_bytes_ - filled);
    extent_.update(data.first(n));
    data = data.subspan(n);
    filled += n;
    if (filled == extent_bytes_) {
      digests_.push_back(extent_.digest());
      extent_.reset();
      filled = 0;
    }
  }
}

void ExtentWriter::append(std::span<const std::uint8_t> data) {
  file_.write_exact(position_, data);
  digest(data);
  position_ += data.size();
  if (position_ - started_ >= kWriteRun) write_back();
}

// Keeps the disk at work while the next bytes are made. Left to the kernel, gigabytes pile up: the sync at
// the end then takes as long as everything before it on a disk that just keeps up, and every page written is
// one that was never touched before.
void ExtentWriter::write_back() {
  file_.start_writeback(started_, position_ - started_);
  file_.await_writeback(dropped_, started_ - dropped_);
  file_.drop_cache(dropped_, started_ - dropped_);
  dropped_ = started_;
  started_ = position_;
}

void ExtentWriter::pad_to(std::uint64_t position) {
  const std::vector<std::uint8_t> zeros(position - position_, 0);
  append(zeros);
}

void ExtentWriter::checkpoint() {
  file_.sync();
  file_.drop_cache(dropped_, position_ - dropped_);
  dropped_ = started_ = position_;
}

SealedFile ExtentWriter::finish() {
  if (position_ != size_) {
    fail(ErrorKind::Machine, "{}: {} bytes were written, {} were planned", path_.string(), position_, size_);
  }
  if (size_ == 0 || size_ % extent_bytes_ != 0) digests_.push_back(extent_.digest());
  checkpoint();
  file_.close();
  publish(path_);
  return {path_.filename().string(), size_, extent_bytes_, std::move(digests_)};
}

bool matches(const fs::path& path, const SealedFile& sealed) {
  if (!fs::is_regular_file(path)) return false;
  const File file = File::open_read(path);
  if (file.size() != sealed.size) return false;
  std::vector<std::uint8_t> extent;
  for (std::size_t i = 0; i < sealed.digests.size(); ++i) {
    const std::uint64_t offset = sealed.extent_offset(i);
    extent.resize(sealed.extent_size(i));
    file.read_exact(offset, extent);
    if (xxh3_128(extent) != sealed.digests[i]) return false;
    file.drop_cache(offset, extent.size());
  }
  return true;
}

}  // namespace waste::convert
