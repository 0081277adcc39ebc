#include "container/codec/rvq.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "container/core/bytes.h"
#include "container/core/half.h"

namespace waste {

namespace {

// Offset of the indices of vector v of row r in the blocked layout.
std::size_t packed_at(const ExpertQuant& quant, std::uint32_t vectors, std::uint32_t r, std::uint32_t v) {
  return ((std::size_t{r / kIndexBlock} * vectors + v) * kIndexBlock + r % kIndexBlock) *
         quant.bytes_per_vector();
}

void put_packed(const std::uint8_t* s, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(s[0] | s[1] << 6);
  out[1] = static_cast<std::uint8_t>(s[1] >> 2 | s[2] << 4);
  out[2] = static_cast<std::uint8_t>(s[2] >> 4 | s[3] << 2);
}

void get(const ExpertQuant& quant, const std::uint8_t* b, std::uint8_t* s) {
  if (quant.index_bits == 8) {
    std::copy_n(b, quant.stages, s);
    return;
  }
  s[0] = b[0] & 63;
  s[1] = static_cast<std::uint8_t>(b[0] >> 6 | (b[1] & 15) << 2);
  s[2] = static_cast<std::uint8_t>(b[1] >> 4 | (b[2] & 3) << 4);
  s[3] = b[2] >> 2;
}

// Eight-bit indices, as many as the constant says: a run-time count costs a call for every few bytes.
template <std::uint32_t kStages>
void put_plain(const std::uint8_t* s, std::uint8_t* out) {
  for (std::uint32_t i = 0; i < kStages; ++i) out[i] = s[i];
}

template <typename Put>
void pack_rows(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t vectors,
               std::span<const std::uint8_t> plain, std::span<std::uint8_t> out, const Put& put) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = plain.data() + std::size_t{r} * vectors * quant.stages;
    for (std::uint32_t v = 0; v < vectors; ++v) {
      put(row + v * quant.stages, out.data() + packed_at(quant, vectors, r, v));
    }
  }
}

}  // namespace

void pack_indices(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                  std::span<const std::uint8_t> plain, std::span<std::uint8_t> out) {
  const std::uint32_t vectors = cols / kVecDim;
  if (rows % kIndexBlock != 0) std::fill(out.begin(), out.end(), std::uint8_t{0});
  if (quant.index_bits != 8) {
    pack_rows(quant, rows, vectors, plain, out, put_packed);
  } else if (quant.stages == 3) {
    pack_rows(quant, rows, vectors, plain, out, put_plain<3>);
  } else {
    pack_rows(quant, rows, vectors, plain, out, put_plain<2>);
  }
}

void unpack_indices(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                    std::span<const std::uint8_t> packed, std::span<std::uint8_t> plain) {
  const std::uint32_t vectors = cols / kVecDim;
  for (std::uint32_t r = 0; r < rows; ++r) {
    std::uint8_t* row = plain.data() + std::size_t{r} * vectors * quant.stages;
    for (std::uint32_t v = 0; v < vectors; ++v) {
      get(quant, packed.data() + packed_at(quant, vectors, r, v), row + v * quant.stages);
    }
  }
}

void decode_rvq(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                std::span<const float> books, std::span<float> out) {
  const std::uint32_t vectors = cols / kVecDim;
  std::array<std::uint8_t, 4> index{};
  for (std::uint32_t r = 0; r < rows; ++r) {
    const float scale = half_to_float(load_u16(scales.data() + 2 * std::size_t{r}));
    for (std::uint32_t v = 0; v < vectors; ++v) {
      get(quant, packed.data() + packed_at(quant, vectors, r, v), index.data());
      std::array<float, kVecDim> sum{};
      for (std::uint32_t s = 0; s < quant.stages; ++s) {
        const float* entry = books.data() + (std::size_t{s} * quant.entries + index[s]) * kVecDim;
        for (std::uint32_t i = 0; i < kVecDim; ++i) sum[i] += entry[i];
      }
      float* w = out.data() + std::size_t{r} * cols + v * kVecDim;
      for (std::uint32_t i = 0; i < kVecDim; ++i) w[i] = sum[i] * scale;
    }
  }
}

}  // namespace waste
