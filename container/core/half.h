// IEEE 754 binary16 and bfloat16, to and from float32, in integer arithmetic: exact, subnormals included, and
// the same bits on every CPU. (About 1% of Kimi K3's row scales are subnormal halves.)
#pragma once

#include <bit>
#include <cstdint>

namespace waste {

/// Exact. NaN payloads keep their top bits.
inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = h >> 10 & 0x1Fu;
  const std::uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: at most 10 significant bits
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

/// Rounds to nearest, ties to even; overflow gives infinity, underflow a subnormal or a signed zero.
inline std::uint16_t float_to_half(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and up
  if (magnitude < 0x38800000u) {                                                    // below 2^-14
    if (magnitude < 0x33000000u) return sign;                                       // below 2^-25
    const std::uint32_t shift = 126 - (magnitude >> 23);                            // 14 to 24
    const std::uint32_t full = (magnitude & 0x7FFFFFu) | 0x800000u;
    const std::uint32_t kept = full >> shift;
    const std::uint32_t rest = full & ((1u << shift) - 1);
    const std::uint32_t tie = 1u << (shift - 1);
    const std::uint32_t up = rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u;
    return static_cast<std::uint16_t>(sign | (kept + up));
  }
  const std::uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

inline float bf16_to_float(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

/// Whether the half is neither infinite nor NaN.
inline bool half_is_finite(std::uint16_t h) {
  return (h & 0x7C00u) != 0x7C00u;
}

}  // namespace waste
