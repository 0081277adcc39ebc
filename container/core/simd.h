// Which instruction set the kernels use. It is chosen once, from the CPU, and can be forced, so that tests
// run every path on one machine; `--version` prints it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace waste {

enum class SimdLevel { Scalar, Neon, Avx2, Avx512 };

/// The level in force: the forced one, else the best this CPU has. Avx2 means AVX2, FMA and F16C; Avx512
/// means F, BW, CD, DQ and VL as well. Kernels that need more (VNNI, VBMI) ask for it on top.
SimdLevel simd_level();

/// Forces a level by name ("scalar", "neon", "avx2", "avx512"), for every kernel including Highway's. An
/// unknown name, or one this CPU cannot run, is Error(Usage) listing what it can. Call before any kernel
/// runs.
void force_simd(std::string_view name);

std::string_view simd_name(SimdLevel level);

/// What this CPU can run, lowest first.
std::vector<SimdLevel> simd_levels();

}  // namespace waste
