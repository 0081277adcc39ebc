// Rounding a group at a scale: one source for AVX2, AVX-512 and NEON. Targets without a fused multiply-add,
// whose bits would differ, hand over to the scalar path.
#include "convert/encoder/group_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/encoder/group_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace waste::convert {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

using scalar::try_group;

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kPartials = 16;
using F = hn::CappedTag<float, kPartials>;
using VF = hn::Vec<F>;
constexpr F f;
constexpr std::size_t kParts = kPartials / hn::MaxLanes(F());
static_assert(kParts * hn::MaxLanes(F()) == kPartials);

struct Partials {
  VF part[kParts];

  HWY_INLINE float total() const {
    float s[kPartials];
    for (std::size_t p = 0; p < kParts; p++) hn::StoreU(part[p], f, s + p * hn::Lanes(f));
    for (std::size_t half = kPartials / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; i++) s[i] += s[i + half];
    }
    return s[0];
  }
};

}  // namespace

GroupTrial try_group(const float* w, float scale, float low, float high, float* codes) {
  const VF s = hn::Set(f, scale);
  const VF inverse = hn::Set(f, 1 / scale);
  const VF least = hn::Set(f, low);
  const VF most = hn::Set(f, high);
  Partials error, code_energy, product;
  for (std::size_t p = 0; p < kParts; p++) {
    error.part[p] = code_energy.part[p] = product.part[p] = hn::Zero(f);
  }
  for (std::size_t i = 0; i < kGroupWeights; i += kPartials) {
    for (std::size_t p = 0; p < kParts; p++) {
      const std::size_t at = i + p * hn::Lanes(f);
      const VF value = hn::LoadU(f, w + at);
      const VF q = hn::Min(hn::Max(hn::Round(hn::Mul(value, inverse)), least), most);
      const VF rest = hn::NegMulAdd(q, s, value);
      error.part[p] = hn::MulAdd(rest, rest, error.part[p]);
      code_energy.part[p] = hn::MulAdd(q, q, code_energy.part[p]);
      product.part[p] = hn::MulAdd(q, value, product.part[p]);
      hn::StoreU(q, f, codes + at);
    }
  }
  return {error.total(), code_energy.total(), product.total()};
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace waste::convert
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace waste::convert::simd {

HWY_EXPORT(try_group);

GroupTrial try_group(const float* w, float scale, float low, float high, float* codes) {
  return HWY_DYNAMIC_DISPATCH(try_group)(w, scale, low, high, codes);
}

}  // namespace waste::convert::simd
#endif
