// waste-convert compare SRC OUT: measures the errors again, from the files.
#pragma once

#include <filesystem>

namespace waste::convert {

struct CompareOptions {
  std::filesystem::path source;
  std::filesystem::path container;
  unsigned threads = 1;
  bool json = false;
  bool quiet = false;
};

/// Decodes every expert matrix and every trunk tensor of both and prints the errors as quality.json has them.
/// Throws Error(Data) naming the first matrix whose error is not what the container's quality.json says (by
/// more than 1%).
int run_compare(const CompareOptions& options);

}  // namespace waste::convert
