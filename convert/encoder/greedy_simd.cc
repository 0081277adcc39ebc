// Greedy search, one vector of weights a lane: one source for AVX2, AVX-512 and NEON. Targets without a fused
// multiply-add, whose bits would differ, hand over to the scalar path.
#include "convert/encoder/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/encoder/greedy_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace waste::convert {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

using scalar::encode_greedy;
using scalar::nearest_entries;

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using I = hn::RebindToSigned<F>;
using VF = hn::Vec<F>;
using VI = hn::Vec<I>;

constexpr F f;
constexpr I i32;

inline std::size_t lanes() {
  return hn::Lanes(f);
}

// Groups of vectors that share one pass over the entries: each broadcast of a book's value then feeds that
// many multiply-adds. Two groups of eight dimensions are what 32 registers hold; 16 registers hold one.
constexpr std::size_t kGroups = HWY_TARGET == HWY_AVX2 ? 1 : 2;
constexpr std::size_t kMaxPass = 2 * 16;

struct Dimensions {
  VF x0, x1, x2, x3, x4, x5, x6, x7;
};

// Turns 4 x 4 values in every 128-bit block.
HWY_INLINE void transpose_blocks(VF& a, VF& b, VF& c, VF& d) {
  const VF ac_low = hn::InterleaveLower(f, a, c);
  const VF ac_high = hn::InterleaveUpper(f, a, c);
  const VF bd_low = hn::InterleaveLower(f, b, d);
  const VF bd_high = hn::InterleaveUpper(f, b, d);
  a = hn::InterleaveLower(f, ac_low, bd_low);
  b = hn::InterleaveUpper(f, ac_low, bd_low);
  c = hn::InterleaveLower(f, ac_high, bd_high);
  d = hn::InterleaveUpper(f, ac_high, bd_high);
}

// Loads lanes() vectors [lanes()][8] and gives one register a dimension. Which vector lands in which lane is
// fixed but not in order: lane_of_vector() tells.
HWY_INLINE Dimensions load_transposed(const float* HWY_RESTRICT rows) {
  const std::size_t n = lanes();
  if (n == 4) {  // one block: a vector is two registers
    Dimensions t{hn::LoadU(f, rows),      hn::LoadU(f, rows + 8), hn::LoadU(f, rows + 16),
                 hn::LoadU(f, rows + 24), hn::LoadU(f, rows + 4), hn::LoadU(f, rows + 12),
                 hn::LoadU(f, rows + 20), hn::LoadU(f, rows + 28)};
    transpose_blocks(t.x0, t.x1, t.x2, t.x3);
    transpose_blocks(t.x4, t.x5, t.x6, t.x7);
    return t;
  }
  VF a0 = hn::LoadU(f, rows), a1 = hn::LoadU(f, rows + n);
  VF a2 = hn::LoadU(f, rows + 2 * n), a3 = hn::LoadU(f, rows + 3 * n);
  VF b0 = hn::LoadU(f, rows + 4 * n), b1 = hn::LoadU(f, rows + 5 * n);
  VF b2 = hn::LoadU(f, rows + 6 * n), b3 = hn::LoadU(f, rows + 7 * n);
  transpose_blocks(a0, a1, a2, a3);
  transpose_blocks(b0, b1, b2, b3);
  // Even blocks hold dimensions 0 to 3, odd ones 4 to 7.
  return {
      hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b0), a0), hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b1), a1),
      hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b2), a2), hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b3), a3),
      hn::OddEvenBlocks(b0, hn::SwapAdjacentBlocks(a0)), hn::OddEvenBlocks(b1, hn::SwapAdjacentBlocks(a1)),
      hn::OddEvenBlocks(b2, hn::SwapAdjacentBlocks(a2)), hn::OddEvenBlocks(b3, hn::SwapAdjacentBlocks(a3))};
}

void lane_of_vector(std::uint8_t* HWY_RESTRICT lane) {
  float numbered[16 * kVectorDim];
  for (std::size_t v = 0; v < lanes(); v++) {
    for (int d = 0; d < kVectorDim; d++) numbered[v * kVectorDim + d] = static_cast<float>(v);
  }
  float vector_at[16];
  hn::StoreU(load_transposed(numbered).x0, f, vector_at);
  for (std::size_t l = 0; l < lanes(); l++)
    lane[static_cast<int>(vector_at[l])] = static_cast<std::uint8_t>(l);
}

// -x.c + |c|^2/2 for one entry. `x` is negated.
HWY_INLINE VF score(const Dimensions& x, const float* HWY_RESTRICT c, VF half_norm) {
  VF s = hn::NegMulAdd(x.x0, hn::Set(f, c[0]), half_norm);
  s = hn::NegMulAdd(x.x1, hn::Set(f, c[1]), s);
  s = hn::NegMulAdd(x.x2, hn::Set(f, c[2]), s);
  s = hn::NegMulAdd(x.x3, hn::Set(f, c[3]), s);
  s = hn::NegMulAdd(x.x4, hn::Set(f, c[4]), s);
  s = hn::NegMulAdd(x.x5, hn::Set(f, c[5]), s);
  s = hn::NegMulAdd(x.x6, hn::Set(f, c[6]), s);
  return hn::NegMulAdd(x.x7, hn::Set(f, c[7]), s);
}

// Nearest entries of kGroups * lanes() vectors, in lane order.
HWY_INLINE void nearest_in_lanes(const float* HWY_RESTRICT rows, const float* HWY_RESTRICT half_norms,
                                 int entries, const float* HWY_RESTRICT x, std::int32_t* HWY_RESTRICT out) {
  const Dimensions xa = load_transposed(x);
  const Dimensions xb = kGroups == 2 ? load_transposed(x + lanes() * kVectorDim) : xa;
  VF best_a = hn::Set(f, 3e38f), best_b = best_a;
  VI at_a = hn::Zero(i32), at_b = at_a, entry = at_a;
  const VI one = hn::Set(i32, 1);
  for (int c = 0; c < entries; c++) {
    const float* const row = rows + c * kVectorDim;
    const VF norm = hn::Set(f, half_norms[c]);
    const VF score_a = score(xa, row, norm);
    at_a = hn::IfThenElse(hn::RebindMask(i32, hn::Lt(score_a, best_a)), entry, at_a);
    best_a = hn::Min(score_a, best_a);
    if (kGroups == 2) {
      const VF score_b = score(xb, row, norm);
      at_b = hn::IfThenElse(hn::RebindMask(i32, hn::Lt(score_b, best_b)), entry, at_b);
      best_b = hn::Min(score_b, best_b);
    }
    entry = hn::Add(entry, one);
  }
  hn::StoreU(at_a, i32, out);
  if (kGroups == 2) hn::StoreU(at_b, i32, out + lanes());
}

HWY_INLINE void subtract_entry(float* HWY_RESTRICT x, const float* HWY_RESTRICT entry) {
  const hn::CappedTag<float, kVectorDim> d8;
  for (std::size_t d = 0; d < kVectorDim; d += hn::Lanes(d8)) {
    hn::StoreU(hn::Sub(hn::LoadU(d8, x + d), hn::LoadU(d8, entry + d)), d8, x + d);
  }
}

// Stages [first, last) one after the other on what the ones before left.
void encode_stages(const BookTables& tables, int first, int last, const float* HWY_RESTRICT x,
                   std::size_t count, std::uint8_t* HWY_RESTRICT indices) {
  const std::size_t pass = kGroups * lanes();
  const int stages = last - first;
  std::uint8_t lane[16];
  lane_of_vector(lane);
  HWY_ALIGN float rest[kMaxPass * kVectorDim] = {};
  HWY_ALIGN std::int32_t found[kMaxPass];
  for (std::size_t begin = 0; begin < count; begin += pass) {
    const std::size_t n = HWY_MIN(pass, count - begin);
    for (std::size_t i = 0; i < n * kVectorDim; i++) rest[i] = x[begin * kVectorDim + i];
    for (int stage = first; stage < last; stage++) {
      const float* const rows = tables.rows(stage);
      nearest_in_lanes(rows, tables.half_norms(stage), tables.entries(), rest, found);
      for (std::size_t v = 0; v < n; v++) {
        const int entry = found[v / lanes() * lanes() + lane[v % lanes()]];
        indices[(begin + v) * stages + (stage - first)] = static_cast<std::uint8_t>(entry);
        if (stage + 1 < last) subtract_entry(rest + v * kVectorDim, rows + entry * kVectorDim);
      }
    }
  }
}

}  // namespace

void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices) {
  encode_stages(tables, 0, tables.stages(), x, count, indices);
}

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  encode_stages(tables, stage, stage + 1, x, count, indices);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace waste::convert
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace waste::convert::simd {

HWY_EXPORT(encode_greedy);
HWY_EXPORT(nearest_entries);

void encode_greedy(const BookTables& tables, const float* x, std::size_t count, std::uint8_t* indices) {
  HWY_DYNAMIC_DISPATCH(encode_greedy)(tables, x, count, indices);
}

void nearest_entries(const BookTables& tables, int stage, const float* x, std::size_t count,
                     std::uint8_t* indices) {
  HWY_DYNAMIC_DISPATCH(nearest_entries)(tables, stage, x, count, indices);
}

}  // namespace waste::convert::simd
#endif
