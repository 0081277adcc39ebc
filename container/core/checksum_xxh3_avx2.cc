#define WASTE_XXH3_TABLE xxh3_avx2
#include "container/core/checksum_xxh3_isa.inc"
