// The inner loops of training and encoding: which entries of the books add up closest to a vector.
// Every path gives the same bits: explicit fma in dimension order, ties to the lower index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "container/core/memory.h"
#include "convert/encoder/codebooks.h"

namespace waste::convert {

/// Books laid out for the kernels, with the inner products between entries of different books:
/// |x - c_i - c_j|^2 / 2 = |x|^2/2 + (|c_i|^2/2 - x.c_i) + (|c_j|^2/2 - x.c_j) + c_i.c_j.
class BookTables {
 public:
  /// `weights`, when not empty, are eight factors by which every dimension of every entry is multiplied.
  explicit BookTables(const Codebooks& books, std::span<const float> weights = {});

  int stages() const { return stages_; }
  int entries() const { return entries_; }
  /// [entries] floats: one dimension of all entries.
  const float* dimension(int stage, int d) const { return floats() + (stage * kVectorDim + d) * entries_; }
  /// [entries][8] floats.
  const float* rows(int stage) const { return floats() + rows_at_ + stage * entries_ * kVectorDim; }
  /// [entries] floats: |c|^2 / 2.
  const float* half_norms(int stage) const { return floats() + norms_at_ + stage * entries_; }
  /// [entries] floats: c.e for all entries e of book `stage`, where c is `entry` of an earlier book.
  const float* products(int earlier, int entry, int stage) const {
    const std::size_t pair = static_cast<std::size_t>(stage * (stage - 1) / 2 + earlier);
    return floats() + products_at_ + (pair * entries_ + entry) * entries_;
  }

 private:
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data()); }

  int stages_, entries_;
  std::size_t rows_at_, norms_at_, products_at_;
  AlignedBuffer memory_;
};

/// Width 1 is greedy. Otherwise every partial sum within `margins[stage]` of that stage's best goes on to the
/// next stage, at most `width` of them.
struct Beam {
  int width = 1;
  std::array<float, kMaxStages> margins{};
};

inline constexpr int kMaxBeam = 64;

/// For each of `count` vectors `x` [count][8], the entries whose sum is closest: `indices` [count][stages].
void encode_vectors(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                    std::uint8_t* indices);

/// The entry of `stage` nearest to each vector.
void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices);

namespace scalar {
void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices);
void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices);
void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices);
}  // namespace scalar

}  // namespace waste::convert
