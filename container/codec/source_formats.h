// The number formats of checkpoints: MXFP4 (E2M1 values in blocks of 32 with one E8M0 scale; OCP Microscaling
// Formats specification 1.0), bfloat16 and half, all to float32.
#pragma once

#include <cstdint>
#include <span>

namespace waste {

inline constexpr std::uint32_t kMxfp4Block = 32;

/// Decodes `rows` x `cols` weights (cols a multiple of 32). `packed` is [rows][cols/2], low nibble first;
/// `scales` is [rows][cols/32], value 2^(e-127), where 255 means NaN. `out` is [rows][cols]; every product is
/// exact in float32 unless it leaves its range, when it becomes infinite or subnormal as IEEE says.
void decode_mxfp4(std::uint64_t rows, std::uint64_t cols, std::span<const std::uint8_t> packed,
                  std::span<const std::uint8_t> scales, std::span<float> out);

/// bfloat16 and half arrays (little-endian bytes) to float32.
void decode_bf16(std::span<const std::uint8_t> in, std::span<float> out);
void decode_f16(std::span<const std::uint8_t> in, std::span<float> out);

}  // namespace waste
