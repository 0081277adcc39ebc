// HTTP for a few hundred transfers in one thread: libcurl's multi interface behind an event loop, with the
// rules that protect the user built in, so that no caller can forget one:
//
//   - the token goes to the Hub's own scheme, host and port and nowhere else, on no hop of no redirect;
//   - redirects are bounded, and never lead from https to http or to a URL with a password in it;
//   - when a server says that its window is empty, or names a time to come back, every request to it waits;
//   - a transfer that stays below 1 KiB/s for the whole stall timeout is cut;
//   - all bodies together stay below the rate limit.
//
// Everything but wake() belongs to one thread.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "download/headers.h"
#include "download/retry.h"
#include "download/settings.h"
#include "download/url.h"

namespace waste::download {

struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // inclusive, as in HTTP
};

struct Request {
  std::string url;
  std::optional<ByteRange> range;
};

/// How a transfer ended.
struct Outcome {
  enum class Kind {
    Complete,  // the body ended where the server said it would
    Stopped,   // the receiver wanted no more
    Failed,
  };
  Kind kind = Kind::Complete;
  Failure failure = Failure::Dropped;  // of Failed
  std::string message;                 // of Failed: one line without URL queries or secrets
};

/// Takes one answer. An exception thrown by any of these leaves through Http::poll.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// A redirect that will be followed.
  virtual void on_redirect(const ResponseHead& head) = 0;
  /// The head of the final answer; false cuts the connection.
  virtual bool on_head(const ResponseHead& head, const Url& url) = 0;
  /// A piece of its body; false cuts the connection.
  virtual bool on_body(std::span<const std::uint8_t> data) = 0;
  /// The last call. The receiver may start the next transfer from here, or cease to be.
  virtual void on_done(const Outcome& outcome) = 0;
};

class Http {
 public:
  struct Options {
    std::string hub;  // any URL on the Hub
    Token token;
    double stall_timeout = 30;     // seconds
    std::uint64_t limit_rate = 0;  // bytes per second of all bodies together; 0 for no limit
    unsigned connections = 16;     // to keep open
  };

  explicit Http(Options options);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// Begins a transfer, or queues it until its server's gate opens. `receiver` must live until its on_done().
  void start(const Request& request, Receiver& receiver);
  /// Ends a receiver's transfer, without a call to it.
  void cancel(const Receiver& receiver);
  /// Waits until something happens, wake() is called, `fd` (if not negative) becomes readable or `timeout`
  /// seconds pass; makes the calls that are due.
  void poll(double timeout, int fd);
  /// Ends a poll() from any thread.
  void wake();

  bool is_hub(const Url& url) const { return url.origin == hub_origin_; }

 private:
  struct Transfer;
  struct Multi;

  void launch(Transfer& transfer);
  void finish(Transfer& transfer, int curl_code);
  void settle(Transfer& transfer, const Outcome& outcome);
  void follow(Transfer& transfer);
  bool on_head(Transfer& transfer);
  void note_limits(const ResponseHead& head, const std::string& origin);
  void cut_stalled(double now);
  void refill(double now);
  void launch_waiting(double now);
  static std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* user);
  static std::size_t body_callback(char* data, std::size_t size, std::size_t count, void* user);

  Options options_;
  std::string hub_origin_;
  std::unique_ptr<Multi> multi_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::map<std::string, double> gates_;  // origin -> when it opens
  double allowance_ = 0;                 // bytes that may pass now under the rate limit
  double refilled_ = 0;
  double polled_ = 0;
  std::exception_ptr exception_;
};

}  // namespace waste::download
