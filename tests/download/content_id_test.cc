#include "download/content_id.h"

#include <doctest/doctest.h>

#include <string_view>

namespace waste::download {
namespace {

std::span<const std::uint8_t> bytes(std::string_view s) {
  return {reinterpret_cast<const std::uint8_t*>(s.data()), s.size()};
}

TEST_CASE("published vectors") {
  ContentHash sha256(ContentId::Kind::Sha256, 3);
  sha256.update(bytes("abc"));
  CHECK(sha256.digest().hex == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // printf 'hello\n' | git hash-object --stdin
  ContentHash git(ContentId::Kind::GitSha1, 6);
  git.update(bytes("hello\n"));
  CHECK(git.digest().hex == "ce013625030ba8dba906f756967f9e9ca394464a");
  CHECK(ContentHash(ContentId::Kind::GitSha1, 0).digest().hex == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST_CASE("a copy goes its own way") {
  ContentHash hash(ContentId::Kind::Sha256, 3);
  hash.update(bytes("ab"));
  const ContentHash before = hash;
  hash.update(bytes("X"));
  hash = before;
  hash.update(bytes("c"));
  CHECK(hash.digest().hex == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace waste::download
