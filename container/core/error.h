// The one exception type. Every error message names the file, the tensor or record, the offset, what was
// expected and what was found; its kind decides the exit code of whatever program it reaches.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace waste {

enum class ErrorKind : int {
  Data = 1,         // the data is bad: damaged container, wrong checksum, unsupported model
  Usage = 2,        // the command is wrong
  Machine = 3,      // the machine refused: disk full, no permission, budget below the floor
  Network = 4,      // the network or the server refused
  Interrupted = 5,  // stopped on request with its state saved
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// Throws Error(kind, formatted message).
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_data(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::Data, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(Machine) with the text of `errno_value` appended.
[[noreturn]] void fail_errno(int errno_value, const std::string& what);

/// A name from untrusted input made safe to print: control characters, quotes and invalid UTF-8 are escaped,
/// and anything over 200 bytes is cut.
std::string printable(std::string_view untrusted);

}  // namespace waste
