#include "verify/diff_side.h"

#include <fmt/format.h>

#include <algorithm>

#include "verify/scan.h"

namespace waste::verify {

std::uint32_t DiffSide::open(const std::string& name) {
  if (files.empty() || files.back().path().filename() != name) {
    files.push_back(DirectFile::open(map.directory / name));
  }
  return static_cast<std::uint32_t>(files.size() - 1);
}

std::pair<std::size_t, std::size_t> DiffSide::extents_of(std::string_view name, std::uint64_t begin,
                                                         std::uint64_t end) const {
  const std::uint32_t file = map.file_index(name).value();
  const std::uint64_t size = map.files[file].extent_bytes;
  const std::size_t first = map.first_extent(file);
  const std::size_t last = map.first_extent(file + 1);  // a file may have grown beyond its seal
  return {std::min(first + begin / size, last), std::min(first + (end + size - 1) / size, last)};
}

void Judgement::add(std::string_view name, std::uint64_t begin, std::uint64_t end) {
  const auto [first, last] = side_.extents_of(name, begin, end);
  for (std::size_t e = first; e < last; ++e) problems_[e];
}

void Judgement::run(const std::function<bool()>& stop) {
  std::vector<DirectFile> files;
  std::vector<Piece> pieces;
  std::vector<std::pair<const Extent*, std::string*>> extents;
  for (auto& [e, problem] : problems_) {
    const Extent& extent = side_.map.extents[e];
    if (extents.empty() || extents.back().first->file != extent.file) {
      files.push_back(DirectFile::open(side_.map.directory / side_.map.files[extent.file].name));
    }
    pieces.push_back({static_cast<std::uint32_t>(files.size() - 1), extent.offset, extent.length});
    extents.emplace_back(&extent, &problem);
  }
  const auto handle = [&](std::size_t piece, PieceReader& bytes) {
    const auto& [extent, problem] = extents[piece];
    try {
      *problem = side_.judge.judge(*extent, [&] { return bytes.next(); }).problem;
    } catch (const Error& error) {
      *problem = error.what();
    }
  };
  scan(files, pieces, 0, side_.judge.longest_view(), {.handle = handle, .stop = stop});
}

std::string Judgement::problem(std::string_view name, std::uint64_t begin, std::uint64_t end) const {
  const auto [first, last] = side_.extents_of(name, begin, end);
  for (std::size_t e = first; e < last; ++e) {
    if (const std::string& problem = problems_.at(e); !problem.empty()) return problem;
  }
  return {};
}

std::string problem_of_file(const DiffSide& side, const std::string& name) {
  const std::uint64_t size = fs::file_size(side.map.directory / name);
  const MapFile& file = side.map.files[side.map.file_index(name).value()];
  if (file.size && *file.size != size) return fmt::format("{} bytes, expected {}", size, *file.size);
  Judgement judgement(side);
  judgement.add(name, 0, size);
  judgement.run([] { return false; });
  return judgement.problem(name, 0, size);
}

}  // namespace waste::verify
