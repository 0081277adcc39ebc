// The AVX-512 kernels: VNNI dot products for the trunk, VBMI byte permutes for the experts' tables. This
// object alone is compiled for that instruction set; kernels.cc asks the CPU before it calls in.
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/vec16.h"

namespace waste::runtime {
namespace {

// A table of 256 values: four registers of low bytes, then four of high bytes with 128 added.
inline void store_table(std::uint8_t* table, std::size_t entry, V16 v) {
  const __m512i q = _mm512_cvtps_epi32(v.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(table + entry), _mm512_cvtepi32_epi8(q));
  const __m512i high = _mm512_add_epi32(_mm512_srai_epi32(q, 8), _mm512_set1_epi32(128));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(table + 256 + entry), _mm512_cvtepi32_epi8(high));
}

inline void unpack_q4(const std::uint8_t* bytes, std::int8_t* out) {
  const __m512i v = _mm512_loadu_si512(bytes);
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i even = _mm512_and_si512(v, mask);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
  const __m512i low = _mm512_sub_epi8(_mm512_unpacklo_epi8(even, odd), _mm512_set1_epi8(8));
  const __m512i high = _mm512_sub_epi8(_mm512_unpackhi_epi8(even, odd), _mm512_set1_epi8(8));
  for (int lane = 0; lane < 4; ++lane) {
    const auto part = [&](__m512i x) {
      switch (lane) {
        case 0:
          return _mm512_extracti32x4_epi32(x, 0);
        case 1:
          return _mm512_extracti32x4_epi32(x, 1);
        case 2:
          return _mm512_extracti32x4_epi32(x, 2);
        default:
          return _mm512_extracti32x4_epi32(x, 3);
      }
    };
    _mm_store_si128(reinterpret_cast<__m128i*>(out + 32 * lane), part(low));
    _mm_store_si128(reinterpret_cast<__m128i*>(out + 32 * lane + 16), part(high));
  }
}

}  // namespace
}  // namespace waste::runtime

#include "runtime/kernels/float_kernels.inc"

namespace waste::runtime {
namespace {

// R rows by T tokens, whose partial sums stay in registers while the groups go by. The products of row and
// activation scales are prepared for 16 groups at once.
template <bool kNibbles, int R, int T>
inline void product_block(const WeightMatrix& w, std::size_t row, const Activations& x, std::size_t token,
                          float* y, std::size_t y_stride) {
  constexpr std::size_t kBytes = kNibbles ? 64 : 128;
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const std::uint8_t* data = w.data + row * w.groups * kBytes;
  const std::uint16_t* scales = w.scales + row * w.groups;
  const ActivationGroup* in = x.groups + token * x.count;
  const float* in_scales = x.scales + token * x.count;

  __m512 sum[R][T];
  for (auto& r : sum)
    for (auto& t : r) t = _mm512_setzero_ps();
  alignas(64) float scale[R][T][16];
  for (std::size_t first = 0; first < w.groups; first += 16) {
    const std::size_t count = w.groups - first < 16 ? w.groups - first : 16;
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    for (int r = 0; r < R; ++r) {
      const __m512 row_scales =
          _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, scales + r * w.groups + first));
      for (int t = 0; t < T; ++t) {
        const __m512 s = _mm512_maskz_loadu_ps(mask, in_scales + t * x.count + first);
        _mm512_store_ps(scale[r][t], _mm512_mul_ps(row_scales, s));
      }
    }
    for (std::size_t g = 0; g < count; ++g) {
      __m512i a[R];
      __m512i b[R];
      for (int r = 0; r < R; ++r) {
        const std::uint8_t* p = data + (r * w.groups + first + g) * kBytes;
        if constexpr (kNibbles) {
          const __m512i v = _mm512_loadu_si512(p);
          a[r] = _mm512_and_si512(v, nibble);
          b[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        } else {
          a[r] = _mm512_xor_si512(_mm512_loadu_si512(p), flip);
          b[r] = _mm512_xor_si512(_mm512_loadu_si512(p + 64), flip);
        }
        _mm_prefetch(reinterpret_cast<const char*>(p + 2 * R * w.groups * kBytes), _MM_HINT_T0);
        if constexpr (!kNibbles)
          _mm_prefetch(reinterpret_cast<const char*>(p + 2 * R * w.groups * kBytes + 64), _MM_HINT_T0);
      }
      for (int t = 0; t < T; ++t) {
        const ActivationGroup& group = in[t * x.count + first + g];
        const __m512i high_a = _mm512_load_si512(group.high);
        const __m512i high_b = _mm512_load_si512(group.high + 64);
        const __m512i low_a = _mm512_load_si512(group.low);
        const __m512i low_b = _mm512_load_si512(group.low + 64);
        const __m512i bias = _mm512_load_si512(group.bias);
        for (int r = 0; r < R; ++r) {
          __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), a[r], high_a);
          high = _mm512_dpbusd_epi32(high, b[r], high_b);
          __m512i low = _mm512_dpbusd_epi32(bias, a[r], low_a);
          low = _mm512_dpbusd_epi32(low, b[r], low_b);
          const __m512i total = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
          sum[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_set1_ps(scale[r][t][g]), sum[r][t]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int t = 0; t < T; ++t) y[(token + t) * y_stride + row + r] = tree_sum(V16{sum[r][t]});
}

template <bool kNibbles, int T>
inline void product_rows(const WeightMatrix& w, std::size_t begin, std::size_t end, const Activations& x,
                         std::size_t token, float* y, std::size_t y_stride) {
  std::size_t row = begin;
  for (; row + 4 <= end; row += 4) product_block<kNibbles, 4, T>(w, row, x, token, y, y_stride);
  for (; row < end; ++row) product_block<kNibbles, 1, T>(w, row, x, token, y, y_stride);
}

// Rows in stretches that stay in the first-level cache while the tokens go by, four at a time.
template <bool kNibbles>
void product(const WeightMatrix& w, std::size_t begin, std::size_t end, const Activations& x, float* y,
             std::size_t y_stride) {
  if (x.tokens == 1) return product_rows<kNibbles, 1>(w, begin, end, x, 0, y, y_stride);
  constexpr std::size_t kStretch = 16;
  for (std::size_t row = begin; row < end; row += kStretch) {
    const std::size_t stop = row + kStretch < end ? row + kStretch : end;
    std::size_t t = 0;
    for (; t + 4 <= x.tokens; t += 4) product_rows<kNibbles, 4>(w, row, stop, x, t, y, y_stride);
    for (; t < x.tokens; ++t) product_rows<kNibbles, 1>(w, row, stop, x, t, y, y_stride);
  }
}

// --- experts
// ---------------------------------------------------------------------------------------------------------

// Byte r of a stage's indices is byte `stages` r + s of up to four registers: two permutes for two or three,
// three for four.
struct Gather {
  __m512i first[4];    // from registers 0 and 1
  __m512i second[4];   // from the first result and register 2 (or from registers 2 and 3)
  __mmask64 upper[4];  // four stages: which bytes come from registers 2 and 3
};

inline Gather make_gather(std::size_t stages) {
  Gather g;
  alignas(64) std::uint8_t first[64];
  alignas(64) std::uint8_t second[64];
  for (std::size_t s = 0; s < 4; ++s) {
    std::uint64_t upper = 0;
    for (std::size_t r = 0; r < 64; ++r) {
      const std::size_t at = s < stages ? stages * r + s : 0;
      first[r] = static_cast<std::uint8_t>(at & 127);
      if (at >= 128) upper |= std::uint64_t{1} << r;
      if (stages == 4) {
        second[r] = static_cast<std::uint8_t>(at & 127);
      } else {
        second[r] = static_cast<std::uint8_t>(at < 128 ? r : 64 + (at - 128));
      }
    }
    g.first[s] = _mm512_load_si512(first);
    g.second[s] = _mm512_load_si512(second);
    g.upper[s] = upper;
  }
  return g;
}

template <int S>
inline __m512i stage_indices(const Gather& g, const __m512i* bytes, int s) {
  if constexpr (S == 1) return bytes[0];
  const __m512i low = _mm512_permutex2var_epi8(bytes[0], g.first[s], bytes[1]);
  if constexpr (S == 2) {
    return low;
  } else if constexpr (S == 3) {
    return _mm512_permutex2var_epi8(low, g.second[s], bytes[2]);
  } else {
    return _mm512_mask_blend_epi8(g.upper[s], low, _mm512_permutex2var_epi8(bytes[2], g.second[s], bytes[3]));
  }
}

// Sums of unsigned bytes in 16 bits: `words` takes whole pairs (its high byte garbage modulo 2^16), `odd` the
// odd rows; the even rows are words - 256 odd. At most 64 additions of 255.
struct ByteSums {
  __m512i words = _mm512_setzero_si512();
  __m512i odd = _mm512_setzero_si512();

  void add(__m512i bytes) {
    words = _mm512_add_epi16(words, bytes);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(bytes, 8));
  }
  __m512i even() const { return _mm512_sub_epi16(words, _mm512_slli_epi16(odd, 8)); }
};

inline void add_scaled_rows(__m512i low, __m512i high, __m512i bias, __m512 scale, float* sums) {
  const auto half = [&](__m256i l, __m256i h, float* out) {
    const __m512i total = _mm512_add_epi32(
        _mm512_add_epi32(_mm512_cvtepu16_epi32(l), _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 8)), bias);
    _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), scale, _mm512_loadu_ps(out)));
  };
  half(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high), sums);
  half(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1), sums + 16);
}

// 64 rows' sums lie as even rows, then odd rows.
inline void flush(const ByteSums& low, const ByteSums& high, std::size_t lookups, float scale, float* sums) {
  const __m512i bias = _mm512_set1_epi32(-static_cast<int>(lookups) * 128 * 256);
  const __m512 s = _mm512_set1_ps(scale);
  add_scaled_rows(low.even(), high.even(), bias, s, sums);
  add_scaled_rows(low.odd, high.odd, bias, s, sums + 32);
}

// B row blocks share the registers that hold a table. `ahead` bytes further lie the same positions of the
// blocks that come next: asking for them now hides the jump between blocks, which the hardware prefetcher
// does not foresee.
template <int S, int B>
inline void add_blocks(const std::uint8_t* indices, std::size_t block_bytes, std::ptrdiff_t ahead,
                       std::size_t count, const Gather& gather, const std::uint8_t* table, float scale,
                       float* sums) {
  ByteSums low[B];
  ByteSums high[B];
  for (std::size_t p = 0; p < count; ++p) {
    __m512i index[B][S];
    for (int b = 0; b < B; ++b) {
      const std::uint8_t* at = indices + b * block_bytes + p * 64 * S;
      __m512i bytes[S];
      for (int i = 0; i < S; ++i) bytes[i] = _mm512_loadu_si512(at + 64 * i);
      for (int s = 0; s < S; ++s) index[b][s] = stage_indices<S>(gather, bytes, s);
    }
    for (int s = 0; s < S; ++s, table += kTableBytes) {
      __m512i t[8];
      for (int i = 0; i < 8; ++i) t[i] = _mm512_loadu_si512(table + 64 * i);
      for (int b = 0; b < B; ++b) {
        const __m512i i = index[b][s];
        _mm_prefetch(reinterpret_cast<const char*>(indices + b * block_bytes + p * 64 * S + 64 * s + ahead),
                     _MM_HINT_T0);
        const __mmask64 upper = _mm512_movepi8_mask(i);
        low[b].add(_mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t[0], i, t[1]),
                                          _mm512_permutex2var_epi8(t[2], i, t[3])));
        high[b].add(_mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t[4], i, t[5]),
                                           _mm512_permutex2var_epi8(t[6], i, t[7])));
      }
    }
  }
  for (int b = 0; b < B; ++b) flush(low[b], high[b], count * S, scale, sums + 64 * b);
}

// Four 6-bit indices in three bytes; a table has 64 entries, one register a plane.
template <int B>
inline void add_packed_blocks(const std::uint8_t* indices, std::size_t block_bytes, std::ptrdiff_t ahead,
                              std::size_t count, const Gather& gather, const std::uint8_t* table, float scale,
                              float* sums) {
  ByteSums low[B];
  ByteSums high[B];
  const __m512i two = _mm512_set1_epi8(3);
  const __m512i four = _mm512_set1_epi8(15);
  for (std::size_t p = 0; p < count; ++p, table += 4 * kTableBytes) {
    for (int b = 0; b < B; ++b) {
      const std::uint8_t* at = indices + b * block_bytes + p * 192;
      __m512i bytes[3];
      for (int i = 0; i < 3; ++i) {
        bytes[i] = _mm512_loadu_si512(at + 64 * i);
        _mm_prefetch(reinterpret_cast<const char*>(at + ahead + 64 * i), _MM_HINT_T0);
      }
      const __m512i b0 = stage_indices<3>(gather, bytes, 0);
      const __m512i b1 = stage_indices<3>(gather, bytes, 1);
      const __m512i b2 = stage_indices<3>(gather, bytes, 2);
      // A permute of 64 bytes looks at an index's low six bits only.
      const __m512i index[4] = {b0,
                                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(b0, 6), two),
                                                _mm512_slli_epi16(_mm512_and_si512(b1, four), 2)),
                                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(b1, 4), four),
                                                _mm512_slli_epi16(_mm512_and_si512(b2, two), 4)),
                                _mm512_srli_epi16(_mm512_andnot_si512(two, b2), 2)};
      for (int s = 0; s < 4; ++s) {
        low[b].add(_mm512_permutexvar_epi8(index[s], _mm512_loadu_si512(table + s * kTableBytes)));
        high[b].add(_mm512_permutexvar_epi8(index[s], _mm512_loadu_si512(table + s * kTableBytes + 256)));
      }
    }
  }
  for (int b = 0; b < B; ++b) flush(low[b], high[b], count * 4, scale, sums + 64 * b);
}

template <typename Four, typename One>
inline void each_block(const ExpertMatrix& m, std::size_t begin, std::size_t end, std::size_t first,
                       std::size_t count, float* sums, Four four, One one) {
  const std::size_t block_bytes = m.positions * m.position_bytes();
  const std::uint8_t* indices = m.indices + begin * block_bytes + first * m.position_bytes();
  const auto quad_bytes = static_cast<std::ptrdiff_t>(4 * block_bytes);
  // After the last four blocks come the next positions of the first ones.
  const auto quads = static_cast<std::ptrdiff_t>((end - begin) / 4);
  const std::ptrdiff_t wrap =
      first + 2 * count <= m.positions
          ? static_cast<std::ptrdiff_t>(count * m.position_bytes()) - (quads - 1) * quad_bytes
          : 0;
  std::size_t block = begin;
  for (; block + 4 <= end; block += 4, indices += quad_bytes, sums += 256)
    four(indices, block_bytes, block + 8 <= end ? quad_bytes : wrap, sums);
  for (; block < end; ++block, indices += block_bytes, sums += 64) one(indices, block_bytes, 0, sums);
}

template <int S>
inline void add_stages(const ExpertMatrix& m, std::size_t begin, std::size_t end, std::size_t first,
                       std::size_t count, const std::uint8_t* table, float scale, float* sums) {
  const Gather gather = make_gather(S);
  each_block(
      m, begin, end, first, count, sums,
      [&](const std::uint8_t* i, std::size_t bytes, std::ptrdiff_t ahead, float* out) {
        add_blocks<S, 4>(i, bytes, ahead, count, gather, table, scale, out);
      },
      [&](const std::uint8_t* i, std::size_t bytes, std::ptrdiff_t ahead, float* out) {
        add_blocks<S, 1>(i, bytes, ahead, count, gather, table, scale, out);
      });
}

void add_group(const ExpertMatrix& m, std::size_t begin, std::size_t end, std::size_t first,
               std::size_t count, const std::uint8_t* table, float scale, float* sums) {
  if (m.packed) {
    const Gather gather = make_gather(3);
    each_block(
        m, begin, end, first, count, sums,
        [&](const std::uint8_t* i, std::size_t bytes, std::ptrdiff_t ahead, float* out) {
          add_packed_blocks<4>(i, bytes, ahead, count, gather, table, scale, out);
        },
        [&](const std::uint8_t* i, std::size_t bytes, std::ptrdiff_t ahead, float* out) {
          add_packed_blocks<1>(i, bytes, ahead, count, gather, table, scale, out);
        });
  } else if (m.stages == 1) {
    add_stages<1>(m, begin, end, first, count, table, scale, sums);
  } else if (m.stages == 2) {
    add_stages<2>(m, begin, end, first, count, table, scale, sums);
  } else if (m.stages == 3) {
    add_stages<3>(m, begin, end, first, count, table, scale, sums);
  } else {
    add_stages<4>(m, begin, end, first, count, table, scale, sums);
  }
}

void finish_rows(const ExpertMatrix& m, std::size_t begin, std::size_t end, const float* sums, float* y) {
  for (std::size_t block = begin; block < end; ++block, sums += 64, y += 64) {
    const std::size_t count = m.rows - block * 64 < 64 ? m.rows - block * 64 : 64;
    const std::uint16_t* scales = m.scales + block * 64;
    for (std::size_t r = 0; r < count; ++r) y[r] = sums[r / 2 + (r & 1) * 32] * half_at(scales + r);
  }
}

}  // namespace
}  // namespace waste::runtime

#include "runtime/kernels/table.inc"

namespace waste::runtime {

const Kernels& avx512_kernels() {
  static constexpr Kernels kTable = kernels_named("avx512");
  return kTable;
}

}  // namespace waste::runtime
