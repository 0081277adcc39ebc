// Reads past the page cache wherever the file system allows it, at any offset and length: the aligned blocks
// around what was asked for are read, and a view of the asked part is handed back.
#pragma once

#include <cstdint>
#include <span>

#include "container/core/file.h"
#include "container/core/memory.h"

namespace waste::verify {

/// Alignment of offsets, lengths and buffers that every O_DIRECT file system accepts.
inline constexpr std::uint64_t kDirectBlock = 4096;

/// Thread-safe: the calls keep no state.
class DirectFile {
 public:
  /// Falls back to ordinary reads, whose pages are dropped from the cache after use, where O_DIRECT is
  /// refused.
  static DirectFile open(const fs::path& path);

  /// The buffer size that a read of `length` bytes at any offset needs.
  static std::uint64_t room(std::uint64_t length) { return length + 2 * kDirectBlock; }

  bool direct() const { return direct_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  const fs::path& path() const { return file_.path(); }
  int fd() const { return file_.fd(); }
  /// Whether there were holes in it when it was opened.
  bool sparse() const { return sparse_; }
  /// The first run of bytes in [begin, end) that is not a hole, empty at `end` if there is none. Costs system
  /// calls for a sparse file only.
  ByteRange next_data(std::uint64_t begin, std::uint64_t end) const {
    return sparse_ ? file_.next_data(begin, end) : ByteRange{begin, end};
  }
  /// Bytes outside holes.
  std::uint64_t data_bytes() const;

  /// Bytes [offset, offset + length) by way of `buffer`, at least room(length) long; the view ends with the
  /// file if that comes first. A medium error is Error(Machine) naming path and offset.
  std::span<const std::uint8_t> read_some(std::uint64_t offset, std::uint64_t length,
                                          AlignedBuffer& buffer) const;
  /// As read_some, but a file that ends too soon is Error(Data).
  std::span<const std::uint8_t> read(std::uint64_t offset, std::uint64_t length, AlignedBuffer& buffer) const;

 private:
  DirectFile(File file, bool direct)
      : file_(std::move(file)), direct_(direct), size_(file_.size()), sparse_(file_.allocated() < size_) {}
  File file_;
  bool direct_ = false;
  std::uint64_t size_ = 0;
  bool sparse_ = false;
};

}  // namespace waste::verify
