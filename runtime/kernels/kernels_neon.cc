#define WASTE_NEON_TABLE neon_kernels
#define WASTE_NEON_NAME "neon"
#include "runtime/kernels/kernels_neon.inc"
