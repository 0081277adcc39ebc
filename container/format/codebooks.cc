#include "container/format/codebooks.h"

#include <algorithm>

#include "container/core/bytes.h"
#include "container/core/error.h"
#include "container/core/half.h"

namespace waste {

// codebook := u32 magic "WCBK", u16 id (position modulo 65536), u8 format, u8 vec_dim, u32 entries, u32 0,
//             entries x 8 f16

namespace {

// Existing writers put 4 here whatever the recipe; the codes of the other recipes are read as well.
constexpr std::uint8_t kCodebookFormat = 4;

}  // namespace

void write_codebook(std::span<std::uint8_t> out, std::uint32_t id, const ExpertQuant& quant,
                    std::span<const std::uint16_t> values) {
  std::uint8_t* p = out.data();
  store_u32(p, kCodebookMagic);
  store_u16(p + 4, static_cast<std::uint16_t>(id));
  p[6] = kCodebookFormat;
  p[7] = kVecDim;
  store_u32(p + 8, quant.entries);
  store_u32(p + 12, 0);
  for (std::size_t i = 0; i < values.size(); ++i) store_u16(p + kCodebookHeaderBytes + 2 * i, values[i]);
}

namespace {

void check_header(const std::uint8_t* p, std::uint32_t id, const ExpertQuant& quant, std::string_view where) {
  const auto expect = [&](std::uint64_t found, std::uint64_t expected, const char* field) {
    if (found != expected) {
      fail_data("{}: codebook {}: {}: expected {}, found {}", where, id, field, expected, found);
    }
  };
  expect(load_u32(p), kCodebookMagic, "magic");
  expect(load_u16(p + 4), id & 0xFFFFu, "id");
  if (p[6] != 5 && p[6] != 8) expect(p[6], kCodebookFormat, "format");
  expect(p[7], kVecDim, "vec_dim");
  expect(load_u32(p + 8), quant.entries, "entries");
  expect(load_u32(p + 12), 0, "reserved field");
}

}  // namespace

Codebooks Codebooks::parse(std::span<const std::uint8_t> file, const ExpertQuant& quant,
                           std::string_view where) {
  const std::uint64_t size = codebook_bytes(quant);
  if (file.size() % size != 0) {
    fail_data("{}: {} bytes, which is not a whole number of {}-byte codebooks", where, file.size(), size);
  }
  const std::uint64_t count = file.size() / size;
  const std::size_t values = std::size_t{quant.entries} * kVecDim;
  Codebooks books;
  books.quant_ = quant;
  books.values_.resize(count * values);
  books.used_.resize(count);
  for (std::uint32_t id = 0; id < count; ++id) {
    const auto entry = file.subspan(id * size, size);
    if (std::all_of(entry.begin(), entry.end(), [](std::uint8_t b) { return b == 0; })) continue;
    check_header(entry.data(), id, quant, where);
    for (std::size_t i = 0; i < values; ++i) {
      const std::uint16_t h = load_u16(entry.data() + kCodebookHeaderBytes + 2 * i);
      if (!half_is_finite(h)) fail_data("{}: codebook {}: entry {} is not finite", where, id, i / kVecDim);
      books.values_[id * values + i] = half_to_float(h);
    }
    books.used_[id] = true;
  }
  return books;
}

std::span<const float> Codebooks::book(std::uint32_t id) const {
  if (!used(id)) fail_data("codebook {} is needed but absent from the {} in the file", id, count());
  const std::size_t values = std::size_t{quant_.entries} * kVecDim;
  return {values_.data() + id * values, values};
}

std::span<const float> Codebooks::books(std::uint32_t base, MatrixKind kind) const {
  const std::uint32_t first = base + static_cast<std::uint32_t>(kind) * quant_.stages;
  for (std::uint32_t s = 0; s < quant_.stages; ++s) book(first + s);
  const std::size_t values = std::size_t{quant_.entries} * kVecDim;
  return {values_.data() + first * values, quant_.stages * values};
}

}  // namespace waste
