// One routed expert on disk: a 48-byte header, blocked codebook indices of three matrices, one f16 scale a
// row, zero padding to a multiple of 4096 bytes. Every offset follows from the model and the recipe; a header
// only has to agree with it, and is never followed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "container/format/model_config.h"
#include "container/format/types.h"

namespace waste {

inline constexpr std::uint32_t kRecordMagic = 0x50584557;  // "WEXP"
inline constexpr std::uint32_t kRecordHeaderBytes = 48;

/// Where everything lies in a record; the same for all experts of a container. Offsets from the record's
/// start, sizes in bytes; arrays by MatrixKind.
struct ExpertLayout {
  ExpertQuant quant;
  std::array<std::uint32_t, kMatrixKinds> rows{};  // output features
  std::array<std::uint32_t, kMatrixKinds> cols{};  // input features
  std::array<std::uint32_t, kMatrixKinds> index_offset{};
  std::array<std::uint32_t, kMatrixKinds> index_bytes{};
  std::array<std::uint32_t, kMatrixKinds> first_scale{};  // element index into the scales
  std::uint32_t scale_offset = 0;
  std::uint32_t scale_count = 0;
  std::uint32_t payload_end = 0;   // end of the scales: the crc32 covers [48, payload_end)
  std::uint32_t record_bytes = 0;  // payload_end rounded up to 4096
};

/// Throws Error(Data) when a record of these sizes would not fit the header's 32-bit fields.
ExpertLayout expert_layout(const ModelConfig& config, const ExpertQuant& quant);

/// What a record says of itself beyond what the layout fixes.
struct RecordId {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::uint32_t codebook_base = 0;  // stored modulo 65536
};

/// Fills bytes [0, 48) of `record` (record_bytes long, payload and padding already in place), crc32 included.
void write_record_header(std::span<std::uint8_t> record, const ExpertLayout& layout, const RecordId& id);

/// Compares bytes [0, 48) with what they must be; the first field that differs is Error(Data) whose message
/// reads
/// "<where>: record header: <field>: expected ..., found ...". The crc32 field is not judged here.
void check_record_header(std::span<const std::uint8_t> header, const ExpertLayout& layout, const RecordId& id,
                         std::string_view where);

/// The crc32 that the header claims, and the one the payload has.
std::uint32_t stored_crc(std::span<const std::uint8_t> header);
std::uint32_t payload_crc(std::span<const std::uint8_t> record, const ExpertLayout& layout);

/// Header and crc32 together; Error(Data) as above.
void check_record(std::span<const std::uint8_t> record, const ExpertLayout& layout, const RecordId& id,
                  std::string_view where);

}  // namespace waste
