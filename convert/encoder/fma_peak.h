// What one core can do at most, to hold the kernels' speed against.
#pragma once

namespace waste::convert {

/// Fused multiply-adds of floats a second, measured on this core with the registers of the SIMD level in
/// force; meaningless for the scalar one.
double measure_fma_peak();

}  // namespace waste::convert
