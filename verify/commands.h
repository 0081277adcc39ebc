// One function a subcommand: its name, options, help and what it runs. main.cc lists them.
#pragma once

#include "cli/cli.h"

namespace waste::verify {

cli::Command check_command();
cli::Command info_command();
cli::Command seal_command();
cli::Command repair_command();
cli::Command copy_command();
cli::Command diff_command();
cli::Command plan_command();
cli::Command disk_command();
cli::Command doctor_command();
cli::Command simulate_command();

}  // namespace waste::verify
