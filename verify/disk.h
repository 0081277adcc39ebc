// How fast a disk gives whole records, in order and at random, with 1 to 32 requests in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "container/format/manifest.h"
#include "verify/direct_file.h"

namespace waste::verify {

/// Files cut into slots of one record each, as block devices like them: starts and lengths are multiples of
/// 4096.
class DiskTarget {
 public:
  /// Records of existing files. A file shorter than one record adds none; no record at all is Error(Data).
  static DiskTarget of_files(const std::vector<fs::path>& files, std::uint64_t record_bytes);

  /// of_files of the banks of the container in `directory`.
  static DiskTarget of_container(const fs::path& directory, const Manifest& manifest);

  /// A scratch file of `bytes` in `directory`, written past the page cache with bytes that do not compress.
  /// It has no name from the start, so that nothing stays behind whatever happens. Error(Machine) if the disk
  /// is full.
  static DiskTarget scratch(const fs::path& directory, std::uint64_t bytes, std::uint64_t record_bytes);

  struct Slot {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
  };

  int fd(const Slot& slot) const { return files_[slot.file].fd(); }
  const fs::path& path(const Slot& slot) const { return files_[slot.file].path(); }
  const std::vector<Slot>& slots() const { return slots_; }
  std::uint64_t record_bytes() const { return record_bytes_; }
  /// Whether every file takes O_DIRECT transfers; where not, a figure may be the page cache's.
  bool direct() const { return direct_; }
  /// Whether most of what would be read are holes, which no disk is asked for.
  bool sparse() const { return sparse_; }

 private:
  DiskTarget() = default;
  std::vector<File> files_;
  std::vector<Slot> slots_;
  std::uint64_t record_bytes_ = 0;
  bool direct_ = true;
  bool sparse_ = false;
};

struct DiskRow {
  bool random = false;
  unsigned depth = 0;
  std::uint64_t reads = 0;
  double gb_per_s = 0;
  double mean_ms = 0;  // from submission to completion of one record
  double p99_ms = 0;
  double cpu = 0;  // cores busy, the kernel's part included
};

/// Keeps `depth` reads in flight for `seconds` (or until `stop` says so) and reports what came back. Uses
/// io_uring, or as many threads where that is refused. Random slots are drawn without repetition until all
/// were used.
class DiskBench {
 public:
  explicit DiskBench(const DiskTarget& target);
  DiskRow run(bool random, unsigned depth, double seconds, const std::function<bool()>& stop);
  /// "io_uring", or "threads" where the kernel refuses it.
  std::string engine() const { return uring_ ? "io_uring" : "threads"; }

 private:
  const DiskTarget& target_;
  bool uring_ = false;
  std::vector<std::uint32_t> order_;  // a fixed permutation of the slots
  std::size_t next_random_ = 0;
  std::size_t next_sequential_ = 0;
};

/// What holds the random rows back, in one sentence: the device, too few requests in flight, or the CPU.
std::string disk_limit(const std::vector<DiskRow>& rows);

}  // namespace waste::verify
