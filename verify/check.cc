#include "verify/check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "container/core/bytes.h"
#include "container/core/perf.h"
#include "container/format/codebooks.h"
#include "verify/judge.h"
#include "verify/scan.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kMaxCodebooksBytes = std::uint64_t{1} << 30;

std::optional<std::uint64_t> size_on_disk(const ContainerMap& map, const MapFile& file) {
  std::error_code missing;
  const std::uint64_t size = fs::file_size(map.directory / file.name, missing);
  if (missing) return std::nullopt;
  return size;
}

class Check {
 public:
  Check(const ContainerMap& map, const CheckCalls& calls) : map_(map), calls_(calls), judge_(map) {
    result_.damaged.resize(map.extents.size(), false);
    result_.digests.resize(map.extents.size());
    for (const Extent& extent : map.extents) {
      result_.bytes += extent.length;
      const bool record = map.files[extent.file].role == FileRole::Bank;
      if (record) ++result_.records;
      if (map.digest(extent) == nullptr && !(record && map.manifest))
        result_.uncovered_bytes += extent.length;
    }
  }

  CheckResult run(const CheckState& from) {
    const double begin = now_seconds();
    judge_documents();
    for (std::uint32_t i = 0; i < map_.files.size(); ++i) judge_size(i);
    for (const Finding& f : from.findings) found(f);
    const std::size_t reached = read(from.next);
    result_.finished = reached == pieces_.size();
    if (result_.finished) judge_codebooks();
    result_.findings = whole_;
    for (const auto& [extent, finding] : by_extent_) result_.findings.push_back(finding);
    result_.seconds = now_seconds() - begin;
    return std::move(result_);
  }

 private:
  void found(const Finding& finding) {
    if (!finding.extent) {
      whole_.push_back(finding);
    } else {
      by_extent_[*finding.extent] = finding;
      result_.damaged[*finding.extent] = true;
    }
  }

  void whole_file(const MapFile& file, std::uint64_t bytes, std::string problem) {
    found({.file = file.name, .extent = {}, .offset = 0, .bytes = bytes, .problem = std::move(problem)});
  }

  void judge_documents() {
    if (!map_.seal_problem.empty()) {
      found({.file = std::string(kSealFile),
             .extent = {},
             .offset = 0,
             .bytes = 0,
             .problem = map_.seal_problem});
    }
    if (!map_.manifest) {
      found({.file = std::string(kManifestFile),
             .extent = {},
             .offset = 0,
             .bytes = 0,
             .problem = map_.manifest_problem});
    }
    for (const std::string& name : map_.unsealed) {
      const MapFile& file = map_.files[*map_.file_index(name)];
      if (file.role != FileRole::Sidecar) whole_file(file, 0, "the seal does not cover it");
    }
  }

  // What the folder and the manifest already tell, before a byte is read; decides which extents there are to
  // read.
  void judge_size(std::uint32_t index) {
    const MapFile& file = map_.files[index];
    const auto found_size = size_on_disk(map_, file);
    const std::uint64_t size = found_size.value_or(0);
    if (!found_size) {
      if (file.role != FileRole::Manifest || map_.manifest)
        whole_file(file, file.size.value_or(0), "is missing");
    } else if (file.size && size != *file.size) {
      whole_file(file, size < *file.size ? *file.size - size : 0,
                 fmt::format("{} bytes, expected {}: {}", size, *file.size,
                             size < *file.size ? "cut short" : "something was added"));
    } else {
      judge_against_manifest(file, size);
    }
    files_.push_back(found_size ? std::optional(DirectFile::open(map_.directory / file.name)) : std::nullopt);
    if (found_size && !files_.back()->direct()) result_.direct = false;
    for (auto e = map_.first_extent(index); e < map_.extents.size() && map_.extents[e].file == index; ++e) {
      const Extent& extent = map_.extents[e];
      if (!found_size || extent.offset + extent.length > size) {
        result_.damaged[e] = true;
      } else {
        pieces_.push_back({index, extent.offset, extent.length});
        extent_of_piece_.push_back(e);
      }
    }
  }

  void judge_against_manifest(const MapFile& file, std::uint64_t size) {
    if (!map_.manifest) return;
    std::uint64_t least = 0;
    if (file.role == FileRole::Trunk) least = map_.manifest->trunk_end();
    if (file.role == FileRole::Codebooks)
      least = map_.manifest->codebooks_needed() * codebook_bytes(map_.manifest->quant);
    if (file.role == FileRole::Bank) least = map_.manifest->banks.at(file.layer).bytes;
    if (size < least) {
      whole_file(file, least - size, fmt::format("{} bytes, but the manifest needs {}", size, least));
    }
  }

  std::size_t read(std::uint64_t next) {
    // DirectFile has no empty state: what is missing has no pieces, so its slot may hold any file.
    std::vector<DirectFile> files;
    std::vector<std::uint32_t> slot(files_.size(), 0);
    for (std::size_t i = 0; i < files_.size(); ++i) {
      slot[i] = static_cast<std::uint32_t>(files.size());
      if (files_[i]) files.push_back(std::move(*files_[i]));
    }
    for (Piece& piece : pieces_) piece.file = slot[piece.file];
    std::size_t first = 0;
    while (first < pieces_.size() && extent_of_piece_[first] < next) done_ += pieces_[first++].length;
    const ScanCalls calls{.handle = [&](std::size_t piece, PieceReader& bytes) { judge_piece(piece, bytes); },
                          .progress = [&](std::size_t prefix) { report(prefix); },
                          .stop = calls_.stop};
    return scan(files, pieces_, first, judge_.longest_view(), calls);
  }

  void judge_piece(std::size_t piece, PieceReader& bytes) {
    const std::size_t e = extent_of_piece_[piece];
    const Extent& extent = map_.extents[e];
    Verdict verdict;
    try {
      verdict = judge_.judge(extent, [&] { return bytes.next(); });
    } catch (const Error& error) {
      verdict.problem = error.what();  // a medium error is what a check is there to find
    }
    const std::lock_guard lock(mutex_);
    result_.digests[e] = verdict.digest;
    result_.read_bytes += extent.length;
    done_ += extent.length;
    if (verdict.problem.empty()) return;
    found({.file = map_.files[extent.file].name,
           .extent = e,
           .offset = extent.offset,
           .bytes = extent.length,
           .problem = std::move(verdict.problem)});
  }

  void report(std::size_t prefix) {
    std::uint64_t done = 0;
    {
      const std::lock_guard lock(mutex_);
      done = done_;
    }
    calls_.progress(done, result_.bytes, [&] {
      CheckState state;
      state.next = prefix < pieces_.size() ? extent_of_piece_[prefix] : map_.extents.size();
      const std::lock_guard lock(mutex_);
      for (const auto& [extent, finding] : by_extent_) {
        if (extent < state.next) state.findings.push_back(finding);
      }
      return state;
    });
  }

  // Books are judged as a whole, for the messages that only their parser has: magic, position, values.
  void judge_codebooks() {
    const auto file = map_.file_index(kCodebooksFile);
    if (!map_.manifest || !file) return;
    const std::size_t first = map_.first_extent(*file);
    for (std::size_t e = first; e < map_.extents.size() && map_.extents[e].file == *file; ++e) {
      if (result_.damaged[e]) return;  // what is wrong has been said
    }
    const fs::path path = map_.directory / kCodebooksFile;
    try {
      Codebooks::parse(read_file(path, kMaxCodebooksBytes), map_.manifest->quant, path.filename().string());
    } catch (const Error& e) {
      whole_file(map_.files[*file], 0, e.what());
    }
  }

  const ContainerMap& map_;
  const CheckCalls& calls_;
  ExtentJudge judge_;
  CheckResult result_;
  std::vector<std::optional<DirectFile>> files_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> extent_of_piece_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  std::vector<Finding> whole_;
  std::map<std::uint64_t, Finding> by_extent_;
};

}  // namespace

CheckResult check_container(const ContainerMap& map, const CheckState& from, const CheckCalls& calls) {
  return Check(map, calls).run(from);
}

Digest128 container_identity(const ContainerMap& map) {
  Xxh3Stream stream;
  const auto add_number = [&](std::uint64_t n) {
    std::uint8_t bytes[8];
    store_u64(bytes, n);
    stream.update(bytes);
  };
  const auto add_file = [&](const std::string& name) {
    struct stat st {};
    const bool there = ::stat((map.directory / name).c_str(), &st) == 0;
    add_number(name.size());
    stream.update({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
    for (const std::int64_t n : {std::int64_t{there}, std::int64_t{st.st_size},
                                 std::int64_t{st.st_mtim.tv_sec}, std::int64_t{st.st_mtim.tv_nsec}}) {
      add_number(static_cast<std::uint64_t>(n));
    }
  };
  for (const MapFile& file : map.files) add_file(file.name);
  add_file(std::string(kSealFile));
  if (map.seal) stream.update(map.seal->weights_fingerprint().bytes);
  return stream.digest();
}

}  // namespace waste::verify
