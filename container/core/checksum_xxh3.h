// One compiled copy of xxHash an instruction set: the packaged shared library is built for the baseline and
// hashes at 3.7 GB/s where these do 28 and more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace waste::detail {

struct Xxh3Functions {
  void (*once)(const std::uint8_t* data, std::size_t size, std::uint8_t out[16]);
  std::size_t state_size;  // bytes, to be allocated at 64-byte alignment
  void (*reset)(void* state);
  void (*update)(void* state, const std::uint8_t* data, std::size_t size);
  void (*digest)(const void* state, std::uint8_t out[16]);
};

extern const Xxh3Functions xxh3_baseline;
#if defined(__x86_64__)
extern const Xxh3Functions xxh3_avx2;
extern const Xxh3Functions xxh3_avx512;
#endif

}  // namespace waste::detail
