#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>

#include "cli/cli.h"
#include "container/core/perf.h"

namespace waste::cli {

namespace {

constexpr double kTerminalInterval = 0.1;
constexpr double kPlainInterval = 30;
constexpr std::size_t kBarWidth = 24;

std::size_t terminal_columns() {
  struct winsize size {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

struct ProgressLine::Impl {
  std::mutex mutex;
  bool quiet = false;
  bool terminal = false;
  bool drawn = false;
  double next = 0;

  void erase() {
    if (std::exchange(drawn, false)) std::fputs("\r\033[K", stderr);
  }
};

ProgressLine::ProgressLine(bool quiet) : impl_(std::make_unique<Impl>()) {
  impl_->quiet = quiet;
  impl_->terminal = ::isatty(STDERR_FILENO) == 1;
  // The first plain line comes after one interval: short runs stay silent.
  impl_->next = impl_->terminal ? 0 : now_seconds() + kPlainInterval;
}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::show(double fraction, const std::function<std::string()>& text) {
  const std::lock_guard lock(impl_->mutex);
  const double now = now_seconds();
  if (impl_->quiet || now < impl_->next) return;
  impl_->next = now + (impl_->terminal ? kTerminalInterval : kPlainInterval);
  std::string line;
  if (fraction >= 0) {
    const double f = std::clamp(fraction, 0.0, 1.0);
    const auto full = static_cast<std::size_t>(f * kBarWidth);
    line = fmt::format("[{:<{}}] {:5.1f}%  ", std::string(full, '#'), kBarWidth, f * 100);
  }
  line += text();
  if (!impl_->terminal) {
    fmt::print(stderr, "{}\n", line);
    return;
  }
  const std::size_t columns = terminal_columns();
  if (line.size() >= columns) line.resize(columns - 1);
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  impl_->drawn = true;
}

void ProgressLine::print(std::string_view line) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->quiet) return;
  impl_->erase();
  fmt::print(stderr, "{}\n", line);
}

void ProgressLine::clear() {
  const std::lock_guard lock(impl_->mutex);
  impl_->erase();
}

}  // namespace waste::cli
