// Everything there is to know about a source before its weights are read.
#pragma once

#include <memory>

#include "container/core/json.h"
#include "container/format/model_config.h"
#include "convert/checkpoint.h"
#include "convert/model_map.h"
#include "convert/sidecars.h"

namespace waste::convert {

struct Source {
  std::unique_ptr<Json> config;  // config.json
  ModelConfig model;
  Checkpoint checkpoint;
  ModelMap map;
  Sidecars sidecars;
};

/// Reads config, index, headers and small files. Throws one Error(Data) with everything that is missing or
/// wrong.
Source open_source(const fs::path& directory, const Reclaimed& reclaimed);

}  // namespace waste::convert
