// The two checksums of a container: crc32 inside expert records (the format's own) and XXH3-128 in the seal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace waste {

/// crc32 with the zlib/IEEE polynomial (reflected 0xEDB88320), as in zlib, gzip and PNG. `seed` continues an
/// earlier call's result.
std::uint32_t crc32(std::span<const std::uint8_t> data, std::uint32_t seed = 0);

/// XXH3-128 with seed 0, in canonical (big-endian) byte order, as `xxhsum -H128` prints it.
struct Digest128 {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Digest128&) const = default;
  std::string hex() const;
};

Digest128 xxh3_128(std::span<const std::uint8_t> data);

/// The same digest over data that arrives in pieces. Not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  void update(std::span<const std::uint8_t> data);
  Digest128 digest() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace waste
