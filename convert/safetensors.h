// One safetensors file: u64 length of the header, the header (JSON: tensor name -> dtype, shape,
// data_offsets), then the tensors' bytes without gaps. A header is untrusted: what parse_header returns fits
// the file it was read from.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/file.h"

namespace waste::convert {

enum class Dtype : std::uint8_t {
  Bool,
  U8,
  I8,
  F8E4M3,
  F8E5M2,
  U16,
  I16,
  F16,
  BF16,
  U32,
  I32,
  F32,
  U64,
  I64,
  F64
};

std::string_view dtype_name(Dtype dtype);
std::uint64_t dtype_bytes(Dtype dtype);

/// The dimensions of a tensor, outermost first. A scalar has none.
struct Shape {
  static constexpr std::size_t kMaxRank = 6;
  std::array<std::uint64_t, kMaxRank> dims{};
  std::uint8_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::uint64_t> values);
  bool operator==(const Shape&) const = default;
  /// Product of the dimensions. Only for shapes that parse_header has accepted: it does not overflow there.
  std::uint64_t volume() const;
  /// "[7168, 3584]"
  std::string text() const;
  std::span<const std::uint64_t> span() const { return {dims.data(), rank}; }
};

struct Tensor {
  std::string_view name;  // lives as long as the Header it came from
  Shape shape;
  std::uint64_t offset = 0;  // of its first byte, from the start of the file
  std::uint64_t bytes = 0;
  std::uint32_t shard = 0;  // set by Checkpoint
  Dtype dtype = Dtype::U8;
};

struct Header {
  std::vector<Tensor> tensors;  // by offset
  std::unique_ptr<std::pmr::monotonic_buffer_resource> names;
};

/// Length of the header that opens the file, after checking that the file can hold it. `prefix` is its first
/// 8 bytes (fewer if the file is shorter). Errors are Error(Data) and start with `where`.
std::uint64_t header_length(std::span<const std::uint8_t> prefix, std::uint64_t file_size,
                            std::string_view where);

/// Parses the header text (without the 8 bytes before it) of a file of `file_size` bytes. Refuses: anything
/// that is not the documented JSON, an unknown dtype, more than six dimensions, a shape whose size overflows
/// or is not the span's, spans that overlap or leave gaps, and a file that is longer or shorter than its
/// spans. Names repeated within the header are left for Checkpoint, which looks them up over all files.
Header parse_header(std::string_view text, std::uint64_t file_size, std::string_view where);

}  // namespace waste::convert
