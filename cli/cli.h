// What the four programs' command lines have in common: subcommands with help, options before or after
// positionals, errors mapped to exit codes, Ctrl-C, and a progress line. It knows nothing of the .waste
// format.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/error.h"

namespace waste::cli {

namespace po = boost::program_options;

/// One positional argument. `repeated` (only the last) takes all that remain.
struct Positional {
  std::string name;
  bool required = true;
  bool repeated = false;
};

struct Command {
  std::string name;     // "check"; empty for a program whose default command has no name
  std::string usage;    // "DIR [options]"
  std::string summary;  // one line, lower case, without a full stop
  std::string help;     // examples and what it does, below the options
  std::vector<Positional> positionals;
  po::options_description options;
  std::function<int(const po::variables_map&)> run;  // returns the exit code; throws Error otherwise
};

struct Program {
  std::string name;
  std::string summary;
  std::string notes;  // printed below the list of commands: examples, exit codes
  std::vector<Command> commands;
};

/// Parses argv, runs the command, and turns every exception into one line on stderr and an exit code.
/// --help and --version work everywhere; WASTE_SIMD is obeyed. An unknown option, an unknown, missing or
/// repeated positional and an option's bad value are Error(Usage), exit 2. Prefixes of options are not
/// guessed.
int run(const Program& program, int argc, char** argv);

/// Installs the Ctrl-C (and SIGTERM) behaviour: the first sets the flag, the second kills at once.
void catch_interrupts();
/// Whether an interrupt has been asked for.
bool interrupted();
/// The flag's file descriptor: readable once an interrupt has come. For event loops.
int interrupt_fd();

/// A progress display on stderr: one line redrawn on a terminal, a plain line every 30 s otherwise, nothing
/// when `quiet`. Thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows `text` when it is time to (ten times a second on a terminal). `fraction` in [0, 1] draws the bar;
  /// negative draws none.
  void show(double fraction, const std::function<std::string()>& text);
  /// Prints a line that stays, above the progress line.
  void print(std::string_view line);
  /// Removes the progress line.
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace waste::cli
