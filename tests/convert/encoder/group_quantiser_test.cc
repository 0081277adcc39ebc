#include "convert/encoder/group_quantiser.h"

#include <doctest/doctest.h>

#include <cmath>

#include "container/core/half.h"
#include "container/core/simd.h"
#include "convert/encoder/synthetic.h"

using namespace waste;
using namespace waste::convert;

namespace {

int code_at(GroupFormat format, std::span<const std::uint8_t> codes, std::size_t row, std::size_t cols,
            std::size_t col) {
  const std::uint8_t* const bytes = codes.data() + row * row_code_bytes(format, cols);
  if (format == GroupFormat::Q8G) return static_cast<std::int8_t>(bytes[col]);
  return (bytes[col / 2] >> (col % 2 * 4) & 15) - 8;
}

double quantise_and_decode(GroupFormat format, std::span<const float> w, std::size_t rows, std::size_t cols) {
  std::vector<std::uint8_t> codes(rows * row_code_bytes(format, cols));
  std::vector<std::uint16_t> scales(rows * row_groups(cols));
  ErrorSums sums;
  quantise_rows(format, w, rows, cols, codes, scales, sums);
  ErrorSums decoded;
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t c = 0; c < row_groups(cols) * kGroupSize; c++) {
      const int q = code_at(format, codes, r, cols, c);
      if (c >= cols) {
        REQUIRE(q == 0);
        continue;
      }
      const double value = w[r * cols + c];
      const double rest = value - q * double{half_to_float(scales[r * row_groups(cols) + c / kGroupSize])};
      decoded.error += rest * rest;
      decoded.energy += value * value;
    }
  }
  CHECK(sums.relative() == doctest::Approx(decoded.relative()).epsilon(1e-6));
  return decoded.relative();
}

}  // namespace

TEST_CASE("the searched scale beats amax / 7 on Gaussian weights, with and without padding") {
  for (const std::size_t cols : {256, 200}) {
    const auto w = gaussian_weights(64 * cols, 3);
    CHECK(quantise_and_decode(GroupFormat::Q4G, w, 64, cols) < 0.0975);
    CHECK(quantise_and_decode(GroupFormat::Q8G, w, 64, cols) < 0.0063);
  }
}

TEST_CASE("a group of zeros, of values no half can scale, and of one large value") {
  std::vector<float> w(3 * kGroupSize);
  w[kGroupSize] = 1e-12f;
  w[2 * kGroupSize + 5] = -12;
  CHECK(quantise_and_decode(GroupFormat::Q4G, w, 1, w.size()) < 1e-3);
}

TEST_CASE("every SIMD path quantises to the same bits") {
  const std::size_t cols = 300;
  const auto w = heavy_weights(16, cols, 5);
  for (const GroupFormat format : {GroupFormat::Q4G, GroupFormat::Q8G}) {
    std::vector<std::uint8_t> expected;
    for (const SimdLevel level : simd_levels()) {
      force_simd(simd_name(level));
      std::vector<std::uint8_t> bytes(16 * row_code_bytes(format, cols));
      std::vector<std::uint16_t> scales(16 * row_groups(cols));
      ErrorSums sums;
      quantise_rows(format, w, 16, cols, bytes, scales, sums);
      for (const std::uint16_t scale : scales) {
        bytes.push_back(static_cast<std::uint8_t>(scale));
        bytes.push_back(static_cast<std::uint8_t>(scale >> 8));
      }
      if (expected.empty()) expected = bytes;
      CHECK(bytes == expected);
    }
  }
  force_simd(simd_name(simd_levels().back()));
}

TEST_CASE("a negative scale serves a group whose longer tail is positive") {
  std::vector<float> w = gaussian_weights(kGroupSize, 4);
  for (float& value : w) value = std::abs(value);
  std::vector<std::uint8_t> codes(row_code_bytes(GroupFormat::Q4G, kGroupSize));
  std::vector<std::uint16_t> scales(1);
  ErrorSums sums;
  quantise_rows(GroupFormat::Q4G, w, 1, kGroupSize, codes, scales, sums);
  CHECK(half_to_float(scales[0]) < 0);
}
