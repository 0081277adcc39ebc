// One function a subcommand: its name, options, help and what it runs. main.cc lists them.
#pragma once

#include "cli/cli.h"

namespace waste::verify {

cli::Command simulate_command();

}  // namespace waste::verify
