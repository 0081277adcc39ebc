// Sixteen floats, as one AVX-512 register, two AVX2 registers, four NEON registers or an array: the unit in
// which every floating-point reduction of the engine is ordered, so that all of them round alike.
// Multiplication and addition are fused where fma() says so and nowhere else.
//
// For kernel files only: each is compiled once per instruction set, and everything here has internal linkage
// so that no instruction set leaks into another's object through the linker. NEON is on in every object for
// 64-bit ARM: the macro WASTE_NEON tells the NEON kernels' from the baseline's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(WASTE_NEON)
#include <arm_neon.h>
#else
#include <cmath>

#include "container/core/half.h"
#endif

namespace waste::runtime {
namespace {

#if defined(__AVX512F__)

struct V16 {
  __m512 v;
};
inline V16 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void store(float* p, V16 a) {
  _mm512_storeu_ps(p, a.v);
}
inline V16 splat(float f) {
  return {_mm512_set1_ps(f)};
}
inline V16 load_half(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline V16 load_i8(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline V16 operator+(V16 a, V16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline V16 operator-(V16 a, V16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline V16 operator*(V16 a, V16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline V16 operator/(V16 a, V16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline V16 max(V16 a, V16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline V16 min(V16 a, V16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline V16 abs(V16 a) {
  return {_mm512_abs_ps(a.v)};
}
/// a < b ? x : y, lane by lane.
inline V16 select_less(V16 a, V16 b, V16 x, V16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
/// The bits of `a` plus those of `n` shifted into the exponent: a * 2^k when n's low bits are k.
inline V16 scale_by_low_bits(V16 a, V16 n) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(n.v), 23)))};
}
/// Rounds to nearest even; values lie within 16 bits.
inline void store_rounded_i16(std::int16_t* p, V16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
}
inline float half_at(const std::uint16_t* p) {
  return _cvtsh_ss(*p);
}

#elif defined(__AVX2__)

struct V16 {
  __m256 a, b;
};
inline V16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline V16 splat(float f) {
  return {_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
inline V16 load_half(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline V16 load_i8(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline V16 operator+(V16 x, V16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline V16 operator-(V16 x, V16 y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline V16 operator*(V16 x, V16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline V16 operator/(V16 x, V16 y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline V16 fma(V16 x, V16 y, V16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline V16 max(V16 x, V16 y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline V16 min(V16 x, V16 y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline V16 abs(V16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline V16 select_less(V16 a, V16 b, V16 x, V16 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
}
inline __m256 scale_by_low_bits(__m256 a, __m256 n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}
inline V16 scale_by_low_bits(V16 a, V16 n) {
  return {scale_by_low_bits(a.a, n.a), scale_by_low_bits(a.b, n.b)};
}
inline void store_rounded_i16(std::int16_t* p, V16 x) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
inline float half_at(const std::uint16_t* p) {
  return _cvtsh_ss(*p);
}

#elif defined(WASTE_NEON)

struct V16 {
  float32x4_t v[4];
};
template <typename F>
inline V16 each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline V16 load(const float* p) {
  return each([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store(float* p, const V16& x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}
inline V16 splat(float f) {
  return each([&](int) { return vdupq_n_f32(f); });
}
inline V16 load_half(const std::uint16_t* p) {
  return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
inline V16 load_i8(const std::int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_high_s8(bytes);
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}
inline V16 operator+(const V16& x, const V16& y) {
  return each([&](int i) { return vaddq_f32(x.v[i], y.v[i]); });
}
inline V16 operator-(const V16& x, const V16& y) {
  return each([&](int i) { return vsubq_f32(x.v[i], y.v[i]); });
}
inline V16 operator*(const V16& x, const V16& y) {
  return each([&](int i) { return vmulq_f32(x.v[i], y.v[i]); });
}
inline V16 operator/(const V16& x, const V16& y) {
  return each([&](int i) { return vdivq_f32(x.v[i], y.v[i]); });
}
inline V16 fma(const V16& x, const V16& y, const V16& z) {
  return each([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
}
inline V16 select_less(const V16& a, const V16& b, const V16& x, const V16& y) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]); });
}
// Not vmaxq and vminq, which order the two zeros and pass NaNs on: x86 returns the second operand then.
inline V16 max(const V16& x, const V16& y) {
  return select_less(y, x, x, y);
}
inline V16 min(const V16& x, const V16& y) {
  return select_less(x, y, x, y);
}
inline V16 abs(const V16& x) {
  return each([&](int i) { return vabsq_f32(x.v[i]); });
}
inline V16 scale_by_low_bits(const V16& a, const V16& n) {
  return each([&](int i) {
    const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(n.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a.v[i]), exponent));
  });
}
inline void store_rounded_i16(std::int16_t* p, const V16& x) {
  for (int i = 0; i < 4; ++i) vst1_s16(p + 4 * i, vmovn_s32(vcvtnq_s32_f32(x.v[i])));
}
inline float half_at(const std::uint16_t* p) {
  float16_t half;
  std::memcpy(&half, p, sizeof half);
  return half;
}

#else

struct V16 {
  float v[16];
};
template <typename F>
inline V16 each(F f) {
  V16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
inline V16 load(const float* p) {
  V16 r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
inline void store(float* p, const V16& a) {
  std::memcpy(p, a.v, sizeof a.v);
}
inline V16 splat(float f) {
  return each([&](int) { return f; });
}
inline V16 load_half(const std::uint16_t* p) {
  return each([&](int i) { return half_to_float(p[i]); });
}
inline V16 load_i8(const std::int8_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
inline V16 operator+(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline V16 operator-(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline V16 operator*(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline V16 operator/(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
inline V16 fma(const V16& a, const V16& b, const V16& c) {
  return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline V16 max(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline V16 min(const V16& a, const V16& b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline V16 abs(const V16& a) {
  return each([&](int i) { return __builtin_fabsf(a.v[i]); });
}
inline V16 select_less(const V16& a, const V16& b, const V16& x, const V16& y) {
  return each([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
inline V16 scale_by_low_bits(const V16& a, const V16& n) {
  return each([&](int i) {
    std::uint32_t bits;
    std::uint32_t low;
    std::memcpy(&bits, &a.v[i], 4);
    std::memcpy(&low, &n.v[i], 4);
    bits += low << 23;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  });
}

inline void store_rounded_i16(std::int16_t* p, const V16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int16_t>(std::lrint(a.v[i]));
}
inline float half_at(const std::uint16_t* p) {
  return half_to_float(*p);
}

#endif

inline float tree_sum(const V16& a) {
  float f[16];
  store(f, a);
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) f[i] += f[i + step];
  return f[0];
}

}  // namespace
}  // namespace waste::runtime
