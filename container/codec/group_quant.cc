#include "container/codec/group_quant.h"

#include "container/core/bytes.h"
#include "container/core/half.h"

namespace waste {

void decode_groups(TensorFormat format, std::uint64_t rows, std::uint64_t cols,
                   std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                   std::span<float> out) {
  const std::uint64_t row_bytes = group_row_bytes(format, cols);
  const std::uint64_t row_scales = group_row_scale_bytes(cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    const std::uint8_t* q = codes.data() + r * row_bytes;
    const std::uint8_t* s = scales.data() + r * row_scales;
    float* w = out.data() + r * cols;
    float scale = 0;
    for (std::uint64_t c = 0; c < cols; ++c) {
      if (c % kQuantGroup == 0) scale = half_to_float(load_u16(s + c / kQuantGroup * 2));
      const int value = format == TensorFormat::Q4G ? ((c % 2 == 0 ? q[c / 2] : q[c / 2] >> 4) & 15) - 8
                                                    : static_cast<std::int8_t>(q[c]);
      w[c] = static_cast<float>(value) * scale;
    }
  }
}

}  // namespace waste
