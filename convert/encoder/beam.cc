#include "convert/encoder/beam.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "convert/encoder/random.h"

namespace waste::convert {

namespace {

constexpr int kCalibrationVectors = 128;

struct Partial {
  float score;
  std::array<std::uint32_t, kMaxStages> path;
};

// A random entry of every book, added up, and a rest as large as the last book's entries.
std::array<float, kVectorDim> synthetic_vector(const BookTables& tables, Random& random) {
  std::array<float, kVectorDim> x{};
  for (int s = 0; s <= tables.stages(); s++) {
    const int book = std::min(s, tables.stages() - 1);
    const float* entry = tables.rows(book) + random.below(tables.entries()) * kVectorDim;
    const float factor = s < tables.stages() ? 1.0f : random.next() >> 63 ? 0.5f : -0.5f;
    for (int d = 0; d < kVectorDim; d++) x[d] += factor * entry[d];
  }
  return x;
}

}  // namespace

int beam_width(const ExpertRecipe& recipe) {
  const int factor = recipe.stages == 2 ? 2 : 1;
  switch (recipe.quality) {
    case Quality::Fast:
      return 1;
    case Quality::Normal:
      return 8 * factor;
    case Quality::Best:
      return 32 * factor;
  }
  return 1;
}

Beam calibrate_beam(const BookTables& tables, int width) {
  Beam beam;
  if (width == 1) return beam;
  beam.width = std::min(4 * width, kMaxBeam);
  const int entries = tables.entries();
  std::array<std::vector<float>, kMaxStages> gaps;
  std::vector<Partial> kept, next;
  std::vector<std::pair<float, std::uint32_t>> scores;  // and partial * entries + entry
  Random random(0x5EED);
  for (int v = 0; v < kCalibrationVectors; v++) {
    const auto x = synthetic_vector(tables, random);
    kept.assign(1, Partial{0, {}});
    for (int stage = 0; stage + 1 < tables.stages(); stage++) {
      scores.clear();
      for (const Partial& partial : kept) {
        for (int c = 0; c < entries; c++) {
          const float* entry = tables.rows(stage) + c * kVectorDim;
          float score = partial.score + tables.half_norms(stage)[c];
          for (int d = 0; d < kVectorDim; d++) score -= x[d] * entry[d];
          for (int s = 0; s < stage; s++) score += tables.products<float>(s, partial.path[s], stage)[c];
          scores.emplace_back(score, static_cast<std::uint32_t>(scores.size()));
        }
      }
      const auto middle = scores.begin() + std::min<std::ptrdiff_t>(width, std::ssize(scores) - 1);
      std::nth_element(scores.begin(), middle, scores.end());
      gaps[stage].push_back(middle->first - std::min_element(scores.begin(), middle)->first);
      next.clear();
      for (auto found = scores.begin(); found != middle; ++found) {
        next.push_back(kept[found->second / entries]);
        next.back().score = found->first;
        next.back().path[stage] = found->second % entries;
      }
      kept.swap(next);
    }
  }
  for (int stage = 0; stage + 1 < tables.stages(); stage++) {
    auto& gap = gaps[stage];
    const auto middle = gap.begin() + std::ssize(gap) / 2;
    std::nth_element(gap.begin(), middle, gap.end());
    beam.margins[stage] = *middle;
  }
  return beam;
}

}  // namespace waste::convert
