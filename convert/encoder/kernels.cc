#include "convert/encoder/kernels.h"

#include <bit>
#include <cassert>

#include "container/core/simd.h"

namespace waste::convert {

namespace {

bool plain() {
  return simd_level() == SimdLevel::Scalar;
}

}  // namespace

BookTables::BookTables(const Codebooks& books, std::span<const float> weights, bool products)
    : stages_(books.stages), entries_(books.entries), with_products_(products) {
  assert(entries_ >= 64 && entries_ <= kMaxEntries && std::has_single_bit(static_cast<unsigned>(entries_)));
  assert(stages_ >= 2 && stages_ <= kMaxStages);
  const std::size_t total = static_cast<std::size_t>(stages_) * entries_;
  const std::size_t pairs = products ? static_cast<std::size_t>(stages_) * (stages_ - 1) / 2 : 0;
  rows_at_ = total * kVectorDim;
  norms_at_ = 2 * rows_at_;
  integer_norms_at_ = norms_at_ + total;
  products_at_ = integer_norms_at_ + total;
  integer_products_at_ = products_at_ + pairs * entries_ * entries_;
  memory_ = AlignedBuffer((integer_products_at_ + pairs * entries_ * entries_ / 2) * sizeof(float));
  fill(books, weights);
}

void BookTables::fill(const Codebooks& books, std::span<const float> weights) {
  assert(books.stages == stages_ && books.entries == entries_);
  float* const out = reinterpret_cast<float*>(memory_.data());
  for (int s = 0; s < stages_; s++) {
    for (int c = 0; c < entries_; c++) {
      double norm = 0;
      for (int d = 0; d < kVectorDim; d++) {
        float value = books.book(s)[c * kVectorDim + d];
        if (!weights.empty()) value *= weights[d];
        out[(s * kVectorDim + d) * entries_ + c] = value;
        out[rows_at_ + (s * entries_ + c) * kVectorDim + d] = value;
        norm += static_cast<double>(value) * value;
      }
      const float half = static_cast<float>(norm / 2);
      out[norms_at_ + s * entries_ + c] = half;
      out[integer_norms_at_ + s * entries_ + c] = half <= kIntegerEntry ? half * kIntegerScale : 0x1p40f;
    }
  }
  if (!with_products_) return;
  float* product = out + products_at_;
  std::int16_t* integer = reinterpret_cast<std::int16_t*>(out + integer_products_at_);
  for (int later = 1; later < stages_; later++) {
    for (int earlier = 0; earlier < later; earlier++) {
      for (int c = 0; c < entries_; c++) {
        book_products(rows(earlier) + c * kVectorDim, dimension(later, 0), half_norms(later), entries_,
                      product, integer);
        product += entries_;
        integer += entries_;
      }
    }
  }
}

void encode_vectors(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                    std::uint8_t* indices) {
  if (beam.width == 1)
    return (plain() ? scalar::encode_greedy : simd::encode_greedy)(tables, x, count, indices);
  (plain() ? scalar::encode_beam : simd::encode_beam)(tables, beam, x, count, indices);
}

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  (plain() ? scalar::nearest_entries : simd::nearest_entries)(tables, stage, x, count, indices);
}

RowStats row_stats(const float* w, std::size_t cols) {
  return (plain() ? scalar::row_stats : simd::row_stats)(w, cols);
}

RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices) {
  return (plain() ? scalar::row_sums : simd::row_sums)(tables, w, weights, cols, indices);
}

void scale_row(const float* w, float factor, std::size_t cols, float* out) {
  (plain() ? scalar::scale_row : simd::scale_row)(w, factor, cols, out);
}

void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer) {
  (plain() ? scalar::book_products : simd::book_products)(a, columns, half_norms, entries, product, integer);
}

}  // namespace waste::convert
