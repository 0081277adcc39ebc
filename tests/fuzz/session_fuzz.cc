// A session file. Its digests and sizes are made right first, so that the header's numbers and the zstd frame
// behind them are what is tried.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "container/core/bytes.h"
#include "container/core/checksum.h"
#include "container/core/error.h"
#include "runtime/session_file.h"

namespace {

constexpr std::size_t kHeader = 104;
constexpr std::size_t kLargestState = 1 << 20;

void try_session(const std::string& path) {
  try {
    const waste::runtime::SessionFile session(path);
    session.verify();
    // What verifies expands to the size that the header gives.
    if (session.header().payload_bytes > kLargestState) return;
    std::vector<std::uint8_t> payload(session.header().payload_bytes);
    const std::span<std::uint8_t> pieces[] = {std::span(payload).first(payload.size() / 2),
                                              std::span(payload).subspan(payload.size() / 2)};
    session.read(pieces);
  } catch (const waste::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  if (size >= kHeader) {
    waste::store_u64(&bytes[32], size - kHeader);
    std::memcpy(&bytes[72], waste::xxh3_128(std::span(bytes).subspan(kHeader)).bytes.data(), 16);
    std::memcpy(&bytes[88], waste::xxh3_128(std::span(bytes).first(88)).bytes.data(), 16);
  }
  const int file = memfd_create("session", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  try_session("/proc/self/fd/" + std::to_string(file));
  close(file);
  return 0;
}
