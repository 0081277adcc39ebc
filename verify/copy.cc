#include "verify/copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "container/core/checked.h"
#include "container/core/checksum.h"
#include "container/core/perf.h"
#include "verify/check_state.h"
#include "verify/judge.h"
#include "verify/scan.h"

namespace waste::verify {

namespace {

constexpr std::string_view kCopyStateFile = ".copy-state";
constexpr std::string_view kCopyLock = ".copy-lock";
constexpr std::uint64_t kMaxStateBytes = std::uint64_t{1} << 20;
constexpr double kSaveSeconds = 30;
// Writes past the page cache that allocate hold the file for as long as the disk takes: the small runs of a
// sparse file would go through one after the other, a millisecond each.
constexpr std::uint64_t kLeastDirect = std::uint64_t{256} << 10;

// A file being written: whole blocks past the page cache, the rest of an odd end through it.
class Output {
 public:
  // With `holes`, those of the source become holes here.
  Output(const fs::path& path, const DirectFile& source, bool holes)
      : plain_(File::open_write(path)), source_(source), holes_(holes) {
    if (!holes) plain_.reserve(source.size());
    plain_.truncate(source.size());
    File direct = File::open_write(path);
    if (::fcntl(direct.fd(), F_SETFL, ::fcntl(direct.fd(), F_GETFL) | O_DIRECT) == 0)
      direct_ = std::move(direct);
  }

  // What was read from the source at `offset`.
  void write(std::uint64_t offset, std::span<const std::uint8_t> bytes) const {
    const std::uint64_t end = offset + bytes.size();
    for (std::uint64_t at = offset; at < end;) {
      const ByteRange data = holes_ ? source_.next_data(at, end) : ByteRange{at, end};
      // Only what another copy wrote there has to be punched: to ask costs a hundredth of it.
      if (plain_.next_data(at, data.begin).begin < data.begin) plain_.punch_hole(at, data.begin - at);
      write_data(data.begin, bytes.subspan(data.begin - offset, data.end - data.begin));
      at = data.end;
    }
  }

  void sync() const { plain_.sync(); }

 private:
  void write_data(std::uint64_t offset, std::span<const std::uint8_t> bytes) const {
    const auto aligned = [](std::uint64_t n) { return n % kDirectBlock == 0; };
    if (direct_.is_open() && bytes.size() >= kLeastDirect && aligned(offset) &&
        aligned(reinterpret_cast<std::uintptr_t>(bytes.data()))) {
      const std::size_t whole = bytes.size() / kDirectBlock * kDirectBlock;
      direct_.write_exact(offset, bytes.first(whole));
      offset += whole;
      bytes = bytes.subspan(whole);
    }
    if (!bytes.empty()) plain_.write_exact(offset, bytes);
  }

  File plain_;
  File direct_;
  const DirectFile& source_;
  bool holes_ = false;
};

// Whether files there can have holes; asked behind the end of a file, where nothing can be lost.
bool takes_holes(const fs::path& path) {
  const File file = File::open_write(path);
  return file.punch_hole(round_up(file.size(), kDirectBlock), kDirectBlock);
}

// Shares the source's blocks; false, with nothing left, where the file system cannot.
bool share_blocks(const fs::path& from, const fs::path& to) {
  const File source = File::open_read(from);
  const File target = File::create(to);
  if (::ioctl(target.fd(), FICLONE, source.fd()) == 0) {
    target.sync();
    return true;
  }
  fs::remove(to);
  return false;
}

class Copy {
 public:
  Copy(const fs::path& source, const fs::path& destination, const CopyCalls& calls)
      : map_(ContainerMap::read(source)), to_(destination), calls_(calls), judge_(map_) {
    if (!map_.manifest) fail_data("{}; repair it first", map_.manifest_problem);
    if (!map_.seal_problem.empty()) fail_data("{}; repair it first", map_.seal_problem);
    if (map_.seal) identity_ = xxh3_128(read_file(source / kSealFile, kMaxSealBytes));
    check_sizes();
  }

  CopyResult run() {
    const std::uint64_t from = open_destination();
    if (from == 0 && calls_.reflink && share_all()) {
      result_.reflinked = true;
    } else {
      prepare(map_.directory, from);
      if (!copy_pass(open_outputs())) return std::move(result_);
    }
    if (verify_pass()) publish_all();
    return std::move(result_);
  }

 private:
  bool late(const Extent& e) const { return map_.files[e.file].role == FileRole::Manifest; }

  void check_sizes() {
    for (const MapFile& file : map_.files) {
      std::error_code missing;
      const std::uint64_t size = fs::file_size(map_.directory / file.name, missing);
      if (missing) fail_data("{}: {} is missing; repair it first", map_.directory.string(), file.name);
      if (file.size && *file.size != size) {
        fail_data("{}: {} has {} bytes, expected {}; repair it first", map_.directory.string(), file.name,
                  size, *file.size);
      }
    }
    for (const Extent& e : map_.extents) result_.bytes += e.length;
    digests_.resize(map_.extents.size());
  }

  // Returns the first extent that is still to be copied.
  std::uint64_t open_destination() {
    for (fs::path p = fs::absolute(to_); !fs::exists(p); p = p.parent_path()) created_.push_back(p);
    fs::create_directories(to_);
    if (fs::equivalent(to_, map_.directory))
      fail(ErrorKind::Usage, "{}: source and destination are one", to_.string());
    if (fs::exists(to_ / kManifestFile)) {
      fail(ErrorKind::Usage, "{}: there is a finished container already", to_.string());
    }
    const bool ours = fs::exists(to_ / kCopyStateFile);
    for (const auto& entry : fs::directory_iterator(to_)) {
      if (ours || entry.path().filename().string().starts_with(".copy-"))
        continue;  // a kill may leave a lock
      fail(ErrorKind::Usage, "{}: not empty, and not an interrupted copy", to_.string());
    }
    fresh_ = !ours;
    lock_ = std::make_unique<DirectoryLock>(to_, kCopyLock);
    std::uint64_t next = 0;
    if (ours) {
      const fs::path path = to_ / kCopyStateFile;
      const auto state = parse_check_state(read_text_file(path, kMaxStateBytes), identity_,
                                           map_.extents.size(), path.string());
      if (!state) fail(ErrorKind::Usage, "{}: an interrupted copy of another container", to_.string());
      if (map_.seal) next = state->next;
    }
    save(next);
    for (std::uint64_t e = 0; e < next; ++e) result_.resumed_bytes += map_.extents[e].length;
    return next;
  }

  void save(std::uint64_t next) {
    write_file_atomic(to_ / kCopyStateFile, write_check_state({next, {}}, identity_));
  }

  bool share_all() {
    for (const MapFile& file : map_.files) {
      if (file.role == FileRole::Manifest) continue;
      if (!share_blocks(map_.directory / file.name, to_ / file.name)) return false;
    }
    return true;
  }

  // A destination that this call made, or found empty, is left as it was.
  void withdraw() {
    std::error_code ignored;
    for (const MapFile& file : map_.files) fs::remove(to_ / file.name, ignored);
    fs::remove(to_ / kCopyStateFile, ignored);
    lock_.reset();
    for (const fs::path& directory : created_) fs::remove(directory, ignored);
  }

  void check_space(bool holes) const {
    std::uint64_t wanted = 0;
    std::uint64_t taken = 0;  // by an interrupted copy
    for (std::size_t i = 0; i < files_.size(); ++i) {
      wanted += holes ? files_[i].data_bytes() : files_[i].size();
      const fs::path target = to_ / map_.files[i].name;
      if (fs::exists(target)) taken += File::open_read(target).allocated();
    }
    const std::uint64_t free = free_space(to_);
    if (free + taken < wanted) {
      fail(ErrorKind::Machine, "{}: {} bytes are free, but {} are to be written", to_.string(), free,
           wanted - taken);
    }
  }

  // One a file, none for the manifest; on a disk without the room for them, nothing.
  std::vector<std::unique_ptr<Output>> open_outputs() {
    std::vector<std::unique_ptr<Output>> outputs;
    try {
      const bool holes = takes_holes(to_ / kCopyStateFile);
      check_space(holes);
      for (std::size_t i = 0; i < files_.size(); ++i) {
        const bool manifest = map_.files[i].role == FileRole::Manifest;
        outputs.push_back(manifest ? nullptr
                                   : std::make_unique<Output>(to_ / map_.files[i].name, files_[i],
                                                              holes && files_[i].sparse()));
      }
    } catch (const Error&) {
      if (fresh_) withdraw();
      throw;
    }
    return outputs;
  }

  void prepare(const fs::path& directory, std::uint64_t from) {
    files_.clear();
    for (const MapFile& file : map_.files) {
      // The manifest has no copy yet; its pieces are left out, so any file may stand in for it.
      const bool there = fs::exists(directory / file.name);
      files_.push_back(DirectFile::open(there ? directory / file.name : map_.directory / file.name));
    }
    pieces_.clear();
    extent_of_piece_.clear();
    for (std::uint64_t e = from; e < map_.extents.size(); ++e) {
      const Extent& extent = map_.extents[e];
      if (late(extent)) continue;
      pieces_.push_back({extent.file, extent.offset, extent.length});
      extent_of_piece_.push_back(e);
    }
  }

  std::uint64_t next_extent(std::size_t piece) const {
    return piece < pieces_.size() ? extent_of_piece_[piece] : map_.extents.size();
  }

  // False when interrupted, or when the source is damaged.
  bool copy_pass(const std::vector<std::unique_ptr<Output>>& outputs) {
    const auto sync_all = [&] {
      for (const auto& output : outputs) {
        if (output) output->sync();
      }
    };
    std::mutex mutex;
    std::uint64_t done = result_.resumed_bytes;
    std::map<std::uint64_t, std::string> damaged;
    double saved_at = now_seconds();
    const auto handle = [&](std::size_t piece, PieceReader& reader) {
      const Extent& extent = map_.extents[extent_of_piece_[piece]];
      std::uint64_t at = extent.offset;
      Verdict verdict;
      const auto next = [&] {
        const auto view = reader.next();
        outputs[extent.file]->write(at, view);
        at += view.size();
        return view;
      };
      verdict = judge_.judge(extent, next);
      const std::lock_guard lock(mutex);
      digests_[extent_of_piece_[piece]] = verdict.digest;
      done += extent.length;
      if (!verdict.problem.empty()) {
        damaged[extent_of_piece_[piece]] = fmt::format("{}: {}", map_.place(extent), verdict.problem);
      }
    };
    const auto resume_at = [&](std::size_t prefix) {
      const std::uint64_t next = next_extent(prefix);
      return damaged.empty() ? next : std::min(next, damaged.begin()->first);
    };
    const auto progress = [&](std::size_t prefix) {
      std::unique_lock lock(mutex);
      calls_.copying(done, result_.bytes);
      if (now_seconds() - saved_at < kSaveSeconds) return;
      saved_at = now_seconds();
      const std::uint64_t next = resume_at(prefix);
      lock.unlock();
      sync_all();
      save(next);
    };
    const std::size_t prefix = scan(files_, pieces_, 0, judge_.longest_view(),
                                    {.handle = handle, .progress = progress, .stop = calls_.stop});
    sync_all();
    save(resume_at(prefix));
    for (auto& [extent, problem] : damaged) result_.problems.push_back(std::move(problem));
    return prefix == pieces_.size() && damaged.empty();
  }

  bool verify_pass() {
    prepare(to_, 0);
    std::mutex mutex;
    std::uint64_t done = 0;
    std::optional<std::uint64_t> lost;
    const auto handle = [&](std::size_t piece, PieceReader& reader) {
      const std::uint64_t e = extent_of_piece_[piece];
      const Verdict verdict = judge_.judge(map_.extents[e], [&] { return reader.next(); });
      // A shared block was not read before: the seal or its own checks have judged it now.
      const bool compare = !map_.seal && !result_.reflinked;
      const std::lock_guard lock(mutex);
      done += map_.extents[e].length;
      if (verdict.problem.empty() && (!compare || verdict.digest == digests_[e])) return;
      if (result_.reflinked) {
        result_.problems.push_back(fmt::format("{}: {}", map_.place(map_.extents[e]), verdict.problem));
      } else if (!lost || e < *lost) {
        lost = e;
      }
    };
    const auto progress = [&](std::size_t) {
      const std::lock_guard lock(mutex);
      calls_.verifying(done, result_.bytes);
    };
    const std::size_t prefix = scan(files_, pieces_, 0, judge_.longest_view(),
                                    {.handle = handle, .progress = progress, .stop = calls_.stop});
    if (lost) {
      save(*lost);
      fail(ErrorKind::Machine, "{}: {}: what was written does not read back: the disk is failing",
           to_.string(), map_.place(map_.extents[*lost]));
    }
    return prefix == pieces_.size() && result_.problems.empty();
  }

  void publish_all() {
    const auto manifest = read_file(map_.directory / kManifestFile, kMaxManifestBytes);
    for (const Extent& extent : map_.extents) {
      if (!late(extent) || map_.digest(extent) == nullptr || *map_.digest(extent) == xxh3_128(manifest))
        continue;
      fail_data("{}: not the sealed one; repair it first", (map_.directory / kManifestFile).string());
    }
    if (map_.seal) write_file_atomic(to_ / kSealFile, read_file(map_.directory / kSealFile, kMaxSealBytes));
    write_file_atomic(to_ / kManifestFile, manifest);
    fs::remove(to_ / kCopyStateFile);
    sync_directory(to_);
    result_.finished = true;
  }

  ContainerMap map_;
  fs::path to_;
  const CopyCalls& calls_;
  ExtentJudge judge_;
  Digest128 identity_{};           // of the seal; zero without one
  std::vector<fs::path> created_;  // directories that were not there, innermost first
  bool fresh_ = false;             // no interrupted copy was there
  std::unique_ptr<DirectoryLock> lock_;
  CopyResult result_;
  std::vector<Digest128> digests_;  // [extent], as read from the source in this run
  std::vector<DirectFile> files_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> extent_of_piece_;
};

}  // namespace

CopyResult copy_container(const fs::path& source, const fs::path& destination, const CopyCalls& calls) {
  return Copy(source, destination, calls).run();
}

}  // namespace waste::verify
