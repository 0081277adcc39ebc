// The main of every unit test binary. WASTE_SIMD forces a path here as it does in the programs.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "container/core/simd.h"

int main(int argc, char** argv) {
  if (const char* simd = std::getenv("WASTE_SIMD"); simd != nullptr && *simd != '\0') waste::force_simd(simd);
  return doctest::Context(argc, argv).run();
}
