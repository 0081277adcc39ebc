// Beam search, one entry of a book a lane: one source for AVX2, AVX-512 and NEON. Targets without a fused
// multiply-add, whose bits would differ, hand over to the scalar path.
#include "convert/encoder/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/encoder/beam_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace waste::convert {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

using scalar::encode_beam;

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using VF = hn::Vec<F>;
constexpr F f;

// Registers of scores, 64 bytes at most.
template <typename Score>
using Lanes = hn::CappedTag<Score, 64 / sizeof(Score)>;
template <typename Score>
using Scores = hn::Vec<Lanes<Score> >;

HWY_INLINE Scores<float> add(Scores<float> a, Scores<float> b) {
  return hn::Add(a, b);
}
HWY_INLINE Scores<std::int16_t> add(Scores<std::int16_t> a, Scores<std::int16_t> b) {
  return hn::SaturatedAdd(a, b);
}
HWY_INLINE float add(float a, float b) {
  return a + b;
}
HWY_INLINE std::int16_t add(std::int16_t a, std::int16_t b) {
  const int sum = a + b;
  return static_cast<std::int16_t>(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum);
}

HWY_INLINE auto at_most(Scores<float> a, Scores<float> b) {
  return hn::Le(a, b);
}
// Highway 1.0 compares integers for greater alone.
HWY_INLINE auto at_most(Scores<std::int16_t> a, Scores<std::int16_t> b) {
  return hn::Not(hn::Gt(a, b));
}

HWY_INLINE float most(float) {
  return 3e38f;
}
HWY_INLINE std::int16_t most(std::int16_t) {
  return 32767;
}

template <typename Score>
struct Partials {
  int count;
  Score score[kMaxBeam];
  std::uint32_t path[kMaxBeam];  // a byte a stage, the first lowest
};

template <typename Score>
struct Buffers {
  // Distances of two vectors to every entry alone, as kernels.h has them.
  HWY_ALIGN Score alone[2][kMaxStages * kMaxEntries];
  HWY_ALIGN Score scores[kMaxBeam * kMaxEntries];
  // A bit for every score: whether it is within the margin.
  HWY_ALIGN std::uint64_t near[kMaxBeam * kMaxEntries / 64];
  std::uint16_t near_words[kMaxBeam * kMaxEntries / 64 + 1];
  std::uint16_t found[kMaxBeam * kMaxEntries];
  Partials<Score> partials[2];
};

struct Broadcast {
  VF x0, x1, x2, x3, x4, x5, x6, x7;
};

HWY_INLINE Broadcast broadcast(const float* HWY_RESTRICT x, float scale) {
  return {hn::Set(f, x[0] * scale), hn::Set(f, x[1] * scale), hn::Set(f, x[2] * scale),
          hn::Set(f, x[3] * scale), hn::Set(f, x[4] * scale), hn::Set(f, x[5] * scale),
          hn::Set(f, x[6] * scale), hn::Set(f, x[7] * scale)};
}

HWY_INLINE void store_scores(VF s, float* out) {
  hn::Store(s, f, out);
}
HWY_INLINE void store_scores(VF s, std::int16_t* out) {
  const hn::Rebind<std::int16_t, F> half;
  hn::StoreU(hn::DemoteTo(half, hn::NearestInt(hn::Min(s, hn::Set(f, kIntegerMax)))), half, out);
}

// |c|^2/2 - x.c of every entry of every book, for two vectors: each value loaded from the books serves both.
template <typename Score>
HWY_INLINE void scores_alone(const BookTables& tables, const float* HWY_RESTRICT x,
                             const float* HWY_RESTRICT y, Buffers<Score>& b) {
  const std::size_t entries = static_cast<std::size_t>(tables.entries());
  const float scale = sizeof(Score) == sizeof(float) ? 1.0f : kIntegerScale;
  const Broadcast xs = broadcast(x, scale);
  const Broadcast ys = broadcast(y, scale);
  for (int stage = 0; stage < tables.stages(); stage++) {
    const float* HWY_RESTRICT c = tables.dimension(stage, 0);
    const float* HWY_RESTRICT norms = tables.half_norms<Score>(stage);
    for (std::size_t e = 0; e < entries; e += hn::Lanes(f)) {
      VF s = hn::Load(f, norms + e), t = s;
#define WASTE_DIMENSION(d)                             \
  {                                                    \
    const VF value = hn::Load(f, c + d * entries + e); \
    s = hn::NegMulAdd(xs.x##d, value, s);              \
    t = hn::NegMulAdd(ys.x##d, value, t);              \
  }
      WASTE_DIMENSION(0)
      WASTE_DIMENSION(1)
      WASTE_DIMENSION(2)
      WASTE_DIMENSION(3)
      WASTE_DIMENSION(4)
      WASTE_DIMENSION(5)
      WASTE_DIMENSION(6)
      WASTE_DIMENSION(7)
#undef WASTE_DIMENSION
      store_scores(s, b.alone[0] + stage * entries + e);
      store_scores(t, b.alone[1] + stage * entries + e);
    }
  }
}

// The inner products of a partial sum's entries with the entries of `stage`.
template <typename Score>
struct Products {
  const Score* row[kMaxStages];
};

template <typename Score>
HWY_INLINE Products<Score> products_of(const BookTables& tables, std::uint32_t path, int stage) {
  Products<Score> products;
  for (int s = 0; s < stage; s++) products.row[s] = tables.products<Score>(s, path >> 8 * s & 255, stage);
  return products;
}

// A partial sum's score with each of a register's entries added.
template <int kStage, typename Score>
HWY_INLINE Scores<Score> extended(const Score* HWY_RESTRICT alone, Scores<Score> score,
                                  const Products<Score>& products, std::size_t e) {
  const Lanes<Score> lanes;
  Scores<Score> s = add(hn::Load(lanes, alone + e), score);
  if (kStage > 0) s = add(s, hn::Load(lanes, products.row[0] + e));
  if (kStage > 1) s = add(s, hn::Load(lanes, products.row[1] + e));
  if (kStage > 2) s = add(s, hn::Load(lanes, products.row[2] + e));
  return s;
}

template <typename Score>
HWY_INLINE void mark_near(Buffers<Score>& b, std::size_t total, Score limit) {
  const Lanes<Score> lanes;
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(b.near);
  const Scores<Score> limits = hn::Set(lanes, limit);
  if (hn::Lanes(lanes) == 4) {  // half a byte at a time
    for (std::size_t at = 0; at < total; at += 8) {
      std::uint8_t low, high;
      hn::StoreMaskBits(lanes, at_most(hn::Load(lanes, b.scores + at), limits), &low);
      hn::StoreMaskBits(lanes, at_most(hn::Load(lanes, b.scores + at + 4), limits), &high);
      bytes[at / 8] = static_cast<std::uint8_t>(low | high << 4);
    }
    return;
  }
  for (std::size_t at = 0; at < total; at += hn::Lanes(lanes)) {
    hn::StoreMaskBits(lanes, at_most(hn::Load(lanes, b.scores + at), limits), bytes + at / 8);
  }
}

// What extending the partial sum `from[at / entries]` by entry `at % entries` gives.
template <typename Score>
struct Extension {
  const Score* HWY_RESTRICT scores;
  const Partials<Score>& from;
  int shift;  // entries = 2^shift
  int stage;

  HWY_INLINE void write(std::uint32_t at, Partials<Score>& to, int k) const {
    const std::uint32_t entry = at & ((1u << shift) - 1);
    to.score[k] = scores[at];
    to.path[k] = from.path[at >> shift] | entry << 8 * stage;
  }
};

// More lies within the margin than the beam is wide: halves it until that changes, in the end to the ties
// alone, of which the first are kept.
template <typename Score>
HWY_NOINLINE void narrow(Buffers<Score>& b, int found, Score best, Score margin, int width,
                         const Extension<Score>& extension, Partials<Score>& to) {
  while (found > width && margin > 0) {
    margin = halved(margin);
    const Score limit = add(best, margin);
    int left = 0;
    for (int k = 0; k < found; k++) {
      b.found[left] = b.found[k];
      left += b.scores[b.found[k]] <= limit ? 1 : 0;
    }
    found = left;
  }
  to.count = HWY_MIN(found, width);
  for (int k = 0; k < to.count; k++) extension.write(b.found[k], to, k);
}

// Collects what is marked in `near`, in order. Next to no branch here depends on the data: few of the
// registers of scores hold a candidate, and as many wrong guesses would cost more than all the arithmetic.
template <typename Score>
HWY_INLINE void collect(Buffers<Score>& b, std::size_t words, Score best, Score margin, int width,
                        const Extension<Score>& extension, Partials<Score>& to) {
  int total = 0, filled = 0;
  for (std::size_t k = 0; k < words; k++) {
    b.near_words[filled] = static_cast<std::uint16_t>(k);
    filled += b.near[k] != 0 ? 1 : 0;
    total += static_cast<int>(hwy::PopCount(b.near[k]));
  }
  const std::uint16_t* word = b.near_words;
  std::uint64_t bits = b.near[*word];
  const auto next = [&] {
    const auto at = static_cast<std::uint32_t>(*word * 64u + hwy::Num0BitsBelowLS1Bit_Nonzero64(bits));
    bits &= bits - 1;
    word += bits == 0 ? 1 : 0;
    bits = bits == 0 ? b.near[*word] : bits;
    return at;
  };
  if (total <= width) {
    to.count = total;
    for (int k = 0; k < total; k++) extension.write(next(), to, k);
  } else {
    for (int k = 0; k < total; k++) b.found[k] = static_cast<std::uint16_t>(next());
    narrow(b, total, best, margin, width, extension, to);
  }
}

// Two partial sums a turn: they share the loads of `alone`, and the number of turns is guessed right more
// often. An odd last one goes with itself, which changes no minimum.
template <int kStage, typename Score>
HWY_INLINE void extend(const BookTables& tables, const Beam& beam, const Score* HWY_RESTRICT alone,
                       Buffers<Score>& b, const Partials<Score>& from, Partials<Score>& to) {
  const Lanes<Score> lanes;
  const std::size_t entries = static_cast<std::size_t>(tables.entries());
  Scores<Score> least = hn::Set(lanes, most(Score{}));
  const int turn = kStage == 0 ? 1 : 2;
  for (int p = 0; p < from.count; p += turn) {
    const int q = kStage > 0 && p + 1 < from.count ? p + 1 : p;
    const auto products_p = products_of<Score>(tables, from.path[p], kStage);
    const auto products_q = products_of<Score>(tables, from.path[q], kStage);
    const Scores<Score> score_p = hn::Set(lanes, from.score[p]);
    const Scores<Score> score_q = hn::Set(lanes, from.score[q]);
    Score* HWY_RESTRICT out_p = b.scores + static_cast<std::size_t>(p) * entries;
    Score* HWY_RESTRICT out_q = b.scores + static_cast<std::size_t>(q) * entries;
    for (std::size_t e = 0; e < entries; e += hn::Lanes(lanes)) {
      const Scores<Score> s = extended<kStage>(alone, score_p, products_p, e);
      hn::Store(s, lanes, out_p + e);
      least = hn::Min(least, s);
      if (kStage > 0) {
        const Scores<Score> t = extended<kStage>(alone, score_q, products_q, e);
        hn::Store(t, lanes, out_q + e);
        least = hn::Min(least, t);
      }
    }
  }
  const Score best = hn::GetLane(hn::MinOfLanes(lanes, least));
  const Score margin = beam.margin<Score>(kStage);
  const std::size_t total = static_cast<std::size_t>(from.count) * entries;
  mark_near(b, total, add(best, margin));
  const int shift = static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero32(static_cast<std::uint32_t>(entries)));
  collect(b, total / 64, best, margin, beam.width, Extension<Score>{b.scores, from, shift, kStage}, to);
}

// The last stage needs the best alone. The partial sum in whose row each lane's best stands is noted once a
// row; only the winning row is looked through for the entry.
template <int kStage, typename Score>
HWY_INLINE void finish(const BookTables& tables, const Score* HWY_RESTRICT alone, const Partials<Score>& from,
                       std::uint8_t* HWY_RESTRICT indices) {
  const Lanes<Score> lanes;
  const hn::RebindToSigned<Lanes<Score> > integers;
  using Integer = hn::TFromD<decltype(integers)>;
  const std::size_t entries = static_cast<std::size_t>(tables.entries());
  Scores<Score> least = hn::Set(lanes, most(Score{}));
  auto row_of_least = hn::Zero(integers);
  for (int p = 0; p < from.count; p += 2) {
    const int q = p + 1 < from.count ? p + 1 : p;
    const auto products_p = products_of<Score>(tables, from.path[p], kStage);
    const auto products_q = products_of<Score>(tables, from.path[q], kStage);
    const Scores<Score> score_p = hn::Set(lanes, from.score[p]);
    const Scores<Score> score_q = hn::Set(lanes, from.score[q]);
    Scores<Score> least_p = hn::Set(lanes, most(Score{}));
    Scores<Score> least_q = least_p;
    for (std::size_t e = 0; e < entries; e += hn::Lanes(lanes)) {
      least_p = hn::Min(least_p, extended<kStage>(alone, score_p, products_p, e));
      least_q = hn::Min(least_q, extended<kStage>(alone, score_q, products_q, e));
    }
    const auto less_p = hn::RebindMask(integers, hn::Lt(least_p, least));
    row_of_least = hn::IfThenElse(less_p, hn::Set(integers, static_cast<Integer>(p)), row_of_least);
    least = hn::Min(least, least_p);
    const auto less_q = hn::RebindMask(integers, hn::Lt(least_q, least));
    row_of_least = hn::IfThenElse(less_q, hn::Set(integers, static_cast<Integer>(q)), row_of_least);
    least = hn::Min(least, least_q);
  }
  const Scores<Score> best = hn::MinOfLanes(lanes, least);
  const auto none = hn::Set(integers, Integer{32767});
  const auto winners = hn::RebindMask(integers, hn::Eq(least, best));
  const int row = hn::GetLane(hn::MinOfLanes(integers, hn::IfThenElse(winners, row_of_least, none)));
  const auto products = products_of<Score>(tables, from.path[row], kStage);
  const Scores<Score> score = hn::Set(lanes, from.score[row]);
  auto first = none;
  auto entry = hn::Iota(integers, 0);
  for (std::size_t e = 0; e < entries; e += hn::Lanes(lanes)) {
    const auto equal = hn::RebindMask(integers, hn::Eq(extended<kStage>(alone, score, products, e), best));
    first = hn::Min(first, hn::IfThenElse(equal, entry, none));
    entry = hn::Add(entry, hn::Set(integers, static_cast<Integer>(hn::Lanes(lanes))));
  }
  for (int s = 0; s < kStage; s++) indices[s] = static_cast<std::uint8_t>(from.path[row] >> 8 * s);
  indices[kStage] = static_cast<std::uint8_t>(hn::GetLane(hn::MinOfLanes(integers, first)));
}

template <int kStages, typename Score>
HWY_INLINE void search(const BookTables& tables, const Beam& beam, const Score* HWY_RESTRICT alone,
                       Buffers<Score>& b, std::uint8_t* HWY_RESTRICT indices) {
  const std::size_t entries = static_cast<std::size_t>(tables.entries());
  Partials<Score>& even = b.partials[0];
  Partials<Score>& odd = b.partials[1];
  even.count = 1;
  even.score[0] = 0;
  even.path[0] = 0;
  extend<0>(tables, beam, alone, b, even, odd);
  if constexpr (kStages == 2) {
    finish<1>(tables, alone + entries, odd, indices);
  } else {
    extend<1>(tables, beam, alone + entries, b, odd, even);
    if constexpr (kStages == 3) {
      finish<2>(tables, alone + 2 * entries, even, indices);
    } else {
      extend<2>(tables, beam, alone + 2 * entries, b, even, odd);
      finish<3>(tables, alone + 3 * entries, odd, indices);
    }
  }
}

// Encodes the vectors whose numbers are listed.
template <int kStages, typename Score>
HWY_NOINLINE void encode_listed(const BookTables& tables, const Beam& beam, const float* HWY_RESTRICT x,
                                const std::uint16_t* HWY_RESTRICT list, std::size_t count,
                                std::uint8_t* HWY_RESTRICT indices, Buffers<Score>& b) {
  for (std::size_t k = 0; k < count; k += 2) {
    const std::size_t v = list[k];
    const std::size_t w = list[k + 1 < count ? k + 1 : k];
    scores_alone(tables, x + v * kVectorDim, x + w * kVectorDim, b);
    search<kStages>(tables, beam, b.alone[0], b, indices + v * kStages);
    if (w != v) search<kStages>(tables, beam, b.alone[1], b, indices + w * kStages);
  }
}

// Its own function, or g++ asks for the thread's address anew in the innermost loops (measured: half the
// speed).
template <typename Score>
HWY_NOINLINE Buffers<Score>& thread_buffers() {
  static thread_local Buffers<Score> buffers;
  return buffers;
}

template <int kStages>
void encode_batches(const BookTables& tables, const Beam& beam, const float* HWY_RESTRICT x,
                    std::size_t count, std::uint8_t* HWY_RESTRICT indices) {
  constexpr std::size_t kBatch = 1024;
  std::uint16_t list[2][kBatch];
  for (std::size_t begin = 0; begin < count; begin += kBatch) {
    const float* const batch = x + begin * kVectorDim;
    std::size_t listed[2] = {0, 0};
    for (std::size_t v = 0; v < HWY_MIN(kBatch, count - begin); v++) {
      const int kind = fits_integers(batch + v * kVectorDim) ? 1 : 0;
      list[kind][listed[kind]++] = static_cast<std::uint16_t>(v);
    }
    std::uint8_t* const out = indices + begin * kStages;
    encode_listed<kStages>(tables, beam, batch, list[0], listed[0], out, thread_buffers<float>());
    encode_listed<kStages>(tables, beam, batch, list[1], listed[1], out, thread_buffers<std::int16_t>());
  }
}

}  // namespace

void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices) {
  switch (tables.stages()) {
    case 2:
      return encode_batches<2>(tables, beam, x, count, indices);
    case 3:
      return encode_batches<3>(tables, beam, x, count, indices);
    default:
      return encode_batches<4>(tables, beam, x, count, indices);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace waste::convert
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace waste::convert::simd {

HWY_EXPORT(encode_beam);

void encode_beam(const BookTables& tables, const Beam& beam, const float* x, std::size_t count,
                 std::uint8_t* indices) {
  HWY_DYNAMIC_DISPATCH(encode_beam)(tables, beam, x, count, indices);
}

}  // namespace waste::convert::simd
#endif
