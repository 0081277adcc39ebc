#include "container/format/expert_record.h"

#include <limits>

#include "container/core/bytes.h"
#include "container/core/checked.h"
#include "container/core/checksum.h"

namespace waste {

// record := header payload padding
//   header   0 u32 magic "WEXP"      16 u32 record length in 4096-byte blocks
//            4 u16 layer             20 u32 offset of the gate indices
//            6 u16 expert            24 u32 offset of the up indices
//            8 u8  format (4, 5, 8)  28 u32 offset of the down indices
//            9 u8  flags             32 u32 offset of the scales
//           10 u16 codebook base     36 u32 crc32 of the payload
//           12 u16 lowrank id, 0     40 u32 x 2, 0
//           14 u16 0
//   payload  indices(gate) indices(up) indices(down) scales(gate, up, down)
//   indices  [rows/64 rounded up][cols/8][64] x bytes_per_vector; rows past the end are zero
//   scales   f16 a row
//   padding  zeros up to a multiple of 4096

ExpertLayout expert_layout(const ModelConfig& config, const ExpertQuant& quant) {
  ExpertLayout l;
  l.quant = quant;
  l.rows = {config.moe_intermediate_size, config.moe_intermediate_size, config.expert_width};
  l.cols = {config.expert_width, config.expert_width, config.moe_intermediate_size};
  // The config bounds every dimension by 2^18, so nothing below leaves 64 bits.
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() - kRecordBlock;
  std::uint64_t at = kRecordHeaderBytes;
  std::uint64_t scales = 0;
  for (std::uint32_t k = 0; k < kMatrixKinds; ++k) {
    const std::uint64_t bytes =
        round_up(l.rows[k], kIndexBlock) * (l.cols[k] / kVecDim) * quant.bytes_per_vector();
    l.index_offset[k] = static_cast<std::uint32_t>(at);
    l.index_bytes[k] = static_cast<std::uint32_t>(bytes);
    l.first_scale[k] = static_cast<std::uint32_t>(scales);
    at += bytes;
    scales += l.rows[k];
  }
  const std::uint64_t end = at + 2 * scales;
  if (end > kMost) fail_data("an expert record of {} bytes does not fit the format's 32-bit offsets", end);
  l.scale_offset = static_cast<std::uint32_t>(at);
  l.scale_count = static_cast<std::uint32_t>(scales);
  l.payload_end = static_cast<std::uint32_t>(end);
  l.record_bytes = static_cast<std::uint32_t>(round_up(end, kRecordBlock));
  return l;
}

void write_record_header(std::span<std::uint8_t> record, const ExpertLayout& layout, const RecordId& id) {
  std::uint8_t* p = record.data();
  store_u32(p, kRecordMagic);
  store_u16(p + 4, static_cast<std::uint16_t>(id.layer));
  store_u16(p + 6, static_cast<std::uint16_t>(id.expert));
  p[8] = layout.quant.header_format();
  p[9] = 0;
  store_u16(p + 10, static_cast<std::uint16_t>(id.codebook_base));
  store_u32(p + 12, 0);
  store_u32(p + 16, layout.record_bytes / kRecordBlock);
  for (std::uint32_t k = 0; k < kMatrixKinds; ++k) store_u32(p + 20 + 4 * k, layout.index_offset[k]);
  store_u32(p + 32, layout.scale_offset);
  store_u32(p + 36, payload_crc(record, layout));
  store_u64(p + 40, 0);
}

namespace {

constexpr unsigned kFlagSubstitute =
    2;  // hints of the engine that wrote it; the payload is read the same way
constexpr unsigned kFlagHot = 4;

void expect(std::uint64_t found, std::uint64_t expected, std::string_view field, std::string_view where) {
  if (found != expected)
    fail_data("{}: record header: {}: expected {}, found {}", where, field, expected, found);
}

}  // namespace

void check_record_header(std::span<const std::uint8_t> header, const ExpertLayout& layout, const RecordId& id,
                         std::string_view where) {
  const std::uint8_t* p = header.data();
  if (load_u32(p) != kRecordMagic) {
    fail_data("{}: record header: magic: expected {:#010x}, found {:#010x}", where, kRecordMagic,
              load_u32(p));
  }
  expect(load_u16(p + 4), id.layer, "layer", where);
  expect(load_u16(p + 6), id.expert, "expert", where);
  // 5 is the other legal spelling of two one-byte stages.
  const bool spelled_vq2r = p[8] == 5 && layout.quant.stages == 2 && layout.quant.index_bits == 8;
  if (!spelled_vq2r) expect(p[8], layout.quant.header_format(), "format", where);
  if ((p[9] & ~(kFlagSubstitute | kFlagHot)) != 0) {
    fail_data(
        "{}: record header: flags: {:#04x} asks for bf16 values or something newer, which is not supported",
        where, p[9]);
  }
  expect(load_u16(p + 10), id.codebook_base & 0xFFFFu, "codebook base", where);
  expect(load_u16(p + 12), 0, "lowrank id", where);
  expect(load_u16(p + 14), 0, "reserved field at byte 14", where);
  expect(load_u32(p + 16), layout.record_bytes / kRecordBlock, "length in blocks", where);
  expect(load_u32(p + 20), layout.index_offset[0], "offset of the gate indices", where);
  expect(load_u32(p + 24), layout.index_offset[1], "offset of the up indices", where);
  expect(load_u32(p + 28), layout.index_offset[2], "offset of the down indices", where);
  expect(load_u32(p + 32), layout.scale_offset, "offset of the scales", where);
  expect(load_u64(p + 40), 0, "reserved field at byte 40", where);
}

std::uint32_t stored_crc(std::span<const std::uint8_t> header) {
  return load_u32(header.data() + 36);
}

std::uint32_t payload_crc(std::span<const std::uint8_t> record, const ExpertLayout& layout) {
  return crc32(record.subspan(kRecordHeaderBytes, layout.payload_end - kRecordHeaderBytes));
}

void check_record(std::span<const std::uint8_t> record, const ExpertLayout& layout, const RecordId& id,
                  std::string_view where) {
  check_record_header(record.first(kRecordHeaderBytes), layout, id, where);
  const std::uint32_t claimed = stored_crc(record);
  const std::uint32_t actual = payload_crc(record, layout);
  if (claimed != actual) {
    fail_data("{}: record payload: crc32: expected {:08x}, found {:08x}", where, claimed, actual);
  }
}

}  // namespace waste
