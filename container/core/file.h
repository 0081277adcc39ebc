// Files as this project needs them: exact positioned reads and writes, O_DIRECT that is proved by a transfer,
// space reserved before it is written, publication by rename, and a lock that names its holder.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/error.h"

namespace waste {

namespace fs = std::filesystem;

/// Bytes [begin, end) of a file.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// An owned file descriptor. Positioned calls may run from several threads at once.
/// Every failure throws Error(Machine) naming the path, except where a comment says Data.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  /// Opens for reading. A missing file is Error(Data): what is missing is part of what was asked about.
  static File open_read(const fs::path& path);
  /// Opens for reading past the page cache, after one aligned 4 KiB read has proved that the file system
  /// really allows it; nullopt where it does not. (Some accept the flag and refuse the transfer.)
  static std::optional<File> open_read_direct(const fs::path& path);
  /// Opens for reading and writing; creates the file (mode 0644) if need be, never truncates.
  static File open_write(const fs::path& path);
  /// As open_write, but cuts the file to zero bytes.
  static File create(const fs::path& path);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const fs::path& path() const { return path_; }

  std::uint64_t size() const;
  /// Bytes that the file takes on the disk: of a sparse one, fewer than size().
  std::uint64_t allocated() const;
  /// The first run of bytes in [begin, end) that does not lie in a hole, empty at `end` if there is none.
  /// Where the file system does not tell, all of them.
  ByteRange next_data(std::uint64_t begin, std::uint64_t end) const;
  /// Reads exactly out.size() bytes at `offset`. A file that ends sooner is Error(Data).
  void read_exact(std::uint64_t offset, std::span<std::uint8_t> out) const;
  /// Reads up to out.size() bytes; fewer only at the end of the file.
  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) const;
  void write_exact(std::uint64_t offset, std::span<const std::uint8_t> data) const;
  /// Makes room on the disk for bytes [from, size) so that later writes cannot meet a full disk; the file's
  /// size becomes at least `size`. Where the file system cannot reserve, only the size is set.
  void reserve(std::uint64_t size, std::uint64_t from = 0) const;
  /// Gives the blocks of bytes [offset, offset + length) back; they read as zeros then. False where the file
  /// system cannot.
  bool punch_hole(std::uint64_t offset, std::uint64_t length) const;
  void truncate(std::uint64_t size) const;
  /// Data and metadata are on stable storage when this returns.
  void sync() const;
  /// Has the kernel read bytes [offset, offset + length) into the page cache meanwhile.
  void prefetch(std::uint64_t offset, std::uint64_t length) const;
  /// Starts to write those bytes to the disk; does not wait and makes nothing durable.
  void start_writeback(std::uint64_t offset, std::uint64_t length) const;
  /// Waits until what start_writeback() began is written. The metadata that a crash needs is still sync()'s.
  void await_writeback(std::uint64_t offset, std::uint64_t length) const;
  /// Tells the kernel that bytes [offset, offset + length) need not stay in the page cache.
  void drop_cache(std::uint64_t offset, std::uint64_t length) const;
  void close();

 private:
  void sync_range(std::uint64_t offset, std::uint64_t length, unsigned flags) const;

  File(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  fs::path path_;
};

/// Reads a whole file. Larger than `limit` bytes, or missing, is Error(Data).
std::vector<std::uint8_t> read_file(const fs::path& path, std::uint64_t limit);
std::string read_text_file(const fs::path& path, std::uint64_t limit);

/// Makes the directory entry changes in `directory` (creations, renames) durable.
void sync_directory(const fs::path& directory);

/// The name a file has while it is being written: "x.partial" beside "x".
fs::path partial_path(const fs::path& path);

/// Renames `partial_path(path)`, already synced, to `path` and makes the rename durable.
void publish(const fs::path& path);

/// Writes `.partial`, syncs, publishes: a reader sees the old content or the new, never a mixture.
void write_file_atomic(const fs::path& path, std::span<const std::uint8_t> data);
void write_file_atomic(const fs::path& path, std::string_view text);

/// Bytes an unprivileged process can still write to the file system that holds `path` (or its nearest
/// existing parent).
std::uint64_t free_space(const fs::path& path);

/// Whether both paths (or their nearest existing parents) lie on one file system.
bool same_file_system(const fs::path& a, const fs::path& b);

/// An exclusive lock on a directory, held for the object's life and freed by the kernel if the process dies.
/// The file holds "pid N on HOST since TIME"; a second process is refused with that text in the message.
class DirectoryLock {
 public:
  /// Creates `directory / name` and locks it, or throws Error(Machine) naming the holder.
  DirectoryLock(const fs::path& directory, std::string_view name);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  File file_;
};

}  // namespace waste
