#define WASTE_XXH3_TABLE xxh3_avx512
#include "container/core/checksum_xxh3_isa.inc"
