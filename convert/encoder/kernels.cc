#include "convert/encoder/kernels.h"

namespace waste::convert {

BookTables::BookTables(const Codebooks& books, std::span<const float> weights)
    : stages_(books.stages), entries_(books.entries) {
  const std::size_t total = static_cast<std::size_t>(stages_) * entries_;
  rows_at_ = total * kVectorDim;
  norms_at_ = 2 * rows_at_;
  products_at_ = norms_at_ + total;
  const std::size_t pairs = static_cast<std::size_t>(stages_) * (stages_ - 1) / 2;
  memory_ = AlignedBuffer((products_at_ + pairs * entries_ * entries_) * sizeof(float));
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
      out[norms_at_ + s * entries_ + c] = static_cast<float>(norm / 2);
    }
  }
  float* product = out + products_at_;
  for (int later = 1; later < stages_; later++) {
    for (int earlier = 0; earlier < later; earlier++) {
      for (int c = 0; c < entries_; c++) {
        const float* a = rows(earlier) + c * kVectorDim;
        for (int e = 0; e < entries_; e++) {
          float sum = 0;
          for (int d = 0; d < kVectorDim; d++) sum += a[d] * dimension(later, d)[e];
          *product++ = sum;
        }
      }
    }
  }
}

void encode_vectors(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                    std::uint8_t* indices) {
  if (beam.width == 1) return scalar::encode_greedy(tables, x, count, indices);
  scalar::encode_beam(tables, beam, x, count, indices);
}

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  scalar::nearest_entries(tables, stage, x, count, indices);
}

}  // namespace waste::convert
