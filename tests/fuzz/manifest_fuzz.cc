// Whatever the bytes, the manifest parser returns a manifest or throws waste::Error; what it accepts must
// survive being written and parsed again.
#include <cstdlib>
#include <string_view>

#include "container/core/error.h"
#include "container/format/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const waste::Manifest manifest = waste::parse_manifest(text, "fuzz");
    const std::string again = waste::write_manifest(manifest);
    if (waste::write_manifest(waste::parse_manifest(again, "again")) != again) std::abort();
  } catch (const waste::Error&) {
  }
  return 0;
}
