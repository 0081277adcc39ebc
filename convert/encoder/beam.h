// How wide each quality searches, and the margins that make a beam of about that width.
#pragma once

#include "convert/encoder/kernels.h"
#include "convert/encoder/recipe.h"

namespace waste::convert {

/// Partial sums that go on to the next stage, on average. Two books take one widened stage, not two, so that
/// twice the width costs the same.
int beam_width(const ExpertRecipe& recipe);

/// Margins under which about `width` partial sums a stage survive. A margin of the best score is 2.4 to 4.5
/// times faster than a sorted list of the best `width` at the same loss, because most vectors need few and
/// some need many. Measured on vectors made of the books themselves with a fixed seed, so that it depends on
/// nothing else.
Beam calibrate_beam(const BookTables& tables, int width);

}  // namespace waste::convert
