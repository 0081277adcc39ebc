#include "container/core/checksum.h"

#include <isa-l/crc.h>

#include <cstddef>
#include <new>

#include "container/core/checksum_xxh3.h"
#include "container/core/simd.h"

namespace waste {

std::uint32_t crc32(std::span<const std::uint8_t> data, std::uint32_t seed) {
  return crc32_gzip_refl(seed, data.data(), data.size());
}

namespace {

const detail::Xxh3Functions& functions() {
#if defined(__x86_64__)
  switch (simd_level()) {
    case SimdLevel::Avx512:
      return detail::xxh3_avx512;
    case SimdLevel::Avx2:
      return detail::xxh3_avx2;
    default:
      break;
  }
#endif
  return detail::xxh3_baseline;
}

constexpr std::align_val_t kStateAlignment{64};

}  // namespace

std::string Digest128::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

Digest128 xxh3_128(std::span<const std::uint8_t> data) {
  Digest128 d;
  functions().once(data.data(), data.size(), d.bytes.data());
  return d;
}

struct Xxh3Stream::State {
  const detail::Xxh3Functions& call = functions();
  void* memory = ::operator new(call.state_size, kStateAlignment);
  State() { call.reset(memory); }
  ~State() { ::operator delete(memory, kStateAlignment); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::uint8_t> data) {
  state_->call.update(state_->memory, data.data(), data.size());
}

Digest128 Xxh3Stream::digest() const {
  Digest128 d;
  state_->call.digest(state_->memory, d.bytes.data());
  return d;
}

void Xxh3Stream::reset() {
  state_->call.reset(state_->memory);
}

}  // namespace waste
