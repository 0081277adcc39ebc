// Where tests/data lies; the build passes it in.
#pragma once

#include <filesystem>

namespace waste {

inline std::filesystem::path data_dir() {
  return WASTE_TEST_DATA;
}
inline std::filesystem::path golden_dir() {
  return data_dir() / "golden";
}

}  // namespace waste
