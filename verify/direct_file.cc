#include "verify/direct_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "container/core/checked.h"

namespace waste::verify {

DirectFile DirectFile::open(const fs::path& path) {
  File plain = File::open_read(path);  // first, for it refuses what is not a regular file
  if (auto direct = File::open_read_direct(path)) return {std::move(*direct), true};
  return {std::move(plain), false};
}

std::uint64_t DirectFile::data_bytes() const {
  std::uint64_t sum = 0;
  for (ByteRange run = next_data(0, size_); run.begin < run.end; run = next_data(run.end, size_)) {
    sum += run.end - run.begin;
  }
  return sum;
}

std::span<const std::uint8_t> DirectFile::read_some(std::uint64_t offset, std::uint64_t length,
                                                    AlignedBuffer& buffer) const {
  const std::uint64_t skip = offset % kDirectBlock;
  const std::uint64_t begin = offset - skip;
  const std::uint64_t want = round_up(skip + length, kDirectBlock);
  std::uint64_t got = 0;
  while (got < want) {
    const ssize_t n = ::pread(file_.fd(), buffer.data() + got, want - got, static_cast<off_t>(begin + got));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno, fmt::format("{}: reading {} bytes at offset {}", path().string(), length, offset));
    }
    got += static_cast<std::uint64_t>(n);
    // Only the end of the file leaves a part of a block; to go on there would be a misaligned request.
    if (n == 0 || got % kDirectBlock != 0) break;
  }
  if (!direct_) file_.drop_cache(begin, want);
  const std::uint64_t usable = got > skip ? std::min(got - skip, length) : 0;
  return {buffer.data() + skip, usable};
}

std::span<const std::uint8_t> DirectFile::read(std::uint64_t offset, std::uint64_t length,
                                               AlignedBuffer& buffer) const {
  const auto bytes = read_some(offset, length, buffer);
  if (bytes.size() != length) {
    fail_data("{}: ends at byte {}, but {} bytes are needed at offset {}", path().string(),
              offset + bytes.size(), length, offset);
  }
  return bytes;
}

}  // namespace waste::verify
