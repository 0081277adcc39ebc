#define WASTE_XXH3_TABLE xxh3_baseline
#include "container/core/checksum_xxh3_isa.inc"
