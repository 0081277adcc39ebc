#include "convert/encoder/kmeans.h"

#include <algorithm>

#include "convert/encoder/chunks.h"
#include "convert/encoder/kernels.h"

namespace waste::convert {

void train_stage(std::span<const float> x, Codebooks& books, int stage, int rounds, Random& random) {
  const std::size_t count = x.size() / kVectorDim;
  float* const book = books.values.data() + static_cast<std::size_t>(stage) * books.entries * kVectorDim;
  const auto restart = [&](int entry) {
    std::copy_n(x.data() + random.below(count) * kVectorDim, kVectorDim, book + entry * kVectorDim);
  };
  for (int c = 0; c < books.entries; c++) restart(c);
  std::vector<std::uint8_t> nearest(count);
  for (int round = 0; round < rounds; round++) {
    const BookTables tables(books, {}, false);
    for_chunks(count, kChunkVectors, [&](std::size_t begin, std::size_t end) {
      nearest_entries(tables, stage, x.data() + begin * kVectorDim, end - begin, nearest.data() + begin);
    });
    std::vector<double> sums(static_cast<std::size_t>(books.entries) * kVectorDim);
    std::vector<std::size_t> members(books.entries);
    for (std::size_t v = 0; v < count; v++) {
      members[nearest[v]]++;
      for (int d = 0; d < kVectorDim; d++) sums[nearest[v] * kVectorDim + d] += x[v * kVectorDim + d];
    }
    for (int c = 0; c < books.entries; c++) {
      if (members[c] == 0) {
        restart(c);
        continue;
      }
      for (int d = 0; d < kVectorDim; d++) {
        book[c * kVectorDim + d] =
            static_cast<float>(sums[c * kVectorDim + d] / static_cast<double>(members[c]));
      }
    }
  }
}

void subtract_nearest(std::vector<float>& x, const Codebooks& books, int stage) {
  const BookTables tables(books, {}, false);
  for_chunks(x.size() / kVectorDim, kChunkVectors, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint8_t> nearest(end - begin);
    nearest_entries(tables, stage, x.data() + begin * kVectorDim, end - begin, nearest.data());
    for (std::size_t v = begin; v < end; v++) {
      for (int d = 0; d < kVectorDim; d++) {
        x[v * kVectorDim + d] -= tables.rows(stage)[nearest[v - begin] * kVectorDim + d];
      }
    }
  });
}

}  // namespace waste::convert
