#include "container/codec/source_formats.h"

#include <array>
#include <bit>
#include <limits>

#include "container/core/bytes.h"
#include "container/core/half.h"

namespace waste {

namespace {

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

struct Pair {
  float low, high;
};

// What each byte of two codes stands for: one look-up for two weights is twice as fast as one for each.
constexpr std::array<Pair, 256> kPairs = [] {
  std::array<Pair, 256> pairs{};
  for (std::size_t byte = 0; byte < pairs.size(); ++byte) pairs[byte] = {kE2m1[byte & 15], kE2m1[byte >> 4]};
  return pairs;
}();

// 2^(e - 127). e = 0 is 2^-127, a subnormal float.
float e8m0_to_float(std::uint8_t e) {
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e == 0 ? 0x00400000u : static_cast<std::uint32_t>(e) << 23);
}

}  // namespace

void decode_mxfp4(std::uint64_t rows, std::uint64_t cols, std::span<const std::uint8_t> packed,
                  std::span<const std::uint8_t> scales, std::span<float> out) {
  const std::uint64_t blocks = rows * (cols / kMxfp4Block);  // a row is a whole number of blocks
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const float scale = e8m0_to_float(scales[b]);
    const std::uint8_t* in = packed.data() + b * (kMxfp4Block / 2);
    float* w = out.data() + b * kMxfp4Block;
    for (std::uint32_t i = 0; i < kMxfp4Block / 2; ++i) {
      const Pair pair = kPairs[in[i]];
      w[2 * i] = pair.low * scale;
      w[2 * i + 1] = pair.high * scale;
    }
  }
}

void decode_bf16(std::span<const std::uint8_t> in, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(load_u16(in.data() + 2 * i));
}

void decode_f16(std::span<const std::uint8_t> in, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = half_to_float(load_u16(in.data() + 2 * i));
}

}  // namespace waste
