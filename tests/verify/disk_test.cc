#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "container/core/file.h"
#include "tests/temp_dir.h"
#include "verify/disk.h"

namespace waste::verify {
namespace {

std::vector<DiskRow> random_rows(const std::vector<double>& speeds, double cpu = 0.1) {
  std::vector<DiskRow> rows = {{.random = false, .depth = 64, .gb_per_s = 100, .cpu = 1}};  // does not count
  unsigned depth = 1;
  for (const double speed : speeds) {
    rows.push_back({.random = true, .depth = depth, .gb_per_s = speed, .cpu = cpu});
    depth *= 2;
  }
  return rows;
}

TEST_CASE("disk: what limits it") {
  CHECK(disk_limit(random_rows({1, 2, 2.9, 3, 3, 3})).find("the device: 3.00 GB/s from 4 requests") == 0);
  CHECK(disk_limit(random_rows({1, 2, 4, 8, 16, 30})).find("the depth: 32 requests") == 0);
  CHECK(disk_limit(random_rows({1, 2, 4, 8, 9, 9}, 1.0)).find("the CPU: 1.0 cores") == 0);
  CHECK(disk_limit(random_rows({3})).find("the device: 3.00 GB/s from 1 request in") == 0);
  CHECK(disk_limit({}).find("nothing") == 0);
}

TEST_CASE("disk: a scratch file has no name and every record of it is read") {
  TempDir dir;
  const DiskTarget target = DiskTarget::scratch(dir.path(), 1'000'000, 100'000);
  CHECK(fs::is_empty(dir.path()));
  CHECK(target.record_bytes() == 102'400);
  CHECK(target.slots().size() == 9);
  DiskBench bench(target);
  for (const bool random : {false, true}) {
    int reads = 0;
    const DiskRow row = bench.run(random, 2, 60, [&] { return reads++ >= 20; });
    CHECK(row.depth == 2);
    CHECK(row.reads >= 20);
    CHECK(row.gb_per_s > 0);
    CHECK(row.mean_ms > 0);
    CHECK(row.p99_ms >= 0);
  }
}

TEST_CASE("disk: files without a whole record are refused, holes are seen") {
  TempDir dir;
  write_file_atomic(dir / "small", std::string(5000, 'x'));
  CHECK_THROWS_AS(DiskTarget::of_files({dir / "small"}, 8192), Error);
  CHECK(!DiskTarget::of_files({dir / "small"}, 4096).sparse());
  File::create(dir / "holes").truncate(1 << 20);
  CHECK(DiskTarget::of_files({dir / "holes"}, 4096).sparse());
}

}  // namespace
}  // namespace waste::verify
