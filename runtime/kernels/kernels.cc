#include "runtime/kernels/kernels.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "container/core/simd.h"

namespace waste::runtime {

const Kernels& kernels() {
#if defined(__x86_64__)
  const SimdLevel level = simd_level();
  if (level == SimdLevel::Avx512 && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512vbmi"))
    return avx512_kernels();
  if (level >= SimdLevel::Avx2) return avx2_kernels();
#elif defined(__aarch64__)
  if (simd_level() == SimdLevel::Neon) {
    return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 ? dotprod_kernels() : neon_kernels();
  }
#endif
  return baseline_kernels();
}

}  // namespace waste::runtime
