#include "convert/problems.h"

#include <algorithm>

#include "container/core/error.h"

namespace waste::convert {

namespace {
constexpr std::size_t kShown = 50;
}

void Problems::fail_if_any(std::string_view where) const {
  if (list_.empty()) return;
  if (list_.size() == 1) fail_data("{}: {}", where, list_[0]);
  std::string text;
  for (std::size_t i = 0; i < std::min(list_.size(), kShown); ++i) text += (i == 0 ? "" : "; ") + list_[i];
  if (list_.size() > kShown) text += fmt::format("; and {} more", list_.size() - kShown);
  fail_data("{}: {} problems: {}", where, list_.size(), text);
}

}  // namespace waste::convert
