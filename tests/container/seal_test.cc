#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "container/core/bytes.h"
#include "container/core/checksum.h"
#include "container/core/error.h"
#include "container/format/seal.h"

namespace waste {
namespace {

Seal small_seal() {
  Seal seal;
  seal.files.push_back({"trunk.bin", kSealExtent + 5, kSealExtent, {Digest128{{1}}, Digest128{{2}}}});
  seal.files.push_back({"manifest.json", 17, 17, {Digest128{{3}}}});
  seal.files.push_back({"empty", 0, 1, {Digest128{{4}}}});
  return seal;
}

// Makes the digest of a tampered seal right again, so that the checks behind it are reached.
void reseal(std::vector<std::uint8_t>& bytes) {
  const Digest128 self = xxh3_128(std::span(bytes).first(bytes.size() - 16));
  std::copy(self.bytes.begin(), self.bytes.end(), bytes.end() - 16);
}

TEST_CASE("a seal survives the round trip, files in order of name") {
  const Seal again = parse_seal(write_seal(small_seal()), "seal.waste");
  REQUIRE(again.files.size() == 3);
  CHECK(again.files[0].name == "empty");
  CHECK(again.files[1].name == "manifest.json");
  CHECK(again.files[2].digests == small_seal().files[0].digests);
  CHECK(again.files[2].extent_size(0) == kSealExtent);
  CHECK(again.files[2].extent_size(1) == 5);
  CHECK(again.find("nothing") == nullptr);
}

TEST_CASE("every bit of a seal is covered by its own digest, and every truncation is refused") {
  std::vector<std::uint8_t> bytes = write_seal(small_seal());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    REQUIRE_THROWS_AS(parse_seal(bytes, "seal.waste"), Error);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    REQUIRE_THROWS_AS(parse_seal(cut, "seal.waste"), Error);
  }
}

TEST_CASE("counts and names are checked even where the digest agrees") {
  const std::vector<std::uint8_t> good = write_seal(small_seal());
  const auto refused = [&](auto damage) {
    std::vector<std::uint8_t> bytes = good;
    damage(bytes);
    reseal(bytes);
    CHECK_THROWS_AS(parse_seal(bytes, "seal.waste"), Error);
  };
  refused([](auto& b) { store_u32(&b[16], 4); });  // one file more
  refused([](auto& b) { store_u32(&b[16], 0xFFFFFFFF); });
  refused([](auto& b) { store_u32(&b[20], 0xFFFFFFF0); });              // a table larger than the file
  refused([](auto& b) { store_u64(&b[24], std::uint64_t{1} << 60); });  // digests that would not fit memory
  refused([](auto& b) { store_u64(&b[32], ~std::uint64_t{0}); });       // a file of 2^64 - 1 one-byte extents
  refused([](auto& b) { store_u64(&b[40], 0); });                       // extents of nothing
  refused([](auto& b) { store_u32(&b[48], 0xFFFF); });                  // a name past the table
  refused([](auto& b) { b[52] = '/'; });
  refused([](auto& b) { b[52] = '.'; });
  refused([](auto& b) { b[52] = 'z'; });  // out of order
}

TEST_CASE("the fingerprint follows the weights and not the sidecars") {
  Seal seal = small_seal();
  const Digest128 before = seal.weights_fingerprint();
  seal.files[2].digests[0].bytes[0] ^= 1;  // "empty", a sidecar
  CHECK(seal.weights_fingerprint() == before);
  seal.files[0].digests[1].bytes[0] ^= 1;  // trunk.bin
  CHECK_FALSE(seal.weights_fingerprint() == before);
}

}  // namespace
}  // namespace waste
