#include "verify/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/direct_file.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 30;
constexpr std::string_view kLockName = ".repair-lock";

struct Authority {
  Seal seal;
  std::vector<std::uint8_t> bytes;  // to be written into the folder; empty when it is the folder's own
};

// The seal that decides what the container must be.
Authority find_seal(const fs::path& directory, Source& source) {
  const fs::path path = directory / kSealFile;
  std::string own = "there is none";
  if (fs::exists(path)) {
    try {
      return {parse_seal(read_file(path, kMaxSealBytes), path.string()), {}};
    } catch (const Error& e) {
      own = e.what();
    }
  }
  try {
    std::vector<std::uint8_t> bytes = source.read_all(kSealFile, kMaxSealBytes);
    Seal seal = parse_seal(bytes, fmt::format("the other copy's {}", kSealFile));
    return {std::move(seal), std::move(bytes)};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Network) throw;
    fail_data("{}: cannot tell good bytes from bad without a seal: here {}; the other copy: {}",
              directory.string(), own, e.what());
  }
}

class Repair {
 public:
  Repair(ContainerMap map, std::vector<std::uint8_t> seal, Source& source, const RepairCalls& calls)
      : map_(std::move(map)), seal_(std::move(seal)), source_(source), calls_(calls) {}

  RepairResult run() {
    const CheckResult check =
        check_container(map_, {}, {.stop = calls_.stop, .progress = [&](auto done, auto total, const auto&) {
                                     calls_.checking(done, total);
                                   }});
    if (!check.finished) {
      result_.interrupted = true;
      return std::move(result_);
    }
    if (!seal_.empty()) adopt_seal(check);
    cut_grown_files();
    std::vector<std::size_t> order;
    std::uint64_t total = 0;
    for (std::size_t e = 0; e < map_.extents.size(); ++e) {
      if (!check.damaged[e] || map_.digest(map_.extents[e]) == nullptr) continue;
      order.push_back(e);
      total += map_.extents[e].length;
    }
    // The manifest says that a container is finished: it comes back when all else is there.
    std::stable_partition(order.begin(), order.end(), [&](std::size_t e) {
      return map_.files[map_.extents[e].file].role != FileRole::Manifest;
    });
    result_.damaged = order.size();
    std::uint64_t done = 0;
    for (const std::size_t e : order) {
      if (calls_.stop()) {
        result_.interrupted = true;
        break;
      }
      restore(map_.extents[e]);
      calls_.restoring(done += map_.extents[e].length, total);
    }
    for (auto& [file, handle] : open_) handle.sync();
    sync_directory(map_.directory);
    return std::move(result_);
  }

 private:
  // The other copy's seal becomes this container's only if this is the container that it seals. Trunk and
  // sidecars may be the same in containers of different recipes; expert records are not.
  void adopt_seal(const CheckResult& check) {
    bool same = false;
    for (std::size_t e = 0; e < map_.extents.size(); ++e) {
      same |= map_.files[map_.extents[e].file].role == FileRole::Bank && !check.damaged[e];
    }
    if (!same) {
      fail_data("{}: no expert record here agrees with the other copy's seal: it seals another container",
                map_.directory.string());
    }
    write_file_atomic(map_.directory / kSealFile, seal_);
    result_.seal_restored = true;
  }

  void cut_grown_files() {
    for (const MapFile& file : map_.files) {
      std::error_code missing;
      const std::uint64_t found = fs::file_size(map_.directory / file.name, missing);
      if (missing || file.sealed == nullptr || found <= file.sealed->size) continue;
      const File handle = File::open_write(map_.directory / file.name);
      handle.truncate(file.sealed->size);
      handle.sync();
      ++result_.cut_files;
    }
  }

  void restore(const Extent& extent) {
    const std::string& name = map_.files[extent.file].name;
    const auto give_up = [&](std::string reason) {
      result_.failures.push_back({map_.place(extent), std::move(reason)});
    };
    if (extent.length > kMaxExtent)
      return give_up(fmt::format("an extent of {} bytes is too large", extent.length));
    std::vector<std::uint8_t> bytes(extent.length);
    try {
      source_.read(name, extent.offset, bytes);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Network) throw;
      return give_up(e.what());
    }
    const Digest128& sealed = *map_.digest(extent);
    if (xxh3_128(bytes) != sealed) {
      return give_up(fmt::format("the other copy's bytes are not the sealed ones: expected {}, found {}",
                                 sealed.hex(), xxh3_128(bytes).hex()));
    }
    write(extent, bytes);
    if (!landed(extent)) {
      fail(ErrorKind::Machine, "{}: what was written does not read back: the disk is failing",
           map_.place(extent));
    }
    ++result_.restored;
    result_.restored_bytes += extent.length;
  }

  void write(const Extent& extent, std::span<const std::uint8_t> bytes) {
    const MapFile& file = map_.files[extent.file];
    const fs::path path = map_.directory / file.name;
    if (file.sealed->size == extent.length) {  // a small file, replaced as a whole
      write_file_atomic(path, bytes);
      return;
    }
    auto it = open_.find(extent.file);
    if (it == open_.end()) {
      it = open_.emplace(extent.file, File::open_write(path)).first;
      // Only what is missing: to reserve all of a sparse file would fill its holes.
      it->second.reserve(file.sealed->size, it->second.size());
    }
    it->second.write_exact(extent.offset, bytes);
  }

  bool landed(const Extent& extent) {
    const fs::path path = map_.directory / map_.files[extent.file].name;
    const DirectFile file = DirectFile::open(path);
    AlignedBuffer buffer(DirectFile::room(extent.length));
    return xxh3_128(file.read(extent.offset, extent.length, buffer)) == *map_.digest(extent);
  }

  ContainerMap map_;
  std::vector<std::uint8_t> seal_;
  Source& source_;
  const RepairCalls& calls_;
  std::map<std::uint32_t, File> open_;
  RepairResult result_;
};

}  // namespace

RepairResult repair_container(const fs::path& directory, Source& source, const RepairCalls& calls) {
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  const DirectoryLock lock(directory, kLockName);
  Authority authority = find_seal(directory, source);
  ContainerMap map = ContainerMap::read(directory, std::move(authority.seal));
  if (!map.seal) fail_data("{}", map.seal_problem);
  return Repair(std::move(map), std::move(authority.bytes), source, calls).run();
}

}  // namespace waste::verify
