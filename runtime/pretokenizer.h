// Kimi's pre-tokenizer: the regular expression that cuts text into the pieces within which bytes are merged.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace waste::runtime {

/// Immutable; safe to use from several threads.
class PreTokenizer {
 public:
  PreTokenizer();
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// The pieces of `text`, in order; together they are all of it. The pattern is defined on characters, so in
  /// text that is not valid UTF-8 each longest valid stretch is cut as if it stood alone, and each run of
  /// bytes between two such stretches is one piece.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace waste::runtime
