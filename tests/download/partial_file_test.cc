#include "download/partial_file.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "container/core/checksum.h"
#include "tests/temp_dir.h"

namespace waste::download {
namespace {

constexpr std::uint32_t kBlock = 256 << 10;
constexpr std::uint64_t kSize = 3 * kBlock + 1000;
const ContentId kId{ContentId::Kind::Sha256, std::string(64, 'a')};

std::vector<std::uint8_t> pattern(std::size_t n) {
  std::vector<std::uint8_t> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  return bytes;
}

TEST_CASE("claims: runs of missing blocks, none handed out twice") {
  const TempDir dir;
  PartialFile file(dir / "f.partial", dir / "j", kSize, kId);
  CHECK(file.file().size() == kSize);
  const auto first = file.claim(kBlock + 1);
  REQUIRE(first);
  CHECK(first->begin == 0);
  CHECK(first->end == 2 * kBlock);
  const auto rest = file.claim(kSize);
  REQUIRE(rest);
  CHECK(rest->begin == 2 * kBlock);
  CHECK(rest->end == kSize);
  CHECK_FALSE(file.claim(1));
  file.release_claims();
  CHECK(file.claim(1)->begin == 0);
}

TEST_CASE("bytes in any order, twice, past the end, and with holes") {
  const TempDir dir;
  const auto bytes = pattern(kSize + 50);
  const auto part = [&](std::uint64_t begin, std::uint64_t end) {
    return std::span(bytes).subspan(begin, end - begin);
  };
  PartialFile file(dir / "f.partial", dir / "j", kSize, kId);
  file.write(2 * kBlock, part(2 * kBlock, 3 * kBlock));
  CHECK(file.is_complete(2));
  CHECK(file.first_missing_byte() == 0);
  file.write(10, part(10, 20));  // would leave a hole before it
  CHECK(file.present() == kBlock);
  file.write(0, part(0, 100));
  file.write(50, part(50, 2 * kBlock));  // overlaps what is there, spans two blocks
  CHECK(file.is_complete(0));
  CHECK(file.is_complete(1));
  CHECK(file.block(0).crc == crc32(part(0, kBlock)));
  file.write(3 * kBlock, part(3 * kBlock, kSize + 50));
  CHECK(file.is_complete());
  CHECK(file.file().size() == kSize);
  CHECK(read_file(dir / "f.partial", kSize) == std::vector(bytes.begin(), bytes.begin() + kSize));
  CHECK(file.journalled() == kSize);
}

TEST_CASE("reopened: whole blocks always, partial ones when saved, and the claim begins behind them") {
  const TempDir dir;
  const auto bytes = pattern(kSize);
  {
    PartialFile file(dir / "f.partial", dir / "j", kSize, kId);
    file.write(0, std::span(bytes).first(kBlock + 300));
  }
  {
    PartialFile file(dir / "f.partial", dir / "j", kSize, kId);
    CHECK(file.present() == kBlock);
    file.write(kBlock, std::span(bytes).subspan(kBlock, 300));
    file.save();
    file.save();
  }
  PartialFile file(dir / "f.partial", dir / "j", kSize, kId);
  CHECK(file.present() == kBlock + 300);
  CHECK(file.claim(1)->begin == kBlock + 300);
  file.discard(0);
  CHECK(file.present() == 300);
  CHECK(PartialFile(dir / "f.partial", dir / "j", kSize, kId).present() == 300);
  file.discard_all();
  CHECK(file.present() == 0);
  CHECK(PartialFile(dir / "f.partial", dir / "j", kSize, kId).present() == 0);
}

TEST_CASE("a file that lost its tail has lost those blocks, for this run and the next") {
  const TempDir dir;
  const auto bytes = pattern(kSize);
  PartialFile(dir / "f.partial", dir / "j", kSize, kId).write(0, bytes);
  fs::resize_file(dir / "f.partial", kBlock + 10);
  for (int run = 0; run < 2; ++run) {
    CHECK(PartialFile(dir / "f.partial", dir / "j", kSize, kId).present() == kBlock);
  }
}

TEST_CASE("an empty file is complete at once") {
  const TempDir dir;
  PartialFile file(dir / "f.partial", dir / "j", 0, kId);
  CHECK(file.is_complete());
  CHECK_FALSE(file.claim(1));
}

}  // namespace
}  // namespace waste::download
