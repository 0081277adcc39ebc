#include "container/footprint/conversion_rate.h"

namespace waste {

ConversionRate conversion_rate(SimdLevel level) {
  switch (level) {
    case SimdLevel::Avx512:
      return {108e6, 13.8e6, 2.5e6};
    case SimdLevel::Avx2:
      return {49e6, 10.8e6, 2e6};
    case SimdLevel::Neon:
      return {15e6, 3e6, 0.6e6};
    case SimdLevel::Scalar:
      break;
  }
  return {0.5e6, 0.18e6, 0.05e6};
}

}  // namespace waste
