// One of the two containers that diff compares, and what is wrong with places of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "container/format/container.h"
#include "verify/direct_file.h"
#include "verify/judge.h"

namespace waste::verify {

/// Not movable: the judge refers to the map.
struct DiffSide {
  /// Error(Data) as Container::open.
  explicit DiffSide(const fs::path& directory)
      : container(Container::open(directory)), map(ContainerMap::read(directory)), judge(map) {}
  DiffSide(const DiffSide&) = delete;
  DiffSide& operator=(const DiffSide&) = delete;

  const Manifest& manifest() const { return container.manifest(); }
  /// Opens the file if it is not the last one opened; returns its index in `files`.
  std::uint32_t open(const std::string& name);
  /// The extents [first, second) that hold bytes [begin, end) of a file.
  std::pair<std::size_t, std::size_t> extents_of(std::string_view name, std::uint64_t begin,
                                                 std::uint64_t end) const;

  Container container;
  ContainerMap map;
  ExtentJudge judge;
  std::vector<DirectFile> files;
};

/// Reads places of a side again and judges them by the seal, if there is one, and by what they carry
/// themselves.
class Judgement {
 public:
  explicit Judgement(const DiffSide& side) : side_(side) {}
  void add(std::string_view name, std::uint64_t begin, std::uint64_t end);
  void run(const std::function<bool()>& stop);
  /// What is wrong with bytes that were added, medium errors included; empty when nothing is.
  std::string problem(std::string_view name, std::uint64_t begin, std::uint64_t end) const;

 private:
  const DiffSide& side_;
  std::map<std::size_t, std::string> problems_;  // by extent
};

/// What is wrong with a whole file that is there; empty when nothing is.
std::string problem_of_file(const DiffSide& side, const std::string& name);

}  // namespace waste::verify
