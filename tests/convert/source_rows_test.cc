#include "convert/source_rows.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "container/codec/source_formats.h"
#include "container/core/error.h"

namespace waste::convert {

TEST_CASE("every MXFP4 scale and code is refused exactly when its value is not finite") {
  Tensor weight, scale;
  weight.name = "w";
  const MatrixSource matrix{&weight, &scale};
  std::vector<float> out(kMxfp4Block);
  int refused = 0;
  for (int e = 0; e < 256; e++) {
    for (int code = 0; code < 16; code++) {
      const std::vector<std::uint8_t> codes(kMxfp4Block / 2, static_cast<std::uint8_t>(code << 4));
      const std::vector<std::uint8_t> scales{static_cast<std::uint8_t>(e)};
      const double magnitude = std::array{0., .5, 1., 1.5, 2., 3., 4., 6.}[code & 7];
      const double value = std::ldexp(code < 8 ? magnitude : -magnitude, e - 127);
      if (e == 255 || !std::isfinite(static_cast<float>(value))) {
        CHECK_THROWS_AS(decode_rows(matrix, 0, 1, kMxfp4Block, codes, scales, out), Error);
        refused++;
        continue;
      }
      decode_rows(matrix, 0, 1, kMxfp4Block, codes, scales, out);
      CHECK(out[0] == 0);
      CHECK(out[1] == static_cast<float>(value));
    }
  }
  CHECK(refused == 16 + 8 + 4);  // NaN times anything; +-2, 3, 4, 6 times 2^127; +-4, 6 times 2^126
}

}  // namespace waste::convert
