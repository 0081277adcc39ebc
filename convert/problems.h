// What is wrong with a source, collected so that one run names everything at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace waste::convert {

class Problems {
 public:
  void add(std::string problem) { list_.push_back(std::move(problem)); }
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  /// Throws Error(Data) "<where>: N problems: first; second; ..." if there are any; beyond 50 only their
  /// number is given.
  void fail_if_any(std::string_view where) const;

 private:
  std::vector<std::string> list_;
};

}  // namespace waste::convert
