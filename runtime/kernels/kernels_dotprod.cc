#define WASTE_NEON_TABLE dotprod_kernels
#define WASTE_NEON_NAME "neon, dotprod"
#include "runtime/kernels/kernels_neon.inc"
