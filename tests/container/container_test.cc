// Opening a container whose files do not agree with its manifest.
#include <doctest/doctest.h>

#include <string>

#include "container/format/container.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"

namespace waste {
namespace {

std::string open_refusal(const fs::path& directory) {
  try {
    Container::open(directory);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    return e.what();
  }
  FAIL("opened");
  return {};
}

TEST_CASE("a container is opened only when every file is there and whole") {
  const TempDir dir;
  const fs::path copy = dir / "m.waste";
  fs::copy(golden_dir() / "tiny-linear.waste", copy);
  for (const auto& entry : fs::directory_iterator(copy)) fs::permissions(entry, fs::perms::owner_all);
  CHECK(Container::open(copy).manifest().banks.size() == 4);

  for (const char* name :
       {"trunk.bin", "codebooks.bin", "experts-L1.bin", "experts-L4.bin", "manifest.json"}) {
    CAPTURE(name);
    const fs::path file = copy / name;
    const auto size = fs::file_size(file);
    const fs::path aside = dir / "aside";
    fs::copy_file(file, aside, fs::copy_options::overwrite_existing);
    fs::resize_file(file, size - 1);
    CHECK(open_refusal(copy).find(name) != std::string::npos);
    fs::resize_file(file, 0);
    CHECK(open_refusal(copy).find(name) != std::string::npos);
    fs::remove(file);
    CHECK(open_refusal(copy).find(name) != std::string::npos);
    fs::copy_file(aside, file);
  }
  fs::resize_file(copy / "experts-L2.bin", fs::file_size(copy / "experts-L2.bin") + 4096);
  CHECK(open_refusal(copy).find("experts-L2.bin") != std::string::npos);
  CHECK(open_refusal(dir / "nowhere").find("not a directory") != std::string::npos);
}

}  // namespace
}  // namespace waste
