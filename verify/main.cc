#include "cli/cli.h"
#include "verify/commands.h"

using namespace waste::verify;

int main(int argc, char** argv) {
  const waste::cli::Program program{
      .name = "waste-verify",
      .summary = "what a container is, whether it is whole, and what a machine can do with it",
      .notes =
          "exit: 0 all is well, 1 the data is bad, 2 the command is wrong, 3 the machine refused,\n"
          "      4 a server refused, 5 interrupted with the state saved\n",
      .commands = {
          check_command(),
          info_command(),
          seal_command(),
          repair_command(),
          copy_command(),
          diff_command(),
          plan_command(),
          disk_command(),
          doctor_command(),
          simulate_command(),
      }};
  return waste::cli::run(program, argc, argv);
}
