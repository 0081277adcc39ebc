// What a file must hash to. The Hub names LFS files by the SHA-256 of their content and small files by git's
// blob SHA-1; both are proofs, and both can be computed while the bytes arrive.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace waste::download {

struct ContentId {
  enum class Kind { Sha256, GitSha1 };
  Kind kind = Kind::Sha256;
  std::string hex;  // lower case

  bool operator==(const ContentId&) const = default;
  const char* kind_name() const { return kind == Kind::Sha256 ? "SHA-256" : "git SHA-1"; }
};

/// A digest over bytes fed in order. Copyable, so that a block can be taken back after it proved to be wrong.
/// Not thread-safe.
class ContentHash {
 public:
  /// git's blob SHA-1 is over "blob <size>\0" and the content, so the size must be known at the start.
  ContentHash(ContentId::Kind kind, std::uint64_t size);
  ContentHash(const ContentHash& other);
  ContentHash& operator=(const ContentHash& other);
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  ~ContentHash();

  void update(std::span<const std::uint8_t> data);
  /// The digest of everything so far; the object can go on afterwards.
  ContentId digest() const;

 private:
  struct State;
  ContentId::Kind kind_;
  std::unique_ptr<State> state_;
};

}  // namespace waste::download
