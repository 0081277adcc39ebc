#include "convert/journal.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "convert/extent_writer.h"
#include "tests/temp_dir.h"

namespace waste::convert {
namespace {

std::vector<std::uint8_t> pattern(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  return bytes;
}

TEST_CASE("extent writer: any cut into pieces gives the digests of the extents") {
  const TempDir dir;
  const auto data = pattern(1000);
  for (const std::size_t piece : {1u, 7u, 64u, 256u, 300u, 1000u}) {
    ExtentWriter writer(dir / "file", data.size(), 256);
    for (std::size_t at = 0; at < data.size(); at += piece) {
      writer.append(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    }
    CHECK(!fs::exists(dir / "file"));
    const SealedFile sealed = writer.finish();
    REQUIRE(sealed.digests.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(sealed.digests[i] == xxh3_128(std::span(data).subspan(i * 256, sealed.extent_size(i))));
    }
    CHECK(read_file(dir / "file", 1 << 20) == data);
    CHECK(matches(dir / "file", sealed));
    fs::remove(dir / "file");
  }
}

TEST_CASE("extent writer: goes on after what is durable, and starts anew when that has changed") {
  const TempDir dir;
  const auto data = pattern(1000);
  for (const std::size_t stop : {0u, 1u, 255u, 256u, 257u, 999u, 1000u}) {
    std::vector<Digest128> digests;
    {
      ExtentWriter first(dir / "file", data.size(), 256);
      first.append(std::span(data).first(stop));
      first.checkpoint();
      digests = first.digests();
    }
    ExtentWriter second(dir / "file", data.size(), 256, stop, digests);
    REQUIRE(second.position() == stop);
    second.append(std::span(data).subspan(stop));
    CHECK(second.finish().digests.size() == 4);
    CHECK(read_file(dir / "file", 1 << 20) == data);
    fs::remove(dir / "file");
  }
  std::vector<Digest128> digests;
  {
    ExtentWriter first(dir / "file", data.size(), 256);
    first.append(std::span(data).first(600));
    digests = first.digests();
  }
  File::open_write(dir / "file.partial").write_exact(300, pattern(1));
  ExtentWriter second(dir / "file", data.size(), 256, 600, digests);
  CHECK(second.position() == 0);
  CHECK(second.digests().empty());
  CHECK(ExtentWriter(dir / "file", data.size(), 256, 5000, digests).position() == 0);
  CHECK_THROWS_AS(second.finish(), Error);
}

TEST_CASE("extent writer: every changed byte and every other length is seen") {
  const TempDir dir;
  const auto data = pattern(520);
  ExtentWriter writer(dir / "file", data.size(), 256);
  writer.append(data);
  const SealedFile sealed = writer.finish();
  for (std::size_t at = 0; at < data.size(); at += 37) {
    auto damaged = data;
    damaged[at] ^= 4;
    write_file_atomic(dir / "file", damaged);
    CHECK(!matches(dir / "file", sealed));
  }
  write_file_atomic(dir / "file", std::span(data).first(519));
  CHECK(!matches(dir / "file", sealed));
  fs::remove(dir / "file");
  CHECK(!matches(dir / "file", sealed));
}

TEST_CASE("journal: states come back as they were saved; damaged ones are none") {
  const TempDir dir;
  const Json run = {{"source", "a"}, {"experts", "vq3"}};
  const Journal journal(dir / "out", run);
  CHECK(!journal.trunk().complete);
  UnitState state;
  state.items = 7;
  state.bytes = 12345;
  state.digests = {xxh3_128(pattern(1)), xxh3_128(pattern(2))};
  state.books = xxh3_128(pattern(3));
  state.errors = {{0.1, 1.0 / 3}, {1e-300, 2}};
  journal.save_layer(4, state);
  const UnitState loaded = journal.layer(4);
  CHECK(loaded.items == 7);
  CHECK(loaded.bytes == 12345);
  CHECK(loaded.digests == state.digests);
  CHECK(loaded.books == state.books);
  REQUIRE(loaded.errors.size() == 2);
  CHECK(loaded.errors[0].energy == 1.0 / 3);
  CHECK(loaded.errors[1].error == 1e-300);

  const fs::path path = Journal::folder(dir / "out") / "layer-4.json";
  const std::string text = read_text_file(path, 1 << 20);
  for (std::size_t n = 0; n + 2 < text.size(); n += 11) {
    write_file_atomic(path, std::string_view(text).substr(0, n));
    CHECK(journal.layer(4).items == 0);
  }
  journal.save_books(4, pattern(3));
  CHECK(journal.load_books(4, *state.books) == pattern(3));
  CHECK(!journal.load_books(4, xxh3_128(pattern(4))));
  CHECK(!journal.load_books(5, *state.books));
}

TEST_CASE("journal: a second run is held against the first") {
  const TempDir dir;
  const Json run = {{"source", "a"}, {"experts", "vq3"}};
  { const Journal first(dir / "out", run); }
  { const Journal again(dir / "out", run); }
  try {
    const Journal other(dir / "out", {{"source", "a"}, {"experts", "vq2"}, {"quality", 1}});
    FAIL("other settings were accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string_view(e.what()).find("experts was vq3, now vq2; quality was absent, now 1") !=
          std::string_view::npos);
  }
  const Journal holder(dir / "out", run);
  CHECK_THROWS_AS(Journal(dir / "out", run), Error);
}

TEST_CASE("journal: leaves nothing behind, except for what deleted shards need") {
  const TempDir dir;
  {
    const Journal journal(dir / "out", {});
    journal.save_trunk({});
    journal.remove();
  }
  CHECK(!fs::exists(Journal::folder(dir / "out")));
  {
    const Journal journal(dir / "out", {});
    journal.record_reclaimed("1.safetensors", pattern(20));
    journal.save_trunk({});
    journal.remove();
  }
  const Reclaimed reclaimed = Journal::reclaimed(dir / "out");
  CHECK(reclaimed.shards == std::set<std::string>{"1.safetensors"});
  CHECK(read_file(reclaimed.headers / "1.safetensors.header", 100) == pattern(20));
  CHECK(!fs::exists(Journal::folder(dir / "out") / "trunk.json"));
}

}  // namespace
}  // namespace waste::convert
