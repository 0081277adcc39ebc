#include "runtime/detokenizer.h"

#include <algorithm>
#include <utility>

#include "runtime/utf8.h"

namespace waste::runtime {

std::string Detokenizer::push(std::string_view bytes) {
  std::string text = std::exchange(held_, {});
  text += bytes;
  for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 0; --length) {
    const std::string_view tail = std::string_view(text).substr(text.size() - length);
    if (!utf8_incomplete(tail)) continue;
    held_ = tail;
    text.resize(text.size() - length);
    break;
  }
  return text;
}

std::string Detokenizer::finish() {
  return std::exchange(held_, {});
}

}  // namespace waste::runtime
