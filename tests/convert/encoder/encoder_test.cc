#include <doctest/doctest.h>

#include "container/core/half.h"
#include "convert/encoder/matrix_encoder.h"
#include "synthetic.h"

using namespace waste;
using namespace waste::convert;

namespace {

constexpr std::size_t kRows = 64;
constexpr std::size_t kCols = 256;

struct Encoded {
  std::vector<std::uint8_t> indices;
  std::vector<std::uint16_t> scales;
  ErrorSums sums;
};

Encoded encode(const MatrixEncoder& encoder, const ExpertRecipe& recipe, std::span<const float> w) {
  Encoded out;
  out.indices.resize(w.size() / kVectorDim * recipe.stages);
  out.scales.resize(w.size() / kCols);
  EncodeScratch scratch;
  encoder.encode(w, w.size() / kCols, kCols, out.indices, out.scales, out.sums, scratch);
  return out;
}

// Decodes as a reader does and sums the error up independently.
double decoded_error(const Encoded& encoded, const Codebooks& books, std::span<const float> w) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < w.size(); i++) {
    float y = 0;
    for (int s = 0; s < books.stages; s++) {
      const std::uint8_t index = encoded.indices[i / kVectorDim * books.stages + s];
      y += books.book(s)[index * kVectorDim + i % kVectorDim];
    }
    const double rest = static_cast<double>(w[i]) - y * half_to_float(encoded.scales[i / kCols]);
    error += rest * rest;
    energy += static_cast<double>(w[i]) * w[i];
  }
  return std::sqrt(error / energy);
}

}  // namespace

TEST_CASE("books are halves, the same for the same seed, and the reported error is the decoded one") {
  const auto w = gaussian_weights(kRows * kCols, 1);
  const ExpertRecipe recipe{3, 64, Quality::Fast};
  const Codebooks books = train_codebooks(w, kCols, recipe, 7);
  REQUIRE(books.values.size() == 3u * 64 * kVectorDim);
  for (const float value : books.values) REQUIRE(half_to_float(float_to_half(value)) == value);
  CHECK(train_codebooks(w, kCols, recipe, 7).values == books.values);
  CHECK(train_codebooks(w, kCols, recipe, 8).values != books.values);

  const auto encoded = encode(MatrixEncoder(books, recipe), recipe, w);
  CHECK(encoded.sums.relative() == doctest::Approx(decoded_error(encoded, books, w)).epsilon(1e-6));
  CHECK(encoded.sums.relative() < 0.35);
}
