// The inner loops of training and encoding: which entries of the books add up closest to a vector.
// Every path gives the same bits: explicit fma in dimension order, ties to the lower index.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "container/core/memory.h"
#include "convert/encoder/codebooks.h"

namespace waste::convert {

// The beam scores most vectors in integers of 1/2048 with saturating sums, twice as many a register and a
// table half as large (it then fits the second-level cache: 1.4 times the speed, 0.01 points of error). What
// they cannot hold goes another way: vectors longer than kIntegerReach are scored in floats, and entries too
// long for any other vector are kept out of the integer tables.
inline constexpr float kIntegerScale = 2048;
inline constexpr float kIntegerReach = 28;     // |x|^2; one Gaussian vector in two thousand is longer
inline constexpr float kIntegerEntry = 15.5f;  // |c|^2 / 2
inline constexpr float kIntegerMax = 32767;

/// Books laid out for the kernels, with the inner products between entries of different books:
/// |x - c_i - c_j|^2 / 2 = |x|^2/2 + (|c_i|^2/2 - x.c_i) + (|c_j|^2/2 - x.c_j) + c_i.c_j.
/// The number of entries must be a power of two from 64 to 256.
class BookTables {
 public:
  /// `weights`, when not empty, are eight factors by which every dimension of every entry is multiplied.
  /// Without `products`, most of the work, a beam cannot use the tables.
  explicit BookTables(const Codebooks& books, std::span<const float> weights = {}, bool products = true);

  /// Makes the tables anew, of the same memory, for other weights or for books of the same shape.
  void fill(const Codebooks& books, std::span<const float> weights);

  int stages() const { return stages_; }
  int entries() const { return entries_; }
  /// [entries] floats: one dimension of all entries.
  const float* dimension(int stage, int d) const { return floats() + (stage * kVectorDim + d) * entries_; }
  /// [entries][8] floats.
  const float* rows(int stage) const { return floats() + rows_at_ + stage * entries_ * kVectorDim; }
  /// [entries] floats: |c|^2 / 2; for integer scores times kIntegerScale, and out of reach where c is too
  /// long.
  template <typename Score = float>
  const float* half_norms(int stage) const {
    return floats() + (std::is_same_v<Score, float> ? norms_at_ : integer_norms_at_) + stage * entries_;
  }
  /// [entries] scores: c.e for all entries e of book `stage`, where c is `entry` of an earlier book.
  template <typename Score>
  const Score* products(int earlier, std::uint32_t entry, int stage) const {
    const std::size_t pair = static_cast<std::size_t>(stage * (stage - 1) / 2 + earlier);
    const std::size_t at = (pair * entries_ + entry) * entries_;
    if constexpr (std::is_same_v<Score, float>) {
      return floats() + products_at_ + at;
    } else {
      return reinterpret_cast<const std::int16_t*>(floats() + integer_products_at_) + at;
    }
  }

 private:
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data()); }

  int stages_, entries_;
  bool with_products_;
  std::size_t rows_at_, norms_at_, integer_norms_at_, products_at_, integer_products_at_;  // in floats
  AlignedBuffer memory_;
};

/// Width 1 is greedy. Otherwise every partial sum within `margins[stage]` of that stage's best goes on to the
/// next stage, at most `width` of them.
struct Beam {
  int width = 1;
  std::array<float, kMaxStages> margins{};

  template <typename Score>
  Score margin(int stage) const {
    if constexpr (std::is_same_v<Score, float>) return margins[stage];
    return static_cast<Score>(std::min(std::nearbyint(margins[stage] * kIntegerScale), kIntegerMax));
  }
};

/// The next smaller margin to try when too much lies within one; ends at 0.
inline float halved(float margin) {
  return margin < 1e-6f ? 0 : margin / 2;
}
inline std::int16_t halved(std::int16_t margin) {
  return static_cast<std::int16_t>(margin / 2);
}

inline constexpr int kMaxBeam = 128;
inline constexpr int kMaxEntries = 256;

/// Whether a vector's scores fit integers.
inline bool fits_integers(const float* x) {
  const float low = (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]);
  const float high = (x[4] * x[4] + x[5] * x[5]) + (x[6] * x[6] + x[7] * x[7]);
  return low + high <= kIntegerReach;
}

/// For each of `count` vectors `x` [count][8], the entries whose sum is closest: `indices` [count][stages].
void encode_vectors(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                    std::uint8_t* indices);

/// The entry of `stage` nearest to each vector.
void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices);

/// Of one row, or of whole vectors of it.
struct RowStats {
  double energy = 0;  // sum of w^2
  float amax = 0;
};

/// What a row's scale is refitted from.
struct RowSums {
  double ww = 0;  // sum of w^2
  double wy = 0;  // w times decoded at scale 1
  double yy = 0;

  /// Squared error at the given scale.
  double error(double scale) const { return ww - 2 * scale * wy + scale * scale * yy; }
};

/// `cols` is a multiple of 8. Sums are eight partial sums, one a dimension, in double.
RowStats row_stats(const float* w, std::size_t cols);
/// `weights` [cols] multiply every square and product; null for none.
RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices);
/// out = w * factor.
void scale_row(const float* w, float factor, std::size_t cols, float* out);

/// Products of one entry `a` [8] with all entries of a book: `columns` [8][entries] and `half_norms`
/// [entries] as in BookTables. `product` [entries] adds up dimension by dimension, without fma; `integer`
/// [entries] is that times kIntegerScale, to the nearest even, saturated, and 0 for entries out of an
/// integer's reach.
void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer);

// The two implementations. `simd` is for CPUs above SimdLevel::Scalar.
namespace scalar {
void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices);
void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices);
void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices);
RowStats row_stats(const float* w, std::size_t cols);
RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices);
void scale_row(const float* w, float factor, std::size_t cols, float* out);
void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer);
}  // namespace scalar

namespace simd {
void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices);
void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices);
void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices);
RowStats row_stats(const float* w, std::size_t cols);
RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices);
void scale_row(const float* w, float factor, std::size_t cols, float* out);
void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer);
}  // namespace simd

}  // namespace waste::convert
