// waste-convert SRC OUT, from reading the source's headers to publishing the manifest.
#pragma once

#include "convert/options.h"

namespace waste::convert {

/// Returns 0 when everything asked for is done. Prints the plan, a line a layer and a summary (or JSON
/// events) on stdout, progress on stderr. Throws Error otherwise; Error(Interrupted) means that the same call
/// goes on later.
int run_conversion(const Options& options);

}  // namespace waste::convert
