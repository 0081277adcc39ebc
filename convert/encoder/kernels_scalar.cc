// The reference path. It is written for clarity; the vector paths must give the same bits.
#include <vector>

#include "convert/encoder/kernels.h"

namespace waste::convert::scalar {

namespace {

template <typename Score>
struct Partial {
  Score score;
  std::array<std::uint8_t, kMaxStages> path;
};

float add(float a, float b) {
  return a + b;
}
std::int16_t add(std::int16_t a, std::int16_t b) {
  return static_cast<std::int16_t>(std::clamp(a + b, -32768, 32767));
}

// |c|^2/2 - x.c of every entry.
void distances(const BookTables& tables, int stage, const float* x, const float* half_norms, float* out) {
  const int entries = tables.entries();
  std::copy_n(half_norms, entries, out);
  for (int d = 0; d < kVectorDim; d++) {
    const float* column = tables.dimension(stage, d);
    for (int c = 0; c < entries; c++) out[c] = std::fma(-x[d], column[c], out[c]);
  }
}

void scores_alone(const BookTables& tables, int stage, const float* x, float* scores) {
  distances(tables, stage, x, tables.half_norms(stage), scores);
}

void scores_alone(const BookTables& tables, int stage, const float* x, std::int16_t* scores) {
  std::array<float, kVectorDim> scaled;
  std::array<float, kMaxEntries> exact;
  for (int d = 0; d < kVectorDim; d++) scaled[d] = x[d] * kIntegerScale;
  distances(tables, stage, scaled.data(), tables.half_norms<std::int16_t>(stage), exact.data());
  for (int c = 0; c < tables.entries(); c++) {
    scores[c] = static_cast<std::int16_t>(std::nearbyint(std::min(exact[c], kIntegerMax)));
  }
}

template <typename Score>
class Search {
 public:
  Search(const BookTables& tables, const Beam& beam)
      : tables_(tables), beam_(beam), scores_(static_cast<std::size_t>(kMaxBeam) * tables.entries()) {}

  void encode(const float* x, std::uint8_t* indices) {
    kept_.assign(1, Partial<Score>{0, {}});
    for (int stage = 0; stage < tables_.stages(); stage++) extend(x, stage);
    std::copy_n(kept_[0].path.begin(), tables_.stages(), indices);
  }

 private:
  void extend(const float* x, int stage) {
    const int entries = tables_.entries();
    scores_alone(tables_, stage, x, alone_.data());
    for (std::size_t p = 0; p < kept_.size(); p++) {
      Score* const row = scores_.data() + p * entries;
      for (int c = 0; c < entries; c++) row[c] = add(alone_[c], kept_[p].score);
      for (int s = 0; s < stage; s++) {
        const Score* products = tables_.template products<Score>(s, kept_[p].path[s], stage);
        for (int c = 0; c < entries; c++) row[c] = add(row[c], products[c]);
      }
    }
    const std::size_t total = kept_.size() * entries;
    const auto end = scores_.begin() + static_cast<std::ptrdiff_t>(total);
    const auto best = std::min_element(scores_.begin(), end);
    next_.clear();
    if (stage + 1 == tables_.stages()) {
      keep(static_cast<std::size_t>(best - scores_.begin()), stage);
    } else {
      // Too many within the margin: halve it, in the end to the ties alone, of which the first are kept.
      Score margin = beam_.margin<Score>(stage);
      const auto near = [&](Score score) { return score <= add(*best, margin); };
      while (margin > 0 && std::count_if(scores_.begin(), end, near) > beam_.width) margin = halved(margin);
      for (std::size_t at = 0; at < total && next_.size() < static_cast<std::size_t>(beam_.width); at++) {
        if (near(scores_[at])) keep(at, stage);
      }
    }
    kept_.swap(next_);
  }

  void keep(std::size_t at, int stage) {
    Partial<Score> longer = kept_[at / tables_.entries()];
    longer.score = scores_[at];
    longer.path[stage] = static_cast<std::uint8_t>(at % tables_.entries());
    next_.push_back(longer);
  }

  const BookTables& tables_;
  const Beam& beam_;
  std::array<Score, kMaxEntries> alone_;
  std::vector<Score> scores_;
  std::vector<Partial<Score>> kept_, next_;
};

}  // namespace

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  std::array<float, kMaxEntries> scores;
  for (std::size_t v = 0; v < count; v++) {
    scores_alone(tables, stage, x + v * kVectorDim, scores.data());
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
  Search<float> floats(tables, beam);
  Search<std::int16_t> integers(tables, beam);
  for (std::size_t v = 0; v < count; v++) {
    std::uint8_t* const out = indices + v * tables.stages();
    if (fits_integers(x + v * kVectorDim)) {
      integers.encode(x + v * kVectorDim, out);
    } else {
      floats.encode(x + v * kVectorDim, out);
    }
  }
}

namespace {

double total(const std::array<double, kVectorDim>& partial) {
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

}  // namespace

RowStats row_stats(const float* w, std::size_t cols) {
  std::array<double, kVectorDim> energy{};
  RowStats stats;
  for (std::size_t i = 0; i < cols; i++) {
    const double value = w[i];
    energy[i % kVectorDim] = std::fma(value, value, energy[i % kVectorDim]);
    stats.amax = std::max(stats.amax, std::fabs(w[i]));
  }
  stats.energy = total(energy);
  return stats;
}

RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices) {
  std::array<double, kVectorDim> ww{}, wy{}, yy{};
  for (std::size_t i = 0; i < cols; i++) {
    const std::size_t d = i % kVectorDim;
    const std::uint8_t* entry = indices + i / kVectorDim * tables.stages();
    float sum = tables.rows(0)[entry[0] * kVectorDim + d];
    for (int s = 1; s < tables.stages(); s++) sum += tables.rows(s)[entry[s] * kVectorDim + d];
    const double value = w[i];
    const double y = sum;
    const double weight = weights != nullptr ? weights[i] : 1.0;
    ww[d] = std::fma(value * weight, value, ww[d]);
    wy[d] = std::fma(value * weight, y, wy[d]);
    yy[d] = std::fma(y * weight, y, yy[d]);
  }
  return {total(ww), total(wy), total(yy)};
}

void scale_row(const float* w, float factor, std::size_t cols, float* out) {
  for (std::size_t i = 0; i < cols; i++) out[i] = w[i] * factor;
}

void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer) {
  for (std::size_t e = 0; e < entries; e++) {
    float sum = 0;
    for (int d = 0; d < kVectorDim; d++) sum += a[d] * columns[d * entries + e];
    product[e] = sum;
    const float score = std::nearbyint(std::clamp(sum * kIntegerScale, -kIntegerMax, kIntegerMax));
    integer[e] = half_norms[e] <= kIntegerEntry ? static_cast<std::int16_t>(score) : std::int16_t{0};
  }
}

}  // namespace waste::convert::scalar
