// The saved state of a check. A digest guards it, so the input is tried as it is, and as the body under a
// digest that matches: what is accepted must come out the same when written again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "container/core/checksum.h"
#include "container/core/error.h"
#include "verify/check_state.h"

namespace {

void try_state(const std::string& text) {
  const waste::Digest128 container{};
  try {
    const auto state = waste::verify::parse_check_state(text, container, 1000, "state");
    if (!state) return;
    const std::string again = waste::verify::write_check_state(*state, container);
    if (waste::verify::parse_check_state(again, container, 1000, "state") != state) __builtin_trap();
  } catch (const waste::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_state(text);
  try_state(waste::xxh3_128({data, size}).hex() + "\n" + text);
  return 0;
}
