#include "cli/cli.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>

#include "container/core/simd.h"
#include "container/core/text.h"

namespace waste::cli {

namespace {

void print_program_help(const Program& program) {
  fmt::print("{}: {}\n\n", program.name, program.summary);
  std::size_t width = 0;
  for (const Command& c : program.commands) width = std::max(width, c.name.size() + c.usage.size());
  for (const Command& c : program.commands) {
    const std::string call = c.name.empty() ? c.usage : c.name + " " + c.usage;
    fmt::print("  {} {:<{}}  {}\n", program.name, call, width + 1, c.summary);
  }
  fmt::print("\n{} COMMAND --help explains one command.\n", program.name);
  if (!program.notes.empty()) fmt::print("\n{}", program.notes);
}

void print_command_help(const Program& program, const Command& command,
                        const po::options_description& options) {
  std::string summary = command.summary;
  summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
  fmt::print("usage: {}{}{} {}\n\n{}.\n\n", program.name, command.name.empty() ? "" : " ", command.name,
             command.usage, summary);
  std::ostringstream text;
  text << options;
  fmt::print("{}", text.str());
  if (!command.help.empty()) fmt::print("\n{}", command.help);
}

const Command* find_command(const Program& program, std::string_view name) {
  for (const Command& c : program.commands) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

std::string command_names(const Program& program) {
  std::string names;
  for (const Command& c : program.commands) {
    if (!c.name.empty()) names += (names.empty() ? "" : ", ") + c.name;
  }
  return names;
}

// The values are typed by their own names; boost only ever sees them as one hidden multi-value option.
void bind_positionals(const Command& command, const std::vector<std::string>& values, po::variables_map& vm) {
  std::size_t i = 0;
  for (const Positional& p : command.positionals) {
    if (p.repeated) {
      std::vector<std::string> rest(values.begin() + static_cast<std::ptrdiff_t>(std::min(i, values.size())),
                                    values.end());
      if (rest.empty() && p.required) fail(ErrorKind::Usage, "{} is missing; see --help", p.name);
      vm.insert({p.name, po::variable_value(boost::any(rest), false)});
      return;
    }
    if (i < values.size()) {
      vm.insert({p.name, po::variable_value(boost::any(values[i++]), false)});
    } else if (p.required) {
      fail(ErrorKind::Usage, "{} is missing; see --help", p.name);
    }
  }
  if (i < values.size())
    fail(ErrorKind::Usage, "unexpected argument \"{}\"; see --help", printable(values[i]));
}

int run_command(const Program& program, const Command& command, const std::vector<std::string>& arguments) {
  po::options_description visible("options");
  for (const auto& option : command.options.options()) visible.add(option);
  visible.add_options()("help,h", "print this and exit")("version", "print version and SIMD path, and exit");
  po::options_description all;
  all.add(visible);
  all.add_options()("\x01", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("\x01", -1);

  po::variables_map vm;
  using po::command_line_style::style_t;
  const int style = style_t::allow_long | style_t::allow_short | style_t::long_allow_adjacent |
                    style_t::long_allow_next | style_t::short_allow_adjacent | style_t::short_allow_next |
                    style_t::allow_dash_for_short | style_t::allow_sticky;
  po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), vm);
  if (vm.count("help") != 0) {
    print_command_help(program, command, visible);
    return 0;
  }
  std::vector<std::string> values;
  if (const auto it = vm.find("\x01"); it != vm.end()) values = it->second.as<std::vector<std::string>>();
  bind_positionals(command, values, vm);
  po::notify(vm);
  return command.run(vm);
}

int dispatch(const Program& program, std::vector<std::string> arguments) {
  if (const char* simd = std::getenv("WASTE_SIMD"); simd != nullptr && *simd != '\0') force_simd(simd);
  // Everything behind "--" is the user's text, whatever it looks like.
  const auto options_end = std::find(arguments.begin(), arguments.end(), "--");
  if (std::find(arguments.begin(), options_end, "--version") != options_end) {
    fmt::print("{} {} ({})\n", program.name, WASTE_VERSION, simd_name(simd_level()));
    return 0;
  }
  const Command* command = arguments.empty() ? nullptr : find_command(program, arguments[0]);
  if (command != nullptr && !command->name.empty()) {
    arguments.erase(arguments.begin());
    return run_command(program, *command, arguments);
  }
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_program_help(program);
    return arguments.empty() ? static_cast<int>(ErrorKind::Usage) : 0;
  }
  if (const Command* unnamed = find_command(program, ""); unnamed != nullptr) {
    return run_command(program, *unnamed, arguments);
  }
  fail(ErrorKind::Usage, "unknown command \"{}\"; one of: {}", printable(arguments[0]),
       command_names(program));
}

}  // namespace

int run(const Program& program, int argc, char** argv) {
  const auto complain = [&](std::string_view message) {
    std::cout.flush();
    fmt::print(stderr, "{}: {}\n", program.name, message);
  };
  try {
    const int code = dispatch(program, std::vector<std::string>(argv + 1, argv + argc));
    // A full disk or a closed pipe behind stdout must not look like success.
    if (std::fflush(stdout) != 0) fail_errno(errno, "writing to standard output");
    return code;
  } catch (const Error& e) {
    complain(e.what());
    return e.exit_code();
  } catch (const po::error& e) {
    complain(std::string(e.what()) + "; see --help");
    return static_cast<int>(ErrorKind::Usage);
  } catch (const std::filesystem::filesystem_error& e) {
    complain(e.path1().string() + ": " + e.code().message());
    return static_cast<int>(ErrorKind::Machine);
  } catch (const std::bad_alloc&) {
    complain("out of memory");
    return static_cast<int>(ErrorKind::Machine);
  } catch (const std::exception& e) {
    complain(std::string("internal error: ") + e.what());
    return static_cast<int>(ErrorKind::Machine);
  }
}

}  // namespace waste::cli
