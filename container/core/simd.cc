#include "container/core/simd.h"

#include <hwy/targets.h>

#include <algorithm>
#include <atomic>

#include "container/core/error.h"

namespace waste {

namespace {

bool cpu_has(SimdLevel level) {
  switch (level) {
    case SimdLevel::Scalar:
      return true;
#if defined(__x86_64__)
    case SimdLevel::Neon:
      return false;
    case SimdLevel::Avx2:
      // Every CPU with AVX2 has F16C, which clang 14 cannot ask for.
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SimdLevel::Avx512:
      return cpu_has(SimdLevel::Avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    case SimdLevel::Neon:
      return true;
    case SimdLevel::Avx2:
    case SimdLevel::Avx512:
      return false;
#endif
  }
  return false;
}

std::atomic<int> forced{-1};

// Highway targets above `level`, as a mask for hwy::DisableTargets. Lower values are better targets.
std::int64_t highway_targets_above(SimdLevel level) {
  switch (level) {
    case SimdLevel::Scalar:
    case SimdLevel::Neon:
    case SimdLevel::Avx512:
      return 0;
    case SimdLevel::Avx2:
      return HWY_AVX3 | HWY_AVX3_DL;
  }
  return 0;
}

}  // namespace

std::vector<SimdLevel> simd_levels() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : {SimdLevel::Scalar, SimdLevel::Neon, SimdLevel::Avx2, SimdLevel::Avx512}) {
    if (cpu_has(level)) levels.push_back(level);
  }
  return levels;
}

SimdLevel simd_level() {
  const int value = forced.load(std::memory_order_relaxed);
  if (value >= 0) return static_cast<SimdLevel>(value);
  static const SimdLevel best = simd_levels().back();
  return best;
}

std::string_view simd_name(SimdLevel level) {
  switch (level) {
    case SimdLevel::Scalar:
      return "scalar";
    case SimdLevel::Neon:
      return "neon";
    case SimdLevel::Avx2:
      return "avx2";
    case SimdLevel::Avx512:
      return "avx512";
  }
  return "unknown";
}

void force_simd(std::string_view name) {
  std::string can;
  for (const SimdLevel level : simd_levels()) {
    if (simd_name(level) == name) {
      forced.store(static_cast<int>(level), std::memory_order_relaxed);
      hwy::DisableTargets(highway_targets_above(level));
      return;
    }
    can += (can.empty() ? "" : ", ") + std::string(simd_name(level));
  }
  fail(ErrorKind::Usage, "SIMD path \"{}\" is unknown or not in this CPU, which can run: {}", printable(name),
       can);
}

}  // namespace waste
