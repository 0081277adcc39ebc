#include "download/listing.h"

#include <doctest/doctest.h>

#include <string>

#include "container/core/error.h"

namespace waste::download {
namespace {

const std::string kSha1(40, '1');
const std::string kSha256(64, '2');

std::string file_item(const std::string& path, const std::string& more) {
  return R"({"type":"file","path":")" + path + R"(","oid":")" + kSha1 + "\"," + more + "}";
}

std::string message_of(const std::string& page) {
  try {
    parse_tree_page(page, "listing");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    return e.what();
  }
  return "accepted";
}

bool says(const std::string& message, const char* what) {
  return message.find(what) != std::string::npos;
}

TEST_CASE("a page of files and folders") {
  const std::string page =
      "[" + file_item("config.json", R"("size":12)") +
      R"(,{"type":"directory","path":"d","oid":"x","size":0},)" +
      file_item("d/m.safetensors", R"("size":5,"xetHash":")" + std::string(64, '*') + R"(","lfs":{"oid":")" +
                                       kSha256 + R"(","size":5,"pointerSize":135})") +
      "]";
  const auto entries = parse_tree_page(page, "listing");
  REQUIRE(entries.size() == 2);
  CHECK(entries[0] == Entry{"config.json", 12, {ContentId::Kind::GitSha1, kSha1}});
  CHECK(entries[1] == Entry{"d/m.safetensors", 5, {ContentId::Kind::Sha256, kSha256}});
  CHECK(parse_tree_page("[]", "listing").empty());
}

TEST_CASE("hostile and broken pages name what is wrong") {
  CHECK(says(message_of("[" + file_item("../x", R"("size":1)") + "]"), "../x"));
  CHECK(says(message_of("[" + file_item("C:\\\\x", R"("size":1)") + "]"), "drive letter"));
  CHECK(says(message_of("[" + file_item("a", R"("size":-1)") + "]"), "size"));
  CHECK(says(message_of("[" + file_item("a", R"("size":1e3)") + "]"), "size"));
  CHECK(says(message_of("[" + file_item("a", R"("size":9223372036854775807)") + "]"), "impossible size"));
  CHECK(says(message_of("[" + file_item("a", R"("siz":1)") + "]"), "size"));
  CHECK(says(message_of("[" + file_item("a", R"("size":1,"lfs":{"oid":"zz","size":1})") + "]"), "SHA-256"));
  CHECK(
      says(message_of("[" + file_item("a", R"("size":1,"lfs":{"oid":")" + kSha256 + R"(","size":2})") + "]"),
           "LFS"));
  CHECK(says(message_of(R"([{"path":"a"}])"), "type"));
  CHECK(says(message_of("{}"), "list"));
  CHECK(says(message_of("<html>"), "listing"));
  CHECK(says(message_of(""), "listing"));
}

TEST_CASE("a listing that one folder cannot hold") {
  CHECK_THROWS_AS(check_listing({{"a", 1, {}}, {"a/b", 1, {}}}, "listing"), Error);
  CHECK_NOTHROW(check_listing({{"a", 1, {}}, {"b", 1, {}}}, "listing"));
}

TEST_CASE("a revision") {
  const Revision r = parse_revision(R"({"id":"org/New","sha":")" + std::string(40, 'A') + "\"}", "revision");
  CHECK(r.commit == std::string(40, 'a'));
  CHECK(r.repository == "org/New");
  CHECK_THROWS_AS(parse_revision(R"({"sha":"main"})", "revision"), Error);
  CHECK_THROWS_AS(parse_revision(R"({"id":"../x","sha":")" + kSha1 + "\"}", "revision"), Error);
}

TEST_CASE("--layers") {
  CHECK(parse_layers("0-3") == std::set<unsigned>{0, 1, 2, 3});
  CHECK(parse_layers("5,0-1") == std::set<unsigned>{0, 1, 5});
  for (const char* bad : {"", "a", "3-1", "1,", "0-5000", "-1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_layers(bad), Error);
  }
}

TEST_CASE("an index: the trunk is always wanted, a layer only when asked for") {
  const std::string index = R"({"metadata":{"total_size":1},"weight_map":{
    "language_model.model.embed_tokens.weight":"s1","language_model.model.layers.0.a":"s2",
    "model.layers.10.a":"s3","model.layers.10.b":"s4","model.language_model.layers.1.a":"s5",
    "vision_tower.encoder.layers.3.a":"s6","lm_head.weight":"s1"}})";
  const ShardIndex first = parse_shard_index(index, "index", {0});
  CHECK(first.shards == std::set<std::string, std::less<>>{"s1", "s2", "s3", "s4", "s5", "s6"});
  CHECK(first.wanted == std::set<std::string, std::less<>>{"s1", "s2", "s6"});
  CHECK(parse_shard_index(index, "index", {1, 10}).wanted ==
        std::set<std::string, std::less<>>{"s1", "s3", "s4", "s5", "s6"});
  CHECK_THROWS_WITH_AS(parse_shard_index(index, "index", {0, 11}),
                       "--layers: there is no layer 11; index names layers 0 to 10", Error);
  for (const char* bad :
       {"", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"s")"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_shard_index(bad, "index", {0}), Error);
  }
}

}  // namespace
}  // namespace waste::download
