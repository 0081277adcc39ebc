#include "download/content_id.h"

#include <openssl/evp.h>

#include <new>
#include <string_view>
#include <utility>

#include "container/core/error.h"

namespace waste::download {

struct ContentHash::State {
  State() : context(EVP_MD_CTX_new()) {
    if (context == nullptr) throw std::bad_alloc();
  }
  State(const State& other) : State() {
    if (EVP_MD_CTX_copy_ex(context, other.context) != 1)
      fail(ErrorKind::Machine, "libcrypto cannot copy a digest");
  }
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }

  EVP_MD_CTX* context;
};

ContentHash::ContentHash(ContentId::Kind kind, std::uint64_t size)
    : kind_(kind), state_(std::make_unique<State>()) {
  const bool sha256 = kind == ContentId::Kind::Sha256;
  if (EVP_DigestInit_ex(state_->context, sha256 ? EVP_sha256() : EVP_sha1(), nullptr) != 1) {
    // A libcrypto in FIPS mode may have no SHA-1.
    fail(ErrorKind::Machine, "libcrypto offers no {} on this machine", sha256 ? "SHA-256" : "SHA-1");
  }
  if (!sha256) {
    const std::string header = fmt::format("blob {}", size);
    update({reinterpret_cast<const std::uint8_t*>(header.c_str()), header.size() + 1});
  }
}

ContentHash::ContentHash(const ContentHash& other)
    : kind_(other.kind_), state_(std::make_unique<State>(*other.state_)) {}

ContentHash& ContentHash::operator=(const ContentHash& other) {
  if (this != &other) *this = ContentHash(other);
  return *this;
}

ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;
ContentHash::~ContentHash() = default;

void ContentHash::update(std::span<const std::uint8_t> data) {
  if (EVP_DigestUpdate(state_->context, data.data(), data.size()) != 1) {
    fail(ErrorKind::Machine, "libcrypto failed to hash {} bytes", data.size());
  }
}

ContentId ContentHash::digest() const {
  const State copy(*state_);
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (EVP_DigestFinal_ex(copy.context, bytes, &length) != 1)
    fail(ErrorKind::Machine, "libcrypto failed to hash");
  ContentId id{kind_, {}};
  for (unsigned i = 0; i < length; ++i) id.hex += fmt::format("{:02x}", bytes[i]);
  return id;
}

}  // namespace waste::download
