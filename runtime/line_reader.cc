#include "runtime/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "cli/cli.h"
#include "container/core/error.h"

namespace waste::runtime {

std::optional<std::string> LineReader::next() {
  while (true) {
    if (cli::interrupted()) return std::nullopt;
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    if (ended_) {
      if (buffer_.empty()) return std::nullopt;
      return std::exchange(buffer_, {});
    }
    // A read alone would be restarted after the signal and wait for a line that nobody types.
    pollfd sources[2] = {{STDIN_FILENO, POLLIN, 0}, {cli::interrupt_fd(), POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno, "poll");
    }
    if (sources[0].revents == 0) continue;
    char block[4096];
    const ssize_t n = ::read(STDIN_FILENO, block, sizeof block);
    if (n < 0 && errno != EINTR) fail_errno(errno, "reading standard input");
    if (n == 0) ended_ = true;
    if (n > 0) buffer_.append(block, static_cast<std::size_t>(n));
  }
}

}  // namespace waste::runtime
