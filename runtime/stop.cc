#include "runtime/stop.h"

#include <algorithm>
#include <utility>

#include "container/core/error.h"

namespace waste::runtime {

StopMatcher::StopMatcher(std::vector<std::string> strings) : strings_(std::move(strings)) {
  if (std::ranges::find(strings_, "") != strings_.end())
    fail(ErrorKind::Usage, "--stop: the string is empty");
}

std::string StopMatcher::push(std::string_view bytes) {
  if (!matched_.empty()) return {};
  std::string text = std::exchange(held_, {});
  text += bytes;

  std::size_t first = std::string::npos;
  for (const std::string& s : strings_) {
    const std::size_t at = text.find(s);
    if (at < first || (at == first && at != std::string::npos && s.size() > matched_.size())) {
      first = at;
      matched_ = s;
    }
  }
  if (first != std::string::npos) {
    text.resize(first);
    return text;
  }
  // The longest tail that a stop string starts with.
  std::size_t keep = 0;
  for (const std::string& s : strings_) {
    for (std::size_t n = std::min(s.size() - 1, text.size()); n > keep; --n) {
      if (text.ends_with(std::string_view(s).substr(0, n))) keep = n;
    }
  }
  held_ = text.substr(text.size() - keep);
  text.resize(text.size() - keep);
  return text;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace waste::runtime
