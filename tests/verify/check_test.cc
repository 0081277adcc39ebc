#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "container/core/file.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"
#include "verify/check.h"
#include "verify/check_state.h"
#include "verify/judge.h"
#include "verify/scan.h"

namespace waste::verify {
namespace {

// A golden container under a seal, to be damaged.
class Sealed {
 public:
  explicit Sealed(const char* name) {
    for (const auto& entry : fs::directory_iterator(golden_dir() / name)) {
      const fs::path copy = path() / entry.path().filename();
      fs::copy_file(entry.path(), copy);
      fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add);
    }
    const ContainerMap map = ContainerMap::read(path());
    const CheckResult result = check_container(map, {}, {});
    REQUIRE(result.findings.empty());
    Seal seal;
    for (const MapFile& f : map.files) {
      seal.files.push_back({f.name, fs::file_size(path() / f.name), f.extent_bytes, {}});
    }
    for (std::size_t e = 0; e < map.extents.size(); ++e) {
      seal.files[map.extents[e].file].digests.push_back(result.digests[e]);
    }
    write_file_atomic(path() / kSealFile, write_seal(seal));
  }

  const fs::path& path() const { return dir_.path(); }

  void flip(const std::string& name, std::uint64_t offset, unsigned bit) const {
    const File file = File::open_write(path() / name);
    std::uint8_t byte = 0;
    file.read_exact(offset, {&byte, 1});
    byte = static_cast<std::uint8_t>(byte ^ 1u << bit);
    file.write_exact(offset, {&byte, 1});
  }

  CheckResult check() const { return check_container(ContainerMap::read(path()), {}, {}); }

 private:
  TempDir dir_;
};

TEST_CASE("scan: every byte of every piece comes once, whatever the alignment, and a stop leaves a prefix") {
  TempDir dir;
  std::vector<std::uint8_t> data(300'001);
  std::mt19937 random(1);
  for (auto& b : data) b = static_cast<std::uint8_t>(random());
  write_file_atomic(dir / "f", data);
  std::vector<DirectFile> files;
  files.push_back(DirectFile::open(dir / "f"));
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < data.size();) {
    const std::uint64_t length = std::min<std::uint64_t>(random() % 20'000, data.size() - at);
    pieces.push_back({0, at, length});
    at += length;
  }
  std::vector<int> seen(pieces.size(), 0);
  const auto handle = [&](std::size_t piece, PieceReader& reader) {
    std::uint64_t at = pieces[piece].offset;
    for (auto view = reader.next(); !view.empty(); view = reader.next()) {
      REQUIRE(std::equal(view.begin(), view.end(), data.begin() + static_cast<std::ptrdiff_t>(at)));
      at += view.size();
    }
    REQUIRE(at == pieces[piece].offset + pieces[piece].length);
    ++seen[piece];
  };
  CHECK(scan(files, pieces, 0, 1, {.handle = handle}) == pieces.size());
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));

  std::size_t stopped_at = 0;
  int budget = 7;
  stopped_at = scan(files, pieces, 0, 1, {.handle = handle, .stop = [&] { return budget-- <= 0; }});
  CHECK(stopped_at == 7);
  CHECK(scan(files, pieces, stopped_at, 1, {.handle = handle}) == pieces.size());
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 2; }));

  pieces.push_back({0, data.size() - 1, 2});
  CHECK_THROWS_AS(scan(files, pieces, 0, 1, {.handle = handle}), Error);
}

TEST_CASE("check: one flipped bit in any file is found in the extent that holds it") {
  const Sealed container("tiny-linear.vq2.waste");
  CHECK(container.check().findings.empty());
  std::mt19937_64 random(2);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(container.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (int i = 0; i < 40; ++i) {
    const std::string& name = names[static_cast<std::size_t>(i) % names.size()];
    const std::uint64_t offset = random() % fs::file_size(container.path() / name);
    const unsigned bit = static_cast<unsigned>(random() % 8);
    CAPTURE(name);
    CAPTURE(offset);
    container.flip(name, offset, bit);
    const CheckResult result = container.check();
    const bool named = std::any_of(result.findings.begin(), result.findings.end(), [&](const Finding& f) {
      if (f.file != name) return false;
      return name == kSealFile || !f.extent || (f.offset <= offset && offset < f.offset + f.bytes);
    });
    REQUIRE(named);
    container.flip(name, offset, bit);
  }
  CHECK(container.check().findings.empty());
}

TEST_CASE("check: without a seal, every bit of an expert record still counts") {
  const Sealed container("tiny-linear.vq4p.waste");
  fs::remove(container.path() / kSealFile);
  const std::uint64_t record = 12288;
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 48; ++i) offsets.push_back(i);        // header
  for (int i = 0; i < 10; ++i) offsets.push_back(random() % record);  // payload
  offsets.push_back(record - 1);                                      // padding
  for (const std::uint64_t offset : offsets) {
    CAPTURE(offset);
    container.flip("experts-L2.bin", 5 * record + offset, 3);
    const CheckResult result = container.check();
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].file == "experts-L2.bin");
    CHECK(result.findings[0].offset == 5 * record);
    container.flip("experts-L2.bin", 5 * record + offset, 3);
  }
  const CheckResult sound = container.check();
  CHECK(sound.findings.empty());
  CHECK(sound.uncovered_bytes > 3'000'000);  // trunk, codebooks, sidecars
  CHECK(sound.uncovered_bytes < sound.bytes);
}

TEST_CASE("check: a value that is not finite is found without a seal, by tensor and index") {
  const Sealed container("tiny-linear.waste");
  fs::remove(container.path() / kSealFile);
  const ContainerMap map = ContainerMap::read(container.path());
  const auto damage = [&](const TrunkTensor& t, std::uint64_t offset, std::span<const std::uint8_t> bytes) {
    std::vector<std::uint8_t> before(bytes.size());
    const File file = File::open_write(container.path() / kTrunkFile);
    file.read_exact(offset, before);
    file.write_exact(offset, bytes);
    const CheckResult result = container.check();
    file.write_exact(offset, before);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].problem.find(t.name) == 0);
    return result.findings[0].problem;
  };
  const std::uint8_t nan_float[] = {0, 0, 0xC0, 0x7F};
  const std::uint8_t infinite_half[] = {0, 0xFC};
  for (const TrunkTensor& t : map.manifest->trunk) {
    if (t.name.ends_with("layers.1.self_attn.dt_bias")) {
      CHECK(damage(t, t.offset + 4 * 5, nan_float).find("value 5 ") != std::string::npos);
    } else if (t.name.ends_with("layers.0.self_attn.q_proj.weight") && t.quantised()) {
      CHECK(damage(t, t.scale_offset + 2 * 3, infinite_half).find("scale 3 ") != std::string::npos);
    }
  }
  CHECK(container.check().findings.empty());
}

TEST_CASE("check: truncated, grown and missing files of every kind") {
  const Sealed container("tiny-linear.vq2.waste");
  for (const char* name : {"manifest.json", "trunk.bin", "codebooks.bin", "experts-L1.bin", "tokenizer.model",
                           "specials.json", "seal.waste"}) {
    CAPTURE(name);
    const fs::path path = container.path() / name;
    const auto whole = read_file(path, 1u << 30);
    const std::uint64_t size = whole.size();
    for (const std::uint64_t cut : {std::uint64_t{0}, std::uint64_t{1}, size / 2, size - 1, size + 1}) {
      CAPTURE(cut);
      fs::resize_file(path, cut);
      const CheckResult result = container.check();
      CHECK(std::any_of(result.findings.begin(), result.findings.end(),
                        [&](const Finding& f) { return f.file == name; }));
      write_file_atomic(path, whole);
    }
    fs::rename(path, container.path() / ".away");
    const CheckResult result = container.check();
    // Without its seal a container is whole, but not covered.
    CHECK(result.findings.empty() == (name == kSealFile));
    fs::rename(container.path() / ".away", path);
  }
  CHECK(container.check().findings.empty());
}

TEST_CASE("check: a folder without manifest or seal is refused") {
  TempDir dir;
  CHECK_THROWS_AS(ContainerMap::read(dir.path()), Error);
  CHECK_THROWS_AS(ContainerMap::read(dir / "absent"), Error);
}

TEST_CASE("check: interrupted at any extent and resumed, it finds the same") {
  const Sealed container("tiny-linear.vq2.waste");
  container.flip("experts-L1.bin", 70'000, 0);
  container.flip("experts-L4.bin", 5'000, 0);
  container.flip("trunk.bin", 3'000'000, 7);
  const ContainerMap map = ContainerMap::read(container.path());
  const Digest128 id = container_identity(map);
  const auto whole = check_container(map, {}, {}).findings;
  REQUIRE(whole.size() == 3);
  for (const int pieces : {0, 1, 20, 60}) {
    CheckState state;
    int budget = pieces;
    const CheckResult first =
        check_container(map, {},
                        {.stop = [&] { return budget-- <= 0; },
                         .progress = [&](auto, auto, const auto& now) { state = now(); }});
    CHECK(!first.finished);
    const auto restored = parse_check_state(write_check_state(state, id), id, map.extents.size(), "s");
    REQUIRE(restored == state);
    const CheckResult second = check_container(map, *restored, {});
    CHECK(second.finished);
    CHECK(second.findings == whole);
    CHECK((state.next == 0) == (second.read_bytes == second.bytes));  // what was done is not read again
  }
}

TEST_CASE("check state: damage is refused, another container's is not taken") {
  const Digest128 id{{1}};
  const CheckState state{.next = 9, .findings = {{"trunk.bin", 4, 100, 200, "p \"q\""}}};
  const std::string text = write_check_state(state, id);
  CHECK(parse_check_state(text, id, 9, "s") == state);
  CHECK(!parse_check_state(text, Digest128{{2}}, 9, "s").has_value());
  CHECK_THROWS_AS(parse_check_state(text, id, 8, "s"), Error);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    REQUIRE_THROWS_AS(parse_check_state(damaged, id, 9, "s"), Error);
    REQUIRE_THROWS_AS(parse_check_state(text.substr(0, i), id, 9, "s"), Error);
  }
}

}  // namespace
}  // namespace waste::verify
