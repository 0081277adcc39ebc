#include "download/journal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/temp_dir.h"

namespace waste::download {
namespace {

constexpr std::uint64_t kSize = 1'000'000;  // four blocks of 256 KiB, the last one short
const ContentId kId{ContentId::Kind::Sha256, std::string(64, 'a')};

TEST_CASE("block sizes") {
  CHECK(block_size_for(0) == 256 << 10);
  CHECK(block_size_for(25'000'000) == 256 << 10);
  CHECK(block_size_for(64 << 20) == 1 << 20);
  CHECK(block_size_for(16'000'000'000) == 4 << 20);
}

TEST_CASE("what was appended is there again, later records replacing earlier ones") {
  const TempDir dir;
  {
    Journal journal(dir / "j", kSize, kId);
    REQUIRE(journal.blocks().size() == 4);
    CHECK(journal.block_length(3) == kSize - 3 * (256 << 10));
    journal.append(2, {100, 7});
    journal.append(0, {256 << 10, 8});
    journal.append(2, {256 << 10, 9});
    journal.append(0, {0, 0});
  }
  const Journal again(dir / "j", kSize, kId);
  CHECK(again.blocks()[0].bytes == 0);
  CHECK(again.blocks()[1].bytes == 0);
  CHECK(again.blocks()[2].bytes == 256 << 10);
  CHECK(again.blocks()[2].crc == 9);
}

TEST_CASE("a journal of other content is started anew") {
  const TempDir dir;
  Journal(dir / "j", kSize, kId).append(1, {5, 6});
  ContentId other = kId;
  other.hex[63] = 'b';
  SUBCASE("digest") {
    CHECK(Journal(dir / "j", kSize, other).blocks()[1].bytes == 0);
  }
  SUBCASE("size") {
    CHECK(Journal(dir / "j", kSize + 1, kId).blocks()[1].bytes == 0);
  }
  SUBCASE("kind") {
    const ContentId sha1{ContentId::Kind::GitSha1, std::string(40, 'a')};
    CHECK(Journal(dir / "j", kSize, sha1).blocks()[1].bytes == 0);
  }
  CHECK(Journal(dir / "j", kSize, kId).blocks()[1].bytes == 0);
}

TEST_CASE("every truncation and every flipped byte loses a tail at most, and appending goes on") {
  const TempDir dir;
  {
    Journal journal(dir / "j", kSize, kId);
    for (std::uint32_t i = 0; i < 4; ++i) journal.append(i, {1000 + i, i});
  }
  const std::vector<std::uint8_t> whole = read_file(dir / "j", 1 << 20);
  REQUIRE(whole.size() == 60 + 4 * 16);
  const auto check = [&](const std::vector<std::uint8_t>& bytes, std::size_t intact) {
    const File file = File::create(dir / "j");
    file.write_exact(0, bytes);
    const std::size_t records = intact < 60 ? 0 : (intact - 60) / 16;
    {
      Journal journal(dir / "j", kSize, kId);
      for (std::uint32_t i = 0; i < 4; ++i) CHECK(journal.blocks()[i].bytes == (i < records ? 1000 + i : 0));
      journal.append(3, {77, 1});
    }
    const Journal again(dir / "j", kSize, kId);
    CHECK(again.blocks()[3].bytes == 77);
    for (std::uint32_t i = 0; i < std::min<std::size_t>(records, 3); ++i)
      CHECK(again.blocks()[i].bytes == 1000 + i);
  };
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    CAPTURE(length);
    check({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}, length);
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    std::vector<std::uint8_t> flipped = whole;
    flipped[at] ^= 0x10;
    check(flipped, at);
  }
}

TEST_CASE("records that point outside the file end the journal") {
  const TempDir dir;
  {
    Journal journal(dir / "j", kSize, kId);
    journal.append(0, {1, 1});
    journal.append(4, {1, 1});
    journal.append(1, {1, 1});
  }
  CHECK(Journal(dir / "j", kSize, kId).blocks()[1].bytes == 0);
  {
    Journal journal(dir / "j", kSize, kId);
    journal.append(3, {256 << 10, 1});  // longer than the last block
    journal.append(1, {1, 1});
  }
  CHECK(Journal(dir / "j", kSize, kId).blocks()[1].bytes == 0);
}

TEST_CASE("reset forgets everything, also for the next reader") {
  const TempDir dir;
  Journal journal(dir / "j", kSize, kId);
  journal.append(0, {9, 9});
  journal.reset();
  journal.append(1, {5, 5});
  const Journal again(dir / "j", kSize, kId);
  CHECK(again.blocks()[0].bytes == 0);
  CHECK(again.blocks()[1].bytes == 5);
}

}  // namespace
}  // namespace waste::download
