#include <doctest/doctest.h>

#include <cmath>

#include "container/core/half.h"
#include "container/core/simd.h"
#include "convert/encoder/matrix_encoder.h"
#include "convert/encoder/synthetic.h"

using namespace waste;
using namespace waste::convert;

namespace {

constexpr ExpertRecipe kVq3{3, 256, Quality::Normal};
constexpr ExpertRecipe kVq2{2, 256, Quality::Normal};
constexpr ExpertRecipe kVq4p{4, 64, Quality::Normal};

struct Encoded {
  Codebooks books;
  std::vector<std::uint8_t> indices;
  std::vector<std::uint16_t> scales;
  ErrorSums sums;

  bool operator==(const Encoded& other) const {
    return books.values == other.books.values && indices == other.indices && scales == other.scales &&
           sums.error == other.sums.error && sums.energy == other.sums.energy;
  }
};

Encoded encode(Codebooks books, const ExpertRecipe& recipe, std::span<const float> w, std::size_t cols,
               std::span<const float> importance = {}) {
  Encoded out;
  out.indices.resize(w.size() / kVectorDim * recipe.stages);
  out.scales.resize(w.size() / cols);
  EncodeScratch scratch;
  MatrixEncoder(books, recipe, importance)
      .encode(w, w.size() / cols, cols, out.indices, out.scales, out.sums, scratch);
  out.books = std::move(books);
  return out;
}

Encoded train_and_encode(const ExpertRecipe& recipe, std::span<const float> w, std::size_t cols,
                         std::span<const float> importance = {}) {
  return encode(train_codebooks(w, cols, recipe, 7, importance), recipe, w, cols, importance);
}

// Decodes as a reader does and sums the error up independently.
double decoded_error(const Encoded& encoded, std::span<const float> w, std::size_t cols,
                     std::span<const float> importance = {}) {
  const int stages = encoded.books.stages;
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < w.size(); i++) {
    float y = 0;
    for (int s = 0; s < stages; s++) {
      y += encoded.books.book(s)[encoded.indices[i / kVectorDim * stages + s] * kVectorDim + i % kVectorDim];
    }
    const double weight = importance.empty() ? 1 : importance[i % cols];
    const double rest = static_cast<double>(w[i]) - y * half_to_float(encoded.scales[i / cols]);
    error += weight * rest * rest;
    energy += weight * w[i] * w[i];
  }
  return energy > 0 ? std::sqrt(error / energy) : std::sqrt(error);
}

// Untrained, with stages of falling size and some entries too long for integer scores.
Codebooks random_books(const ExpertRecipe& recipe) {
  Codebooks books{recipe.stages, recipe.entries, {}};
  const std::size_t size = static_cast<std::size_t>(recipe.entries) * kVectorDim;
  float sigma = 45;  // of weights of 0.02: 0.9
  for (int stage = 0; stage < recipe.stages; stage++, sigma *= 0.5f) {
    for (const float value : heavy_weights(1, size, 100 + static_cast<std::uint64_t>(stage))) {
      books.values.push_back(half_to_float(float_to_half(value * sigma)));
    }
  }
  return books;
}

// From 0.1 to 10.
std::vector<float> uneven(std::size_t cols) {
  std::vector<float> importance;
  for (std::size_t i = 0; i < cols; i++)
    importance.push_back(std::pow(10.0f, static_cast<float>(i % 5) / 2 - 1));
  return importance;
}

// The best level is in force again when this goes.
struct ForcedSimd {
  explicit ForcedSimd(SimdLevel level) { force_simd(simd_name(level)); }
  ~ForcedSimd() { force_simd(simd_name(simd_levels().back())); }
};

}  // namespace

TEST_CASE("books are halves, follow the seed alone, and the reported error is the decoded one") {
  const std::size_t cols = 128;
  const auto w = gaussian_weights(32 * cols, 1);
  for (const ExpertRecipe& recipe : {ExpertRecipe{2, 64, Quality::Normal}, kVq4p}) {
    const auto encoded = train_and_encode(recipe, w, cols);
    REQUIRE(encoded.books.values.size() ==
            static_cast<std::size_t>(recipe.stages) * recipe.entries * kVectorDim);
    for (const float value : encoded.books.values) REQUIRE(half_to_float(float_to_half(value)) == value);
    CHECK(train_codebooks(w, cols, recipe, 7).values == encoded.books.values);
    CHECK(train_codebooks(w, cols, recipe, 8).values != encoded.books.values);
    CHECK(encoded.sums.relative() == doctest::Approx(decoded_error(encoded, w, cols)).epsilon(1e-6));
  }
}

TEST_CASE("every SIMD path encodes to the same bits at every quality") {
  // The tails send some vectors past what integer scores hold; 40 columns leave every kernel a remainder.
  const std::size_t cols = 40;
  const auto w = heavy_weights(48, cols, 2);
  const std::vector<float> importance = uneven(cols);
  for (const Quality quality : {Quality::Fast, Quality::Normal, Quality::Best}) {
    for (ExpertRecipe recipe : {kVq3, kVq2, kVq4p}) {
      recipe.quality = quality;
      const Codebooks books = random_books(recipe);
      const Encoded expected = encode(books, recipe, w, cols);
      const Encoded weighted = encode(books, recipe, w, cols, importance);
      for (const SimdLevel level : simd_levels()) {
        CAPTURE(simd_name(level));
        CAPTURE(quality_name(quality));
        CAPTURE(recipe.stages);
        const ForcedSimd forced(level);
        CHECK(encode(books, recipe, w, cols) == expected);
        CHECK(encode(books, recipe, w, cols, importance) == weighted);
      }
    }
  }
}

TEST_CASE("a row comes out the same alone and among others") {
  const std::size_t cols = 40;
  auto w = heavy_weights(24, cols, 5);
  for (std::size_t r = 0; r < 24; r += 3) w[r * cols + r] = 2;  // 100 times the others: its scale is searched
  const std::vector<float> importance = uneven(cols);
  for (const Quality quality : {Quality::Fast, Quality::Normal, Quality::Best}) {
    const ExpertRecipe recipe{3, 256, quality};
    const Codebooks books = random_books(recipe);
    for (const std::span<const float> weights :
         {std::span<const float>(), std::span<const float>(importance)}) {
      const Encoded all = encode(books, recipe, w, cols, weights);
      Encoded joined;
      for (std::size_t r = 0; r < 24; r++) {
        const Encoded alone = encode(books, recipe, std::span(w).subspan(r * cols, cols), cols, weights);
        joined.indices.insert(joined.indices.end(), alone.indices.begin(), alone.indices.end());
        joined.scales.push_back(alone.scales.front());
      }
      CHECK(joined.indices == all.indices);
      CHECK(joined.scales == all.scales);
    }
  }
}

TEST_CASE("every SIMD path trains the same books") {
  const std::size_t cols = 40;
  const auto w = heavy_weights(64, cols, 2);
  for (const Quality quality : {Quality::Fast, Quality::Normal}) {
    const ExpertRecipe recipe{4, 64, quality};
    const Codebooks books = train_codebooks(w, cols, recipe, 7);
    for (const SimdLevel level : simd_levels()) {
      CAPTURE(simd_name(level));
      const ForcedSimd forced(level);
      CHECK(train_codebooks(w, cols, recipe, 7).values == books.values);
    }
  }
}

TEST_CASE("errors stay far below those of the recipe in the wild") {
  const std::size_t cols = 512;
  const std::size_t rows = 256;
  const auto plain = mxfp4_weights(rows * cols, 3);
  const auto heavy = heavy_weights(rows, cols, 4);
  CHECK(train_and_encode(kVq3, plain, cols).sums.relative() < 0.84 * reference_error(plain, cols, kVq3, 1));
  CHECK(train_and_encode(kVq3, heavy, cols).sums.relative() < 0.84 * reference_error(heavy, cols, kVq3, 1));
  CHECK(train_and_encode(kVq2, plain, cols).sums.relative() < 0.266);
  CHECK(train_and_encode(kVq4p, plain, cols).sums.relative() < 0.185);
}

TEST_CASE("a wider search costs nothing but time") {
  const std::size_t cols = 256;
  const auto w = mxfp4_weights(128 * cols, 5);
  double last = 1;
  for (const Quality quality : {Quality::Fast, Quality::Normal, Quality::Best}) {
    const double error = train_and_encode({4, 64, quality}, w, cols).sums.relative();
    CHECK(error < last);
    last = error;
  }
}

TEST_CASE("rows of zeros, of less than a half can scale, of subnormal scales, with outliers, and huge ones") {
  const std::size_t cols = 256;
  auto w = gaussian_weights(64 * cols, 6);
  const Codebooks books = train_codebooks(w, cols, kVq4p, 7);
  const auto row = [&](std::size_t r) { return std::span(w).subspan(r * cols, cols); };
  for (float& value : row(0)) value = 0;
  for (float& value : row(1)) value *= 1e-9f;
  for (float& value : row(2)) value *= 1e-4f;  // a scale near 2e-6, where halves are 6e-8 apart
  row(3)[17] = 3;                              // 150 root mean squares out
  for (float& value : row(4)) value *= 1e6f;
  const Encoded encoded = encode(books, kVq4p, w, cols);
  CHECK(encoded.scales[0] == 0);
  CHECK(encoded.scales[1] == 0);
  const auto row_error = [&](std::size_t r) {
    Encoded one = encode(books, kVq4p, row(r), cols);
    CHECK(one.scales[0] == encoded.scales[r]);
    return decoded_error(one, row(r), cols);
  };
  CHECK(row_error(0) == 0);
  CHECK(row_error(1) == 1);
  CHECK(row_error(2) < 0.22);
  CHECK(row_error(3) < 0.6);
  CHECK(row_error(4) < 0.22);
}

TEST_CASE("rows with outliers have their scale searched") {
  const std::size_t cols = 512;
  auto w = gaussian_weights(64 * cols, 8);
  for (std::size_t r = 0; r < 64; r++) w[r * cols + r * 7] *= 12;
  CHECK(train_and_encode(kVq4p, w, cols).sums.relative() < 0.22);
}

TEST_CASE("importance lowers the weighted error") {
  const std::size_t cols = 64;
  const auto w = gaussian_weights(512 * cols, 9);
  std::vector<float> importance(cols);
  for (std::size_t c = 0; c < cols; c++) importance[c] = c % 5 == 0 ? 20.0f : 0.5f;
  const double plain = decoded_error(train_and_encode(kVq2, w, cols), w, cols, importance);
  const Encoded weighted = train_and_encode(kVq2, w, cols, importance);
  CHECK(decoded_error(weighted, w, cols, importance) < 0.9 * plain);
  CHECK(weighted.sums.relative() == doctest::Approx(decoded_error(weighted, w, cols)).epsilon(1e-6));
}
