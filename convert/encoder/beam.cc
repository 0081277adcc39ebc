#include "convert/encoder/beam.h"

#include <algorithm>
#include <vector>

#include "convert/encoder/random.h"

namespace waste::convert {

namespace {

constexpr int kCalibrationVectors = 256;

struct Partial {
  float score;
  std::array<int, kMaxStages> path;
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

int beam_width(Quality quality) {
  switch (quality) {
    case Quality::Fast:
      return 1;
    case Quality::Normal:
      return 8;
    case Quality::Best:
      return 32;
  }
  return 1;
}

Beam calibrate_beam(const BookTables& tables, int width) {
  Beam beam;
  if (width == 1) return beam;
  beam.width = std::min(4 * width, kMaxBeam);
  std::vector<float> gaps[kMaxStages];
  std::vector<Partial> kept, all;
  Random random(0x5EED);
  for (int v = 0; v < kCalibrationVectors; v++) {
    const auto x = synthetic_vector(tables, random);
    kept.assign(1, Partial{0, {}});
    for (int stage = 0; stage + 1 < tables.stages(); stage++) {
      all.clear();
      for (const Partial& partial : kept) {
        for (int c = 0; c < tables.entries(); c++) {
          Partial longer = partial;
          longer.path[stage] = c;
          const float* entry = tables.rows(stage) + c * kVectorDim;
          float dot = 0;
          for (int d = 0; d < kVectorDim; d++) dot += x[d] * entry[d];
          longer.score += tables.half_norms(stage)[c] - dot;
          for (int s = 0; s < stage; s++)
            longer.score += tables.products<float>(s, static_cast<std::uint32_t>(partial.path[s]), stage)[c];
          all.push_back(longer);
        }
      }
      const auto middle =
          all.begin() + std::min<std::ptrdiff_t>(width, static_cast<std::ptrdiff_t>(all.size()) - 1);
      const auto less = [](const Partial& a, const Partial& b) {
        return a.score != b.score ? a.score < b.score : a.path < b.path;
      };
      std::partial_sort(all.begin(), middle + 1, all.end(), less);
      gaps[stage].push_back(middle->score - all.front().score);
      kept.assign(all.begin(), middle);
    }
  }
  for (int stage = 0; stage + 1 < tables.stages(); stage++) {
    auto& gap = gaps[stage];
    std::nth_element(gap.begin(), gap.begin() + gap.size() / 2, gap.end());
    beam.margins[stage] = gap[gap.size() / 2];
  }
  return beam;
}

}  // namespace waste::convert
