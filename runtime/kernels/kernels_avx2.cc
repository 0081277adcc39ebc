// The AVX2 kernels. This object alone is compiled for that instruction set; kernels.cc asks the CPU before it
// calls in.
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/vec16.h"

#include "runtime/kernels/unpack_q4.inc"

#include "runtime/kernels/lookup_packed.inc"

#include "runtime/kernels/lookup.inc"

#include "runtime/kernels/float_kernels.inc"

namespace waste::runtime {
namespace {

inline __m256i load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// Eight lanes of a group: bytes 32h .. 32h+31 of each half. Nibbles stay unsigned, so that maddubs may sum
// pairs (at most 2 x 15 x 128, no saturation), and the bias takes the offset back out.
inline __m256i nibble_lanes(const std::uint8_t* w, const ActivationGroup& x, int h) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i v = load_bytes(w + 32 * h);
  const __m256i a = _mm256_and_si256(v, mask);
  const __m256i b = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
  const __m256i high = _mm256_add_epi16(_mm256_maddubs_epi16(a, load_bytes(x.high + 32 * h)),
                                        _mm256_maddubs_epi16(b, load_bytes(x.high + 64 + 32 * h)));
  const __m256i low = _mm256_add_epi16(_mm256_maddubs_epi16(a, load_bytes(x.low + 32 * h)),
                                       _mm256_maddubs_epi16(b, load_bytes(x.low + 64 + 32 * h)));
  const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(256)),
                                       _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
  return _mm256_add_epi32(sum, load_bytes(x.bias + 8 * h));
}

// Signed bytes would saturate maddubs: even and odd bytes are widened in place and multiplied as 16-bit
// numbers.
inline __m256i byte_lanes(const std::uint8_t* w, const ActivationGroup& x, int h) {
  __m256i sum = _mm256_setzero_si256();
  for (int part = 0; part < 128; part += 64) {
    const __m256i v = load_bytes(w + part + 32 * h);
    const __m256i high = load_bytes(x.high + part + 32 * h);
    const __m256i low = load_bytes(x.low + part + 32 * h);
    const __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    const __m256i w_odd = _mm256_srai_epi16(v, 8);
    const __m256i x_even =
        _mm256_add_epi16(_mm256_slli_epi16(high, 8), _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8));
    const __m256i x_odd = _mm256_add_epi16(
        _mm256_and_si256(high, _mm256_set1_epi16(static_cast<short>(0xFF00))), _mm256_srai_epi16(low, 8));
    sum = _mm256_add_epi32(
        sum, _mm256_add_epi32(_mm256_madd_epi16(w_even, x_even), _mm256_madd_epi16(w_odd, x_odd)));
  }
  return sum;
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
      const float* in_scales = x.scales + t * x.count;
      V16 sum = splat(0.0f);
      for (std::size_t g = 0; g < w.groups; ++g) {
        const std::uint8_t* p = data + g * kBytes;
        const V16 lanes = {
            _mm256_cvtepi32_ps(kNibbles ? nibble_lanes(p, in[g], 0) : byte_lanes(p, in[g], 0)),
            _mm256_cvtepi32_ps(kNibbles ? nibble_lanes(p, in[g], 1) : byte_lanes(p, in[g], 1))};
        sum = fma(lanes, splat(half_at(scales + g) * in_scales[g]), sum);
      }
      y[t * y_stride + row] = tree_sum(sum);
    }
  }
}

}  // namespace
}  // namespace waste::runtime

#include "runtime/kernels/table.inc"

namespace waste::runtime {

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = kernels_named("avx2");
  return kTable;
}

}  // namespace waste::runtime
