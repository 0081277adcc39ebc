// codebooks.bin: fixed-size entries indexed by position. A layer's books lie at its codebook_base: gate's
// stages, then up's, then down's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "container/format/types.h"

namespace waste {

inline constexpr std::uint32_t kCodebookMagic = 0x4B424357;  // "WCBK"
inline constexpr std::uint32_t kCodebookHeaderBytes = 16;

/// Bytes of one codebook: header and entries x 8 halves.
constexpr std::uint64_t codebook_bytes(const ExpertQuant& quant) {
  return kCodebookHeaderBytes + std::uint64_t{quant.entries} * kVecDim * 2;
}

/// Writes one codebook at position `id`; `values` is [entries][8] halves, `out` codebook_bytes(quant) long.
void write_codebook(std::span<std::uint8_t> out, std::uint32_t id, const ExpertQuant& quant,
                    std::span<const std::uint16_t> values);

/// All codebooks of a container, decoded to float32.
class Codebooks {
 public:
  /// Parses the whole file's bytes. Size not a multiple of an entry, wrong magic, id, format, dimension or
  /// entry count, or a value that is not finite is Error(Data) naming the position. An all-zero entry is
  /// unused.
  static Codebooks parse(std::span<const std::uint8_t> file, const ExpertQuant& quant,
                         std::string_view where);

  std::uint32_t count() const { return static_cast<std::uint32_t>(used_.size()); }
  bool used(std::uint32_t id) const { return id < used_.size() && used_[id]; }
  /// [entries][8] values of one book; an unused or absent one is Error(Data).
  std::span<const float> book(std::uint32_t id) const;
  /// [stages][entries][8] values for one matrix kind of the layer at `base`.
  std::span<const float> books(std::uint32_t base, MatrixKind kind) const;

 private:
  ExpertQuant quant_;
  std::vector<float> values_;  // [count][entries][8]
  std::vector<bool> used_;
};

}  // namespace waste
