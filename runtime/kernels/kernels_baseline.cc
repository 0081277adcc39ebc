// The kernels in plain C++, for any CPU.
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/vec16.h"

#include "runtime/kernels/unpack_q4.inc"

#include "runtime/kernels/lookup_packed.inc"

#include "runtime/kernels/lookup.inc"

#include "runtime/kernels/float_kernels.inc"

namespace waste::runtime {
namespace {

// The first and second halves of an activation group meet the low and high nibbles of 64 bytes, or 128 bytes.
template <bool kNibbles>
inline V16 lanes(const std::uint8_t* w, const ActivationGroup& x) {
  V16 out;
  for (int lane = 0; lane < 16; ++lane) {
    std::int32_t sum = 0;
    for (int i = 4 * lane; i < 4 * lane + 4; ++i) {
      const int a = kNibbles ? (w[i] & 15) - 8 : static_cast<std::int8_t>(w[i]);
      const int b = kNibbles ? (w[i] >> 4) - 8 : static_cast<std::int8_t>(w[64 + i]);
      sum += a * (x.high[i] * 256 + x.low[i]) + b * (x.high[64 + i] * 256 + x.low[64 + i]);
    }
    out.v[lane] = static_cast<float>(sum);
  }
  return out;
}

template <bool kNibbles>
void product(const WeightMatrix& w, std::size_t begin, std::size_t end, const Activations& x, float* y,
             std::size_t y_stride) {
  constexpr std::size_t kBytes = kNibbles ? 64 : 128;
  for (std::size_t row = begin; row < end; ++row) {
    const std::uint8_t* data = w.data + row * w.groups * kBytes;
    const std::uint16_t* scales = w.scales + row * w.groups;
    for (std::size_t t = 0; t < x.tokens; ++t) {
      const ActivationGroup* in = x.groups + t * x.count;
      V16 sum = splat(0.0f);
      for (std::size_t g = 0; g < w.groups; ++g) {
        const float scale = half_at(scales + g) * x.scales[t * x.count + g];
        sum = fma(lanes<kNibbles>(data + g * kBytes, in[g]), splat(scale), sum);
      }
      y[t * y_stride + row] = tree_sum(sum);
    }
  }
}

}  // namespace
}  // namespace waste::runtime

#include "runtime/kernels/table.inc"

namespace waste::runtime {

const Kernels& baseline_kernels() {
  static constexpr Kernels kTable = kernels_named("scalar");
  return kTable;
}

}  // namespace waste::runtime
