// Token bytes to text that can be shown as it comes.
#pragma once

#include <string>
#include <string_view>

namespace waste::runtime {

/// A token may end inside a character. This holds back the bytes of a sequence that is not complete yet, at
/// most three, and lets everything else through, bytes that are not UTF-8 included: joined, what comes out is
/// what went in.
class Detokenizer {
 public:
  /// The bytes of the next token; returns what may be shown now.
  std::string push(std::string_view bytes);
  /// What is still held back, at the end of the text.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace waste::runtime
