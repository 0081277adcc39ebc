#include "convert/source_rows.h"

#include <algorithm>
#include <bit>

#include "container/codec/source_formats.h"
#include "container/core/bytes.h"
#include "container/core/error.h"

namespace waste::convert {

namespace {

// The largest E8M0 scale at which every E2M1 value is finite: 6 x 2^125.
constexpr std::uint8_t kFiniteScale = 252;

// Branch-free over the whole block, so that the compiler vectorises it; the place is looked for only on
// failure.
bool all_finite(std::span<const float> values) {
  std::uint32_t bad = 0;
  for (const float v : values)
    bad |= (std::bit_cast<std::uint32_t>(v) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  return bad == 0;
}

[[noreturn]] void refuse_value(const MatrixSource& matrix, std::uint64_t first, std::uint64_t cols,
                               std::span<const float> values) {
  std::size_t i = 0;
  while (all_finite(values.subspan(i, 1))) ++i;
  fail_data("tensor \"{}\": row {}, column {}: {} is not a finite number", printable(matrix.weight->name),
            first + i / cols, i % cols, values[i]);
}

}  // namespace

RowBytes row_bytes(const MatrixSource& matrix, std::uint64_t cols) {
  if (matrix.scale != nullptr) return {cols / 2, cols / kMxfp4Block};
  return {cols * dtype_bytes(matrix.weight->dtype), 0};
}

void decode_rows(const MatrixSource& matrix, std::uint64_t first, std::uint64_t rows, std::uint64_t cols,
                 std::span<const std::uint8_t> weight, std::span<const std::uint8_t> scale,
                 std::span<float> out) {
  if (matrix.scale != nullptr) {
    decode_mxfp4(rows, cols, weight, scale, out);
    // The scales are a thirty-second of what they scale, and in practice settle it.
    if (std::all_of(scale.begin(), scale.end(), [](std::uint8_t e) { return e <= kFiniteScale; })) return;
  } else if (matrix.weight->dtype == Dtype::BF16) {
    decode_bf16(weight, out);
  } else if (matrix.weight->dtype == Dtype::F16) {
    decode_f16(weight, out);
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = load_f32(weight.data() + 4 * i);
  }
  if (!all_finite(out)) refuse_value(matrix, first, cols, out);
}

}  // namespace waste::convert
