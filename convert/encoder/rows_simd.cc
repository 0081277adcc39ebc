// Passes over rows and books: one source for AVX2, AVX-512 and NEON. Targets without a fused multiply-add,
// whose bits would differ, hand over to the scalar path.
#include "convert/encoder/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/encoder/rows_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace waste::convert {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

using scalar::book_products;
using scalar::row_stats;
using scalar::row_sums;
using scalar::scale_row;

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A vector of weights is one register of doubles, or two or four.
using D = hn::CappedTag<double, kVectorDim>;
using F = hn::Rebind<float, D>;
using VD = hn::Vec<D>;
constexpr D f64;
constexpr F f32;
constexpr std::size_t kParts = kVectorDim / hn::MaxLanes(D());
static_assert(kParts * hn::MaxLanes(D()) == kVectorDim);

struct Doubles {
  VD part[kParts];

  static HWY_INLINE Doubles zero() {
    Doubles out;
    for (std::size_t p = 0; p < kParts; p++) out.part[p] = hn::Zero(f64);
    return out;
  }
  static HWY_INLINE Doubles load(const float* HWY_RESTRICT at) {
    Doubles out;
    for (std::size_t p = 0; p < kParts; p++) {
      out.part[p] = hn::PromoteTo(f64, hn::LoadU(f32, at + p * hn::Lanes(f32)));
    }
    return out;
  }
  HWY_INLINE void add_product(const Doubles& a, const Doubles& b) {
    for (std::size_t p = 0; p < kParts; p++) part[p] = hn::MulAdd(a.part[p], b.part[p], part[p]);
  }
  HWY_INLINE Doubles times(const Doubles& other) const {
    Doubles out;
    for (std::size_t p = 0; p < kParts; p++) out.part[p] = hn::Mul(part[p], other.part[p]);
    return out;
  }
  HWY_INLINE double total() const {
    double s[kVectorDim];
    for (std::size_t p = 0; p < kParts; p++) hn::StoreU(part[p], f64, s + p * hn::Lanes(f64));
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }
};

// The sum of a vector's entries, as a reader adds it up.
HWY_INLINE Doubles decoded(const BookTables& tables, const std::uint8_t* HWY_RESTRICT indices) {
  Doubles out;
  for (std::size_t p = 0; p < kParts; p++) {
    const std::size_t at = p * hn::Lanes(f32);
    auto sum = hn::LoadU(f32, tables.rows(0) + indices[0] * kVectorDim + at);
    for (int s = 1; s < tables.stages(); s++) {
      sum = hn::Add(sum, hn::LoadU(f32, tables.rows(s) + indices[s] * kVectorDim + at));
    }
    out.part[p] = hn::PromoteTo(f64, sum);
  }
  return out;
}

}  // namespace

RowStats row_stats(const float* w, std::size_t cols) {
  Doubles energy = Doubles::zero();
  auto amax = hn::Zero(f32);
  for (std::size_t i = 0; i < cols; i += kVectorDim) {
    const Doubles values = Doubles::load(w + i);
    energy.add_product(values, values);
    for (std::size_t p = 0; p < kParts; p++) {
      amax = hn::Max(amax, hn::Abs(hn::LoadU(f32, w + i + p * hn::Lanes(f32))));
    }
  }
  return {energy.total(), hn::GetLane(hn::MaxOfLanes(f32, amax))};
}

RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices) {
  Doubles ww = Doubles::zero(), wy = ww, yy = ww;
  for (std::size_t i = 0; i < cols; i += kVectorDim) {
    const Doubles values = Doubles::load(w + i);
    const Doubles y = decoded(tables, indices + i / kVectorDim * tables.stages());
    if (weights == nullptr) {
      ww.add_product(values, values);
      wy.add_product(values, y);
      yy.add_product(y, y);
    } else {
      const Doubles weight = Doubles::load(weights + i);
      const Doubles weighted = values.times(weight);
      ww.add_product(weighted, values);
      wy.add_product(weighted, y);
      yy.add_product(y.times(weight), y);
    }
  }
  return {ww.total(), wy.total(), yy.total()};
}

void scale_row(const float* w, float factor, std::size_t cols, float* out) {
  const hn::CappedTag<float, kVectorDim> f8;
  const auto by = hn::Set(f8, factor);
  for (std::size_t i = 0; i < cols; i += hn::Lanes(f8))
    hn::StoreU(hn::Mul(hn::LoadU(f8, w + i), by), f8, out + i);
}

void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer) {
  const hn::CappedTag<float, 16> f;
  const hn::Rebind<std::int16_t, decltype(f)> i16;
  const auto most = hn::Set(f, kIntegerMax);
  const auto reach = hn::Set(f, kIntegerEntry);
  for (std::size_t e = 0; e < entries; e += hn::Lanes(f)) {
    auto sum = hn::Zero(f);
    for (int d = 0; d < kVectorDim; d++) {
      sum = hn::Add(sum, hn::Mul(hn::Set(f, a[d]), hn::LoadU(f, columns + d * entries + e)));
    }
    hn::StoreU(sum, f, product + e);
    const auto score = hn::Clamp(hn::Mul(sum, hn::Set(f, kIntegerScale)), hn::Neg(most), most);
    const auto within = hn::Le(hn::LoadU(f, half_norms + e), reach);
    hn::StoreU(hn::DemoteTo(i16, hn::NearestInt(hn::IfThenElseZero(within, score))), i16, integer + e);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace waste::convert
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace waste::convert::simd {

HWY_EXPORT(book_products);
HWY_EXPORT(row_stats);
HWY_EXPORT(row_sums);
HWY_EXPORT(scale_row);

RowStats row_stats(const float* w, std::size_t cols) {
  return HWY_DYNAMIC_DISPATCH(row_stats)(w, cols);
}

RowSums row_sums(const BookTables& tables, const float* w, const float* weights, std::size_t cols,
                 const std::uint8_t* indices) {
  return HWY_DYNAMIC_DISPATCH(row_sums)(tables, w, weights, cols, indices);
}

void scale_row(const float* w, float factor, std::size_t cols, float* out) {
  HWY_DYNAMIC_DISPATCH(scale_row)(w, factor, cols, out);
}

void book_products(const float* a, const float* columns, const float* half_norms, std::size_t entries,
                   float* product, std::int16_t* integer) {
  HWY_DYNAMIC_DISPATCH(book_products)(a, columns, half_norms, entries, product, integer);
}

}  // namespace waste::convert::simd
#endif
