#include "convert/checkpoint.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "container/core/bytes.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"

namespace waste::convert {
namespace {

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[6,30]},)"
    R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})";

std::string error_of(std::string_view header, std::uint64_t data_size) {
  try {
    parse_header(header, 8 + header.size() + data_size, "x.safetensors");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
    return e.what();
  }
  return "";
}

bool says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos) return true;
  MESSAGE("expected \"" << part << "\" in: " << message);
  return false;
}

std::string one_tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

void write_shard(const fs::path& path, std::string_view header, std::uint64_t data_size) {
  std::vector<std::uint8_t> bytes(8 + header.size() + data_size);
  store_u64(bytes.data(), header.size());
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_size; ++i) bytes[8 + header.size() + i] = static_cast<std::uint8_t>(i);
  write_file_atomic(path, bytes);
}

std::string open_error(const fs::path& directory) {
  try {
    Checkpoint::open(directory);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    return e.what();
  }
  return "";
}

TEST_CASE("safetensors: a header gives names, shapes, dtypes and places") {
  const Header header = parse_header(kTwoTensors, 8 + kTwoTensors.size() + 30, "x");
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0].name == "a");
  CHECK(header.tensors[0].dtype == Dtype::BF16);
  CHECK(header.tensors[0].offset == 8 + kTwoTensors.size());
  CHECK(header.tensors[1].name == "b");
  CHECK(header.tensors[1].shape == Shape{2, 3});
  CHECK(header.tensors[1].shape.text() == "[2, 3]");
  CHECK(header.tensors[1].bytes == 24);
}

TEST_CASE("safetensors: every lie of a header is named") {
  CHECK(says(error_of(kTwoTensors, 29), "incomplete"));
  CHECK(says(error_of(kTwoTensors, 31), "its tensors end at"));
  CHECK(says(error_of(one_tensor("F4", "[2]", "[0,2]"), 2), "unknown dtype \"F4\""));
  CHECK(says(error_of(one_tensor("U8", "[4294967296,4294967296]", "[0,2]"), 2), "overflows"));
  CHECK(says(error_of(one_tensor("F32", "[18446744073709551615]", "[0,2]"), 2), "overflows"));
  CHECK(says(error_of(one_tensor("U8", "[-1]", "[0,2]"), 2), "not a safetensors header"));
  CHECK(says(error_of(one_tensor("U8", "[1.5]", "[0,2]"), 2), "not a safetensors header"));
  CHECK(says(error_of(one_tensor("U8", "[1,1,1,1,1,1,2]", "[0,2]"), 2), "more than 6 dimensions"));
  CHECK(says(error_of(one_tensor("U8", "[2]", "[2,0]"), 2), "run backwards"));
  CHECK(says(error_of(one_tensor("U8", "[2]", "[0,18446744073709551615]"), 2), "incomplete"));
  CHECK(says(error_of(one_tensor("U8", "[3]", "[0,2]"), 2), "needs 3"));
  CHECK(says(error_of(one_tensor("U8", "[2]", "[0,2,4]"), 2), "more than two"));
  CHECK(says(error_of(one_tensor("U8", "[2]", "[0]"), 2), "holds 1 numbers"));
  CHECK(says(error_of(R"({"t":{"dtype":"U8","shape":[2]}})", 2), "each stand there once"));
  CHECK(says(error_of(R"({"t":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2), "once"));
  CHECK(says(error_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}})", 2), "unknown key"));
  CHECK(says(error_of(R"({"t":3})", 2), "not a safetensors header"));
  CHECK(says(error_of(R"([])", 0), "not a safetensors header"));
  CHECK(says(error_of(R"({} {})", 0), "not a safetensors header"));
  CHECK(says(error_of("", 0), "not a safetensors header"));
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"s":{{"dtype":"U8","shape":[2],"data_offsets":{}}},)"
                       R"("t":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
                       first, second);
  };
  CHECK(says(error_of(two("[0,2]", "[1,3]"), 3), "overlap"));
  CHECK(says(error_of(two("[0,2]", "[3,5]"), 5), "a gap"));
  CHECK(says(error_of(two("[0,2]", "[0,2]"), 2), "overlap"));
}

TEST_CASE("safetensors: every truncation of a header is refused, in a buffer of its exact size") {
  for (std::size_t n = 0; n < kTwoTensors.size(); ++n) {
    const std::vector<char> exact(kTwoTensors.begin(), kTwoTensors.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK(!error_of({exact.data(), exact.size()}, 30).empty());
  }
}

TEST_CASE("safetensors: a header length is held against the file") {
  std::uint8_t prefix[8];
  const auto length_error = [&](std::uint64_t length, std::uint64_t file_size) {
    store_u64(prefix, length);
    try {
      header_length({prefix, std::min<std::uint64_t>(8, file_size)}, file_size, "x");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(length_error(92, 100).empty());
  CHECK(says(length_error(93, 100), "incomplete or damaged"));
  CHECK(says(length_error(~std::uint64_t{0}, 100), "incomplete or damaged"));
  CHECK(says(length_error(200'000'000, 300'000'000), "more than"));
  CHECK(says(length_error(0, 5), "too short"));
}

TEST_CASE("checkpoint: the bundled one opens, and its bytes are where the header says") {
  const fs::path data = data_dir();
  const Checkpoint checkpoint = Checkpoint::open(data / "tiny-linear");
  CHECK(checkpoint.tensors().size() == 293);
  CHECK(checkpoint.shards().size() == 3);
  const Tensor* norm = checkpoint.find("model.norm.weight");
  REQUIRE(norm != nullptr);
  CHECK(norm->shape == Shape{128});
  CHECK(checkpoint.find("model.norm.weigh") == nullptr);
  std::vector<std::uint8_t> whole(norm->bytes);
  checkpoint.read(*norm, 0, whole);
  std::vector<std::uint8_t> tail(16);
  checkpoint.read(*norm, norm->bytes - 16, tail);
  CHECK(std::equal(tail.begin(), tail.end(), whole.end() - 16));
  CHECK_THROWS_AS(checkpoint.read(*norm, norm->bytes - 8, tail), Error);
  CHECK_THROWS_AS(checkpoint.read(*norm, ~std::uint64_t{0}, tail), Error);
}

TEST_CASE("checkpoint: everything wrong with a folder is named at once") {
  const TempDir dir;
  CHECK(says(open_error(dir / "absent"), "not a directory"));
  CHECK(says(open_error(dir.path()), "model.safetensors.index.json: no such file"));
  const fs::path index = dir / "model.safetensors.index.json";
  const std::string_view one = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

  write_shard(dir / "1.safetensors", one, 2);
  write_shard(dir / "2.safetensors", one, 2);
  write_file_atomic(index, std::string_view(R"({"weight_map":{"a":"1.safetensors","z":"2.safetensors",)"
                                            R"("y":"1.safetensors","q":"gone.safetensors"}})"));
  const std::string all = open_error(dir.path());
  CHECK(says(all, "4 problems"));
  CHECK(says(all, "gone.safetensors: no such file"));
  CHECK(says(all, "\"a\" appears twice, in 1.safetensors and in 2.safetensors"));
  CHECK(says(all, "\"z\" should be in 2.safetensors, which does not have it"));
  CHECK(says(all, "\"y\" should be in 1.safetensors, which does not have it"));

  const std::pair<std::string_view, std::string_view> indexes[] = {
      {R"({"weight_map":{"a":"../1.safetensors"}})", "not a file name"},
      {R"({"weight_map":{"a":""}})", "not a file name"},
      {R"({"weight_map":{"a":3}})", "expected a file name"},
      {R"({"weight_map":{}})", "is empty"},
      {R"({"weight_map":[]})", "not a checkpoint index"},
      {R"({"metadata":{}})", "weight_map is missing"},
      {R"({"weight_map":{"a":"1.safetensors"},"weight_map":{"a":"1.safetensors"}})", "appears twice"},
      {R"({"weight_map":{"a":"1.safetensors")", "not a checkpoint index"},
      {R"({"weight_map":{"a":"1.safetensors"}} x)", "not a checkpoint index"},
      {"", "not a checkpoint index"},
  };
  for (const auto& [text, part] : indexes) {
    write_file_atomic(index, text);
    CHECK(says(open_error(dir.path()), part));
  }

  write_file_atomic(index, std::string_view(R"({"weight_map":{"a":"1.safetensors"}})"));
  CHECK(open_error(dir.path()).empty());
  for (std::uint64_t n = fs::file_size(dir / "1.safetensors"); n > 0; --n) {
    fs::resize_file(dir / "1.safetensors", n - 1);
    CHECK(says(open_error(dir.path()), "incomplete"));
  }
}

TEST_CASE("checkpoint: a reclaimed shard keeps its place, but not its bytes") {
  const TempDir dir;
  const std::string_view one = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  write_shard(dir / "model.safetensors", one, 2);
  const Checkpoint before = Checkpoint::open(dir.path());
  write_file_atomic(dir / "model.safetensors.header", before.saved_header(0));
  fs::remove(dir / "model.safetensors");
  write_file_atomic(dir / "model.safetensors.index.json",
                    std::string_view(R"({"weight_map":{"a":"model.safetensors"}})"));
  CHECK(says(open_error(dir.path()), "no such file"));
  const Checkpoint after = Checkpoint::open(dir.path(), {dir.path(), {"model.safetensors"}});
  CHECK(after.identity() == before.identity());
  std::uint8_t bytes[2];
  CHECK_THROWS_AS(after.read(*after.find("a"), 0, bytes), Error);
}

}  // namespace
}  // namespace waste::convert
