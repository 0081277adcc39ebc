// The seal's digest of itself is made right first, so that the parser behind it is reached.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/error.h"
#include "container/format/seal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  if (size >= 48) {
    for (int i = 0; i < 8; ++i) bytes[8 + i] = static_cast<std::uint8_t>(size >> 8 * i);
    const waste::Digest128 self = waste::xxh3_128(std::span(bytes).first(size - 16));
    std::copy(self.bytes.begin(), self.bytes.end(), bytes.end() - 16);
  }
  try {
    const waste::Seal seal = waste::parse_seal(bytes, "fuzz");
    const waste::Seal again = waste::parse_seal(waste::write_seal(seal), "again");
    if (again.files.size() != seal.files.size()) std::abort();
    seal.weights_fingerprint();
  } catch (const waste::Error&) {
  }
  return 0;
}
