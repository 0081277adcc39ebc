#include "cli/cli.h"
#include "runtime/commands.h"

int main(int argc, char** argv) {
  using namespace waste::runtime;
  const waste::cli::Program program{
      .name = "waste-run",
      .summary = "run a model that is bigger than memory from its .waste container",
      .notes =
          "exit: 0 done, 1 the data is bad, 2 the command is wrong, 3 the machine refused,\n"
          "      5 interrupted with the state saved if that was asked for\n",
      .commands = {generate_command(), eval_command(), chat_command(), tokenize_command(),
                   detokenize_command(), bench_command()}};
  return waste::cli::run(program, argc, argv);
}
