// The vocabulary of the format: storage formats, matrix kinds and the expert recipe.
#pragma once

#include <cstdint>
#include <string_view>

namespace waste {

/// fmt codes as they stand in manifests and record headers.
enum class TensorFormat : std::uint8_t {
  F32 = 0,
  F16 = 1,
  Q8G = 2,   // int8, one f16 scale a group of 128 columns
  Q4G = 3,   // 4-bit, stored q + 8, low nibble first, scales as Q8G
  VQ3R = 4,  // experts: residual vector quantisation, one-byte indices
  VQ2R = 5,
  VQ4P = 8,  // experts: four stages of 64 entries, indices packed into 3 bytes
};

/// "F32", "Q4G", ...; "unknown" for a code the format does not have.
std::string_view format_name(TensorFormat format);

/// The three matrices of an expert, in the order in which a record stores them.
enum class MatrixKind : std::uint8_t { Gate = 0, Up = 1, Down = 2 };
inline constexpr std::uint32_t kMatrixKinds = 3;

/// "w1" (gate), "w3" (up), "w2" (down): the checkpoints' names.
std::string_view matrix_name(MatrixKind kind);

inline constexpr std::uint32_t kVecDim = 8;          // weights one codebook entry spans
inline constexpr std::uint32_t kIndexBlock = 64;     // rows whose indices lie together
inline constexpr std::uint32_t kQuantGroup = 128;    // columns that share one trunk scale
inline constexpr std::uint32_t kRecordBlock = 4096;  // expert records start and end on these

/// How routed experts are stored; the same for all layers of a container.
struct ExpertQuant {
  TensorFormat format = TensorFormat::VQ3R;  // as the manifest names it
  std::uint32_t stages = 3;                  // codebooks a matrix kind
  std::uint32_t entries = 256;               // of a codebook
  std::uint32_t index_bits = 8;              // 8, or 6 with four indices packed into three bytes

  static ExpertQuant vq3() { return {TensorFormat::VQ3R, 3, 256, 8}; }
  static ExpertQuant vq2() { return {TensorFormat::VQ2R, 2, 256, 8}; }
  static ExpertQuant vq4p() { return {TensorFormat::VQ4P, 4, 64, 6}; }

  bool operator==(const ExpertQuant&) const = default;

  /// Bytes that hold all stages' indices of one vector of 8 weights.
  std::uint32_t bytes_per_vector() const { return stages * index_bits / 8; }
  double bits_per_weight() const { return static_cast<double>(stages) * index_bits / kVecDim; }
  /// The byte in record headers: 4 for one-byte indices whatever the stage count (as the existing
  /// containers have it), 8 for packed ones.
  std::uint8_t header_format() const { return index_bits == 8 ? 4 : 8; }
  std::uint32_t books_per_layer() const { return kMatrixKinds * stages; }
};

}  // namespace waste
