#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "container/core/checked.h"
#include "container/core/checksum.h"
#include "container/core/file.h"
#include "container/core/half.h"
#include "container/core/json.h"
#include "container/core/memory.h"
#include "container/core/rate.h"
#include "container/core/simd.h"
#include "container/core/text.h"
#include "tests/temp_dir.h"

namespace waste {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST_CASE("half: every value survives the round trip, and rounding is to nearest even") {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float f = half_to_float(static_cast<std::uint16_t>(h));
    if (std::isnan(f)) {
      CHECK((h & 0x7FFFu) > 0x7C00u);
      continue;
    }
    REQUIRE(float_to_half(f) == h);
    if ((h & 0x7FFFu) >= 0x7BFFu) continue;
    // Halfway to the next magnitude: ties go to the even neighbour; a hair beyond goes up.
    const float next = half_to_float(static_cast<std::uint16_t>(h + 1));
    const float middle = (f + next) / 2;  // exact in float32
    REQUIRE(float_to_half(middle) == (h % 2 == 0 ? h : h + 1));
    REQUIRE(float_to_half(std::nextafter(middle, next)) == h + 1);
  }
  CHECK(float_to_half(65519.0f) == 0x7BFF);
  CHECK(float_to_half(65520.0f) == 0x7C00);
  CHECK(float_to_half(0x1p-25f) == 0);
  CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 1);
}

TEST_CASE("crc32 and XXH3-128 give the published values on every path") {
  CHECK(crc32(bytes_of("123456789")) == 0xCBF43926u);
  CHECK(crc32(bytes_of("6789"), crc32(bytes_of("12345"))) == 0xCBF43926u);
  // From xxhsum 0.8.1 -H128.
  CHECK(xxh3_128({}).hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh3_128(bytes_of("123456789")).hex() == "33119477ede5dcd5e9716427681d5860");
}

TEST_CASE("XXH3 in pieces equals XXH3 at once, whatever the pieces") {
  std::vector<std::uint8_t> data(100'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 131 + (i >> 8));
  const Digest128 whole = xxh3_128(data);
  CHECK(whole.hex() == "222a45d78d28b13645169176f633139f");
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1024}, std::size_t{99'999}}) {
    Xxh3Stream stream;
    for (std::size_t at = 0; at < data.size(); at += piece) {
      stream.update(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    }
    CHECK(stream.digest() == whole);
  }
}

TEST_CASE("sizes: decimal and binary units, refusals") {
  CHECK(parse_size("4096", "--x") == 4096);
  CHECK(parse_size("4G", "--x") == 4'000'000'000u);
  CHECK(parse_size("1.5k", "--x") == 1500);
  CHECK(parse_size("4GiB", "--x") == std::uint64_t{4} << 30);
  CHECK(parse_size("512MB", "--x") == 512'000'000u);
  for (const char* bad : {"", "G", "-1", "4X", "4GG", "1e30", "99999999P", "0x10", "nan"}) {
    CHECK_THROWS_AS(parse_size(bad, "--x"), Error);
  }
  CHECK(format_bytes(1'560'839'958'272.0) == "1.56 TB");
  CHECK(format_bytes(17) == "17 B");
  CHECK(format_duration(3 * 3600 + 20 * 60) == "3 h 20 min");
}

TEST_CASE("checked arithmetic refuses what would wrap") {
  CHECK(checked_mul(1u << 31, 1u << 31, "x") == std::uint64_t{1} << 62);
  CHECK_THROWS_AS(checked_mul(std::uint64_t{1} << 33, std::uint64_t{1} << 33, "x"), Error);
  CHECK_THROWS_AS(checked_add(~std::uint64_t{0}, 1, "x"), Error);
}

TEST_CASE("json: strict reading, ordered writing, messages that name the key") {
  const Json j = parse_json(R"({"b": 1, "a": [true, null, -2, 18446744073709551615, 0.5]})", "f.json");
  CHECK(j.dump() == R"({"b":1,"a":[true,null,-2,18446744073709551615,0.5]})");
  CHECK(json_u64(j, "b", "f.json") == 1);
  for (const char* bad : {"", "{", "{\"a\":1,}", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "[\"\xff\"]"}) {
    CHECK_THROWS_AS(parse_json(bad, "f.json"), Error);
  }
  try {
    json_u64(parse_json(R"({"n": -3})", "f.json"), "n", "f.json");
    FAIL("a negative count was accepted");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) == "f.json: n: expected a non-negative integer, found -3");
  }
}

TEST_CASE("names from outside are made printable") {
  CHECK(printable("a\nb\x1b[31m") == "a\\x0ab\\x1b[31m");
  CHECK(printable("caf\xc3\xa9") == "caf\xc3\xa9");
  CHECK(printable("\xc3(") == "\\xc3(");
  CHECK(printable(std::string(500, 'x')).size() == 203);
}

TEST_CASE("files: atomic replacement, exact reads, limits") {
  const TempDir dir;
  const fs::path path = dir / "x";
  write_file_atomic(path, std::string_view("one"));
  write_file_atomic(path, std::string_view("three"));
  CHECK(read_text_file(path, 5) == "three");
  CHECK_FALSE(fs::exists(partial_path(path)));
  CHECK_THROWS_AS(read_text_file(path, 4), Error);
  CHECK_THROWS_AS(read_text_file(dir / "missing", 4), Error);
  std::vector<std::uint8_t> two(2);
  const File file = File::open_read(path);
  file.read_exact(3, two);
  CHECK(two == std::vector<std::uint8_t>{'e', 'e'});
  CHECK_THROWS_AS(file.read_exact(4, two), Error);
  CHECK(free_space(dir / "not" / "there" / "yet") > 0);
}

TEST_CASE("files: holes are told from data, kept by reservations behind them, and punched") {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const TempDir dir;
  const File file = File::open_write(dir / "sparse");
  file.truncate(8 * kMiB);
  CHECK(file.next_data(0, 8 * kMiB).begin == 8 * kMiB);
  file.write_exact(3 * kMiB, std::vector<std::uint8_t>(kMiB, 7));
  const ByteRange data = file.next_data(0, 8 * kMiB);
  CHECK(data.begin == 3 * kMiB);
  CHECK(data.end == 4 * kMiB);
  CHECK(file.next_data(0, 2 * kMiB).begin == 2 * kMiB);
  CHECK(file.next_data(3 * kMiB + 5, 3 * kMiB + 9).begin == 3 * kMiB + 5);
  CHECK(file.next_data(3 * kMiB + 5, 3 * kMiB + 9).end == 3 * kMiB + 9);
  CHECK(file.next_data(data.end, 8 * kMiB).begin == 8 * kMiB);
  CHECK(file.allocated() >= kMiB);
  CHECK(file.allocated() < 2 * kMiB);

  file.reserve(9 * kMiB, 8 * kMiB);
  CHECK(file.size() == 9 * kMiB);
  CHECK(file.allocated() < 3 * kMiB);
  file.reserve(0);  // nothing to reserve is no error

  REQUIRE(file.punch_hole(3 * kMiB, kMiB));
  CHECK(file.next_data(0, 8 * kMiB).begin == 8 * kMiB);
  std::uint8_t byte = 1;
  file.read_exact(3 * kMiB, {&byte, 1});
  CHECK(byte == 0);
}

TEST_CASE("a directory lock refuses the second holder and names the first") {
  const TempDir dir;
  {
    const DirectoryLock lock(dir.path(), ".lock");
    try {
      const DirectoryLock second(dir.path(), ".lock");
      FAIL("two holders");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Machine);
      CHECK(std::string(e.what()).find("pid " + std::to_string(::getpid()) + " on ") != std::string::npos);
    }
  }
  const DirectoryLock again(dir.path(), ".lock");
}

TEST_CASE("aligned buffers are zeroed and aligned") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{5'000'000}}) {
    AlignedBuffer buffer(size);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
    CHECK(buffer.data()[size - 1] == 0);
    buffer.data()[size - 1] = 1;
  }
  CHECK(machine_memory().usable > 0);
}

TEST_CASE("the CPUs this process may use are those of its affinity mask") {
  cpu_set_t all, one;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  CHECK(usable_cpus() >= 1);
  CHECK(usable_cpus() <= static_cast<unsigned>(CPU_COUNT(&all)));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cpus() == 1);
  REQUIRE(::sched_setaffinity(0, sizeof all, &all) == 0);
}

TEST_CASE("the rate does not count what was already there and never gives a negative ETA") {
  RateMeter meter(10);
  meter.start(0, 1000);
  CHECK(meter.rate(1) == 0);
  CHECK(meter.eta(1, 2000) < 0);
  for (int t = 1; t <= 20; ++t) meter.update(t, 1000 + 50 * static_cast<std::uint64_t>(t));
  CHECK(meter.rate(20) == doctest::Approx(50));
  CHECK(meter.eta(20, 3000) == doctest::Approx(20));
  CHECK(meter.rate(30) < 50);
}

TEST_CASE("an unknown SIMD path is refused with the list of possible ones") {
  CHECK_THROWS_AS(force_simd("mmx"), Error);
  CHECK(simd_levels().front() == SimdLevel::Scalar);
}

}  // namespace
}  // namespace waste
