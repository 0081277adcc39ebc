#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "cli/cli.h"

namespace waste::cli {

namespace {

std::atomic<bool> flag{false};
int pipe_ends[2] = {-1, -1};

// Async-signal-safe: a lock-free store, a write, and on the second signal the default action.
void on_signal(int number) {
  if (flag.exchange(true)) {
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  const int saved = errno;
  [[maybe_unused]] const ssize_t n = ::write(pipe_ends[1], "x", 1);
  errno = saved;
}

}  // namespace

void catch_interrupts() {
  if (pipe_ends[0] < 0 && ::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) fail_errno(errno, "pipe");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

bool interrupted() {
  return flag.load(std::memory_order_relaxed);
}

int interrupt_fd() {
  return pipe_ends[0];
}

}  // namespace waste::cli
