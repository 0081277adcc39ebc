// Lines from standard input that an interrupt can end.
#pragma once

#include <optional>
#include <string>

namespace waste::runtime {

class LineReader {
 public:
  /// The next line without its end; nullopt at the end of the input or once an interrupt has been asked for.
  std::optional<std::string> next();

 private:
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace waste::runtime
