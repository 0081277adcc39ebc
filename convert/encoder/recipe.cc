#include "convert/encoder/recipe.h"

#include <cmath>

#include "container/core/error.h"

namespace waste::convert {

std::string_view quality_name(Quality quality) {
  switch (quality) {
    case Quality::Fast:
      return "fast";
    case Quality::Normal:
      return "normal";
    case Quality::Best:
      return "best";
  }
  return "unknown";
}

Quality parse_quality(std::string_view name) {
  for (const Quality quality : {Quality::Fast, Quality::Normal, Quality::Best}) {
    if (quality_name(quality) == name) return quality;
  }
  fail(ErrorKind::Usage, "quality \"{}\" is unknown: expected fast, normal or best", printable(name));
}

std::size_t training_vectors(Quality) {
  return 300'000;
}

double ErrorSums::relative() const {
  return energy > 0 ? std::sqrt(error / energy) : 0;
}

}  // namespace waste::convert
