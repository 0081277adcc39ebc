// The last steps: small files, the seal over everything, and the manifest that makes it a container.
#pragma once

#include <map>

#include "convert/journal.h"
#include "convert/plan.h"
#include "convert/quality.h"
#include "convert/sidecars.h"

namespace waste::convert {

/// What the whole run came to.
struct Converted {
  UnitState trunk;
  std::map<std::uint32_t, UnitState> layers;  // all of them, complete
};

/// `run` (source and recipe) is stored in the manifest under "conversion", so that a later run into the same
/// folder can be recognised. The manifest is the last file to appear.
void publish_container(const Plan& plan, const Converted& converted, const Sidecars& sidecars,
                       const Json& run, const fs::path& out, const Journal& journal);

QualityReport quality_of(const Converted& converted);

}  // namespace waste::convert
