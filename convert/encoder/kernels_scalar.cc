// The reference path. It is written for clarity; the vector paths must give the same bits.
#include <algorithm>
#include <cmath>

#include "convert/encoder/kernels.h"

namespace waste::convert::scalar {

namespace {

struct Partial {
  float score;
  std::array<std::uint8_t, kMaxStages> path;
};

void all_scores(const BookTables& tables, int stage, const float* x, float* scores) {
  const int entries = tables.entries();
  std::copy_n(tables.half_norms(stage), entries, scores);
  for (int d = 0; d < kVectorDim; d++) {
    const float* column = tables.dimension(stage, d);
    for (int c = 0; c < entries; c++) scores[c] = std::fma(-x[d], column[c], scores[c]);
  }
}

}  // namespace

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  std::array<float, 256> scores;
  for (std::size_t v = 0; v < count; v++) {
    all_scores(tables, stage, x + v * kVectorDim, scores.data());
    indices[v] = static_cast<std::uint8_t>(
        std::min_element(scores.begin(), scores.begin() + tables.entries()) - scores.begin());
  }
}

void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices) {
  std::array<float, kVectorDim> rest;
  for (std::size_t v = 0; v < count; v++) {
    std::copy_n(x + v * kVectorDim, kVectorDim, rest.begin());
    for (int s = 0; s < tables.stages(); s++) {
      std::uint8_t& index = indices[v * tables.stages() + s];
      scalar::nearest_entries(tables, s, rest.data(), 1, &index);
      for (int d = 0; d < kVectorDim; d++) rest[d] -= tables.rows(s)[index * kVectorDim + d];
    }
  }
}

void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices) {
  const int entries = tables.entries();
  const int last = tables.stages() - 1;
  std::vector<float> scores(static_cast<std::size_t>(kMaxBeam) * entries);
  std::array<float, 256> alone;
  std::vector<Partial> kept, next;
  for (std::size_t v = 0; v < count; v++) {
    kept.assign(1, Partial{0, {}});
    for (int stage = 0; stage <= last; stage++) {
      all_scores(tables, stage, x + v * kVectorDim, alone.data());
      for (std::size_t p = 0; p < kept.size(); p++) {
        float* const row = scores.data() + p * entries;
        for (int c = 0; c < entries; c++) row[c] = alone[c] + kept[p].score;
        for (int s = 0; s < stage; s++) {
          const float* products = tables.products(s, kept[p].path[s], stage);
          for (int c = 0; c < entries; c++) row[c] += products[c];
        }
      }
      const auto end = scores.begin() + static_cast<std::ptrdiff_t>(kept.size()) * entries;
      const auto best = std::min_element(scores.begin(), end);
      const auto extend = [&](std::size_t at) {
        Partial longer = kept[at / entries];
        longer.score = scores[at];
        longer.path[stage] = static_cast<std::uint8_t>(at % entries);
        return longer;
      };
      next.clear();
      if (stage == last) {
        next.push_back(extend(static_cast<std::size_t>(best - scores.begin())));
      } else {
        // Too many within the margin: halve it, in the end to the ties alone, of which the first are kept.
        float margin = beam.margins[stage];
        std::ptrdiff_t within;
        while ((within = std::count_if(scores.begin(), end, [&](float s) { return s <= *best + margin; })) >
               beam.width) {
          if (margin == 0) break;
          margin = margin < 1e-6f ? 0 : margin / 2;
        }
        for (std::size_t at = 0;
             at < kept.size() * entries && next.size() < static_cast<std::size_t>(beam.width); at++) {
          if (scores[at] <= *best + margin) next.push_back(extend(at));
        }
      }
      kept.swap(next);
    }
    std::copy_n(kept[0].path.begin(), tables.stages(), indices + v * tables.stages());
  }
}

}  // namespace waste::convert::scalar
