#include "convert/encoder/codebooks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "container/core/half.h"
#include "convert/encoder/chunks.h"
#include "convert/encoder/joint_refit.h"
#include "convert/encoder/kmeans.h"
#include "convert/encoder/random.h"
#include "convert/encoder/vector_encoder.h"

namespace waste::convert {

namespace {

int refit_rounds(Quality quality) {
  switch (quality) {
    case Quality::Fast:
      return 10;
    case Quality::Normal:
      return 20;
    case Quality::Best:
      return 30;
  }
  return 0;
}

// Vectors of a row whose tables one task makes, each for all rows.
constexpr std::size_t kColumnChunk = 8;

// Where samples are few a round is soon done, and the usual number ends far from the best fit that so few
// allow. Two books get more then, in about the time that kFew vectors take: 16,000 vectors go from 0.270 to
// 0.261 relative error, 300,000 would gain nothing. Three books would gain as much, but solving for them
// takes longer than the rest of such a round.
int affordable_rounds(const ExpertRecipe& recipe, std::size_t vectors) {
  constexpr double kFew = 180'000;
  constexpr double kMost = 7.5;
  const int rounds = refit_rounds(recipe.quality);
  if (recipe.stages != 2 || recipe.quality == Quality::Fast) return rounds;
  return static_cast<int>(rounds * std::clamp(kFew / static_cast<double>(vectors), 1.0, kMost));
}

// Stochastic relaxation (Martinez et al., ECCV 2018): noise that shrinks with the rounds lets the entries
// leave a poor fit. It is uniform, because every CPU agrees on that to the bit.
void shake(Codebooks& books, double temperature, Random& random) {
  const std::size_t size = static_cast<std::size_t>(books.entries) * kVectorDim;
  for (int s = 0; s < books.stages; s++) {
    double energy = 0;
    for (const float value : books.book(s)) energy += static_cast<double>(value) * value;
    const double reach = temperature * std::sqrt(3 * energy / static_cast<double>(size));
    for (float& value : std::span(books.values).subspan(static_cast<std::size_t>(s) * size, size)) {
      value += static_cast<float>(reach * (2 * random.uniform() - 1));
    }
  }
}

// The beam decides best when the book that says most comes first.
void order_by_energy(Codebooks& books) {
  std::vector<int> order(books.stages);
  std::iota(order.begin(), order.end(), 0);
  std::array<double, kMaxStages> energy{};
  for (int s = 0; s < books.stages; s++) {
    for (const float value : books.book(s)) energy[s] += static_cast<double>(value) * value;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return energy[a] > energy[b]; });
  std::vector<float> sorted;
  for (const int s : order) sorted.insert(sorted.end(), books.book(s).begin(), books.book(s).end());
  books.values = std::move(sorted);
}

// Whole rows divided by their root mean square, zero rows left out.
std::vector<float> normalised_rows(std::span<const float> samples, std::size_t cols, std::size_t limit) {
  std::vector<float> x;
  for (std::size_t at = 0; at + cols <= samples.size() && x.size() < limit * kVectorDim; at += cols) {
    const auto row = samples.subspan(at, cols);
    double energy = 0;
    for (const float value : row) energy += static_cast<double>(value) * value;
    if (energy == 0) continue;
    const double inverse = 1 / std::sqrt(energy / static_cast<double>(cols));
    for (const float value : row) x.push_back(static_cast<float>(value * inverse));
  }
  return x;
}

}  // namespace

Codebooks train_codebooks(std::span<const float> samples, std::size_t cols, const ExpertRecipe& recipe,
                          std::uint64_t seed, std::span<const float> importance) {
  Codebooks books{recipe.stages, recipe.entries, {}};
  books.values.resize(static_cast<std::size_t>(recipe.stages) * recipe.entries * kVectorDim);
  const std::vector<float> x = normalised_rows(samples, cols, training_vectors(recipe.quality));
  if (x.empty()) return books;

  Random random(seed);
  {
    std::vector<float> rest = x;
    for (int s = 0; s < recipe.stages; s++) {
      train_stage(rest, books, s, kKmeansRounds, random);
      subtract_nearest(rest, books, s);
    }
  }

  const std::size_t rows = x.size() / cols;
  const std::size_t vectors = cols / kVectorDim;
  const std::size_t row_chunk = std::max<std::size_t>(1, kChunkVectors / vectors);
  std::vector<std::uint8_t> indices(rows * vectors * recipe.stages);
  std::vector<double> gains(rows);
  // With importance a round builds tables and solves for every column.
  const int least = refit_rounds(recipe.quality);
  const int rounds = importance.empty() ? affordable_rounds(recipe, rows * vectors) : least;
  // Only what the rounds beyond the usual number can cool down again: without any, noise gains nothing.
  constexpr double kHottest = 0.1;
  constexpr int kColdRounds = 3;
  const double hottest = kHottest * (rounds - least) / rounds;
  for (int round = 0; round < rounds; round++) {
    order_by_energy(books);
    const VectorEncoder encoder(books, beam_width(recipe), importance);
    if (!encoder.importance().empty()) {
      for_chunks(vectors, kColumnChunk, [&](std::size_t begin, std::size_t end) {
        encoder.encode_columns(x.data(), rows, cols, begin, end, indices.data());
      });
    }
    for_chunks(rows, row_chunk, [&](std::size_t begin, std::size_t end) {
      std::uint8_t* const out = indices.data() + begin * vectors * recipe.stages;
      if (encoder.importance().empty()) encoder.encode(x.data() + begin * cols, end - begin, cols, out);
      for (std::size_t r = begin; r < end; r++) {
        const RowSums sums =
            encoder.weighted_sums(x.data() + r * cols, cols, indices.data() + r * vectors * recipe.stages);
        gains[r] = sums.yy > 0 ? sums.wy / sums.yy : 1;
      }
    });
    joint_refit(x, cols, indices, gains, encoder.importance(), books);
    if (round % 2 == 1) {
      // Rows are divided by their root mean square, so the books must carry what the gains have drifted to.
      std::vector<double> sorted = gains;
      std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
      const double gain = sorted[sorted.size() / 2];
      for (float& value : books.values) value = static_cast<float>(value * gain);
    }
    const double hot_rounds = rounds - kColdRounds;
    if (round < hot_rounds && hottest > 0) shake(books, hottest * std::sqrt(1 - round / hot_rounds), random);
  }
  order_by_energy(books);
  for (float& value : books.values)
    value = half_to_float(float_to_half(std::clamp(value, -65504.f, 65504.f)));
  return books;
}

}  // namespace waste::convert
