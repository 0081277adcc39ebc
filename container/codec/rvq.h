// Residual vector quantisation of expert matrices: the layout of indices, and what they decode to.
#pragma once

#include <cstdint>
#include <span>

#include "container/format/types.h"

namespace waste {

/// Plain indices [rows][cols/8][stages] to the record's layout [rows/64 rounded up][cols/8][64] x
/// bytes_per_vector. `out` is overwritten whole; rows past the end become zero. Sizes must agree with the
/// arguments.
void pack_indices(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                  std::span<const std::uint8_t> plain, std::span<std::uint8_t> out);

/// The inverse. With 6-bit indices every value is below 64 by construction; 8-bit ones are below 256, the
/// size of their books, so no input can point outside a book.
void unpack_indices(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                    std::span<const std::uint8_t> packed, std::span<std::uint8_t> plain);

/// W[r][8v + i] = (sum over stages s, in order, of book[s][index][i]) * scale[r], all in float32: exact to
/// the bit on every machine. `packed` is one matrix's indices as in a record, `scales` its `rows` halves
/// (little-endian bytes), `books` [stages][entries][8], `out` [rows][cols].
void decode_rvq(const ExpertQuant& quant, std::uint32_t rows, std::uint32_t cols,
                std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                std::span<const float> books, std::span<float> out);

}  // namespace waste
