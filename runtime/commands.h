// The subcommands of waste-run, one file each.
#pragma once

#include "cli/cli.h"

namespace waste::runtime {

cli::Command generate_command();
cli::Command eval_command();
cli::Command chat_command();
cli::Command tokenize_command();
cli::Command detokenize_command();
cli::Command bench_command();

}  // namespace waste::runtime
