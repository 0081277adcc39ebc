// The two files a tokenizer is built from, and text through the tokenizer they give. The input is the rank
// file, a zero byte, specials.json, a zero byte, and the text; a rank file that lacks single bytes is
// completed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "container/core/error.h"
#include "runtime/tokenizer.h"

namespace {

std::string_view take(std::string_view& input) {
  const std::string_view part = input.substr(0, input.find('\0'));
  input.remove_prefix(part.size() == input.size() ? part.size() : part.size() + 1);
  return part;
}

// Every single byte at a rank of its own, from 1000 up.
std::string all_bytes() {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += kAlphabet[byte >> 2];
    text += kAlphabet[(byte & 3) << 4];
    text += "== " + std::to_string(1000 + byte) + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view ranks = take(input), specials = take(input);
  try {
    waste::runtime::RankTable::parse(ranks, "ranks");
  } catch (const waste::Error&) {
  }
  try {
    const waste::runtime::Tokenizer tokenizer(
        waste::runtime::RankTable::parse(all_bytes() + std::string(ranks), "ranks"),
        waste::runtime::parse_specials(specials, "specials"), 2000, "input");
    if (tokenizer.decode(tokenizer.encode_content(input)) != input) std::abort();
    if (tokenizer.decode(tokenizer.encode_markup(input)) != input) std::abort();
  } catch (const waste::Error&) {
  }
  return 0;
}
