// Stop strings, found wherever the borders of tokens fall.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace waste::runtime {

/// Watches a stream of bytes for the first occurrence of any of some strings. What could still become the
/// start of one is held back until it is decided, so nothing of a stop string is ever shown.
class StopMatcher {
 public:
  /// An empty string is Error(Usage).
  explicit StopMatcher(std::vector<std::string> strings);

  /// Returns the bytes that are certainly before any stop string. After a match it returns nothing more.
  std::string push(std::string_view bytes);
  /// What is held back, when the stream ends without a match.
  std::string finish();

  /// The string found: of those that occur, the one that starts first (the longest, if two start together and
  /// end with the same push). Empty while there is none.
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  std::string matched_;
};

}  // namespace waste::runtime
