#include "download/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <new>
#include <utility>

#include "container/core/error.h"
#include "container/core/perf.h"

namespace waste::download {

namespace {

constexpr double kStallFloor = 1024;                 // bytes per second
constexpr std::size_t kMostRedirectBody = 64 << 10;  // read to keep the connection, no more
constexpr long kReceiveBuffer = 128 << 10;           // 128 transfers fit into 16 MiB
constexpr double kRateTick = 0.02;                   // how often paused transfers are looked at

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

Failure failure_of_code(int code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PROXY:
      return Failure::Unreachable;
    // Certificates and settings do not heal by themselves.
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return Failure::Refused;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
      return Failure::Misbehaved;
    default:
      return Failure::Dropped;
  }
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

template <typename Value>
void set_option(CURL* easy, CURLoption option, Value value) {
  if (curl_easy_setopt(easy, option, value) != CURLE_OK)
    fail(ErrorKind::Machine, "libcurl refuses option {}", int{option});
}

}  // namespace

struct Http::Multi {
  Multi() : handle(curl_multi_init()) {
    if (handle == nullptr) throw std::bad_alloc();
  }
  ~Multi() { curl_multi_cleanup(handle); }
  Multi(const Multi&) = delete;
  Multi& operator=(const Multi&) = delete;

  // Handles are not used twice: after some failures libcurl 7.88 refuses options on one that it has taken
  // back. The connections, which are what is worth keeping, belong to the multi handle.
  static CURL* make() {
    CURL* easy = curl_easy_init();
    if (easy == nullptr) throw std::bad_alloc();
    return easy;
  }
  void end(CURL* easy) const {
    curl_multi_remove_handle(handle, easy);
    curl_easy_cleanup(easy);
  }

  CURLM* handle;
};

struct Http::Transfer {
  Http* http = nullptr;
  Receiver* receiver = nullptr;
  Request request;
  Url url;
  unsigned hops = 0;
  CURL* easy = nullptr;  // null while it waits at a gate
  std::unique_ptr<curl_slist, FreeList> headers;
  char error[CURL_ERROR_SIZE] = "";
  HeadParser head;
  bool bad_head = false;
  bool stopped = false;
  std::optional<std::string> location;  // of a redirect
  std::size_t redirect_body = 0;
  double window_start = 0;  // of the stall detector
  double window_bytes = 0;
  double paused_since = -1;
};

Http::Http(Options options) : options_(std::move(options)) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) fail(ErrorKind::Machine, "libcurl: {}", curl_easy_strerror(initialised));
  hub_origin_ = parse_url(options_.hub).value().origin;
  multi_ = std::make_unique<Multi>();
  curl_multi_setopt(multi_->handle, CURLMOPT_MAXCONNECTS, static_cast<long>(options_.connections + 4));
  refilled_ = polled_ = now_seconds();
}

Http::~Http() {
  for (const auto& transfer : transfers_) {
    if (transfer->easy != nullptr) multi_->end(transfer->easy);
  }
}

void Http::wake() {
  curl_multi_wakeup(multi_->handle);
}

void Http::start(const Request& request, Receiver& receiver) {
  auto transfer = std::make_unique<Transfer>();
  transfer->http = this;
  transfer->receiver = &receiver;
  transfer->request = request;
  auto url = parse_url(request.url);
  if (!url) fail(ErrorKind::Network, "\"{}\" is not an http or https URL", url_for_people(request.url));
  transfer->url = std::move(*url);
  transfers_.push_back(std::move(transfer));
  launch_waiting(now_seconds());
}

void Http::cancel(const Receiver& receiver) {
  const auto it = std::find_if(transfers_.begin(), transfers_.end(),
                               [&](const auto& t) { return t->receiver == &receiver; });
  if (it == transfers_.end()) return;
  if ((*it)->easy != nullptr) multi_->end((*it)->easy);
  transfers_.erase(it);
}

void Http::launch_waiting(double now) {
  for (const auto& transfer : transfers_) {
    if (transfer->easy != nullptr) continue;
    const auto gate = gates_.find(transfer->url.origin);
    if (gate == gates_.end() || now >= gate->second) launch(*transfer);
  }
}

void Http::launch(Transfer& t) {
  t.easy = Multi::make();
  t.head.reset();
  t.bad_head = t.stopped = false;
  t.location.reset();
  t.redirect_body = 0;
  t.window_start = now_seconds();
  t.window_bytes = 0;
  t.paused_since = -1;

  const auto add = [&](const std::string& line) {
    curl_slist* list = curl_slist_append(t.headers.get(), line.c_str());
    if (list == nullptr) throw std::bad_alloc();
    t.headers.release();
    t.headers.reset(list);
  };
  t.headers.reset();
  // With any other coding a range would be one of the compressed bytes.
  add("Accept-Encoding: identity");
  if (t.request.range) add(fmt::format("Range: bytes={}-{}", t.request.range->first, t.request.range->last));
  if (!options_.token.empty() && is_hub(t.url)) add("Authorization: Bearer " + options_.token.value());

  CURL* easy = t.easy;
  set_option(easy, CURLOPT_PRIVATE, &t);
  set_option(easy, CURLOPT_URL, t.url.text.c_str());
  set_option(easy, CURLOPT_HTTPHEADER, t.headers.get());
  set_option(easy, CURLOPT_USERAGENT, "waste-download/" WASTE_VERSION);
  set_option(easy, CURLOPT_ERRORBUFFER, t.error);
  t.error[0] = '\0';
  set_option(easy, CURLOPT_HEADERFUNCTION, &Http::header_callback);
  set_option(easy, CURLOPT_HEADERDATA, &t);
  set_option(easy, CURLOPT_WRITEFUNCTION, &Http::body_callback);
  set_option(easy, CURLOPT_WRITEDATA, &t);
  set_option(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set_option(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set_option(easy, CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
  set_option(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // HTTP/2 would put all ranges onto one TCP connection, whose speed is what the ranges are there to
  // multiply.
  set_option(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  set_option(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  set_option(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.stall_timeout * 1000));
  set_option(easy, CURLOPT_NOSIGNAL, 1L);
  // The library, unlike the curl command, does not read these by itself.
  const char* ca_file = std::getenv("CURL_CA_BUNDLE");
  if (ca_file == nullptr) ca_file = std::getenv("SSL_CERT_FILE");
  if (ca_file != nullptr && *ca_file != '\0') set_option(easy, CURLOPT_CAINFO, ca_file);
  if (const char* ca_path = std::getenv("SSL_CERT_DIR"); ca_path != nullptr && *ca_path != '\0') {
    set_option(easy, CURLOPT_CAPATH, ca_path);
  }
  curl_multi_add_handle(multi_->handle, easy);
}

std::size_t Http::header_callback(char* data, std::size_t size, std::size_t count, void* user) {
  Transfer& t = *static_cast<Transfer*>(user);
  const std::size_t length = size * count;
  try {
    switch (t.head.add({data, length})) {
      case HeadParser::Result::More:
        return length;
      case HeadParser::Result::Bad:
        t.bad_head = true;
        return 0;
      case HeadParser::Result::Complete:
        return t.http->on_head(t) ? length : 0;
    }
  } catch (...) {
    t.http->exception_ = std::current_exception();
  }
  return 0;
}

bool Http::on_head(Transfer& t) {
  ResponseHead head = t.head.head();
  head.url = t.url.text;
  note_limits(head, t.url.origin);
  if (is_redirect(head.status)) {
    if (const std::string* location = head.find("location")) {
      t.location = *location;
      t.receiver->on_redirect(head);
      return true;
    }
  }
  if (!t.receiver->on_head(head, t.url)) t.stopped = true;
  return !t.stopped;
}

void Http::note_limits(const ResponseHead& head, const std::string& origin) {
  double wait = 0;
  const std::string* after = head.find("retry-after");
  if (after != nullptr && (head.status == 429 || head.status == 503)) {
    wait = parse_retry_after(*after, std::time(nullptr)).value_or(0);
  }
  if (const std::string* limit = head.find("ratelimit")) {
    const auto window = parse_rate_limit(*limit);
    if (window && window->remaining == 0) wait = std::max(wait, window->reset);
  }
  if (wait > 0) gates_[origin] = std::max(gates_[origin], now_seconds() + wait);
}

std::size_t Http::body_callback(char* data, std::size_t size, std::size_t count, void* user) {
  Transfer& t = *static_cast<Transfer*>(user);
  Http& http = *t.http;
  const std::size_t length = size * count;
  if (http.exception_ || t.stopped) return 0;
  if (t.location) {
    t.redirect_body += length;
    t.stopped = t.redirect_body > kMostRedirectBody;
    return t.stopped ? 0 : length;
  }
  if (http.options_.limit_rate != 0) {
    if (http.allowance_ <= 0) {
      if (t.paused_since < 0) t.paused_since = now_seconds();
      return CURL_WRITEFUNC_PAUSE;
    }
    http.allowance_ -= static_cast<double>(length);
  }
  t.window_bytes += static_cast<double>(length);
  try {
    if (t.receiver->on_body({reinterpret_cast<const std::uint8_t*>(data), length})) return length;
    t.stopped = true;
  } catch (...) {
    http.exception_ = std::current_exception();
  }
  return 0;
}

void Http::follow(Transfer& t) {
  auto target = resolve_url(t.url.text, *t.location);
  if (const auto objection = redirect_objection(t.url, target, ++t.hops)) {
    settle(t, {Outcome::Kind::Failed, Failure::Refused, url_for_people(t.url.text) + " " + *objection});
  } else {
    t.url = std::move(*target);
  }
}

void Http::settle(Transfer& t, const Outcome& outcome) {
  Receiver* receiver = t.receiver;
  cancel(*receiver);
  receiver->on_done(outcome);
}

void Http::finish(Transfer& t, int code) {
  multi_->end(std::exchange(t.easy, nullptr));
  if (t.location && (code == CURLE_OK || t.stopped)) {
    follow(t);
    return;
  }
  if (t.stopped) return settle(t, {Outcome::Kind::Stopped, {}, {}});
  if (code == CURLE_OK) return settle(t, {Outcome::Kind::Complete, {}, {}});
  const Failure failure = t.bad_head ? Failure::Misbehaved : failure_of_code(code);
  const std::string reason = t.bad_head ? "an endless head"
                             : t.error[0] != '\0'
                                 ? options_.token.redact(printable(t.error))
                                 : std::string(curl_easy_strerror(static_cast<CURLcode>(code)));
  settle(t, {Outcome::Kind::Failed, failure, url_for_people(t.url.text) + ": " + reason});
}

void Http::cut_stalled(double now) {
  // Time in which we did not read (a disk that blocked a write) is not the server's fault.
  const double away = now - polled_ > 1 ? now - polled_ : 0;
  const double enough = kStallFloor * options_.stall_timeout;
  std::vector<Receiver*> stalled;
  for (const auto& t : transfers_) {
    if (t->easy == nullptr) continue;
    t->window_start += away;
    if (t->paused_since >= 0) continue;
    if (t->window_bytes >= enough) {
      t->window_start = now;
      t->window_bytes = 0;
    } else if (now - t->window_start > options_.stall_timeout) {
      stalled.push_back(t->receiver);
    }
  }
  for (Receiver* receiver : stalled) {
    const auto it = std::find_if(transfers_.begin(), transfers_.end(),
                                 [&](const auto& t) { return t->receiver == receiver; });
    if (it == transfers_.end()) continue;  // another's on_done cancelled it
    settle(**it,
           {Outcome::Kind::Failed, Failure::Stalled,
            fmt::format("{}: stalled for {} s", url_for_people((*it)->url.text), options_.stall_timeout)});
  }
}

void Http::refill(double now) {
  if (options_.limit_rate == 0) return;
  const auto rate = static_cast<double>(options_.limit_rate);
  // A tenth of a second of burst: enough for full packets, too little to be seen as a burst.
  allowance_ = std::min(allowance_ + rate * (now - refilled_), rate * 0.1);
  refilled_ = now;
  std::vector<Transfer*> paused;
  for (const auto& t : transfers_) {
    if (t->paused_since >= 0) paused.push_back(t.get());
  }
  // Whoever waited longest goes first, or the first of the list would take all.
  std::sort(paused.begin(), paused.end(), [](auto* a, auto* b) { return a->paused_since < b->paused_since; });
  for (Transfer* t : paused) {
    if (allowance_ <= 0) break;
    t->window_start += now - t->paused_since;
    t->paused_since = -1;
    curl_easy_pause(t->easy, CURLPAUSE_CONT);
  }
}

void Http::poll(double timeout, int fd) {
  double now = now_seconds();
  launch_waiting(now);
  refill(now);
  for (const auto& t : transfers_) {
    if (t->paused_since >= 0) timeout = std::min(timeout, kRateTick);
    if (t->easy == nullptr) timeout = std::min(timeout, std::max(0.0, gates_[t->url.origin] - now));
  }
  curl_waitfd extra{fd, CURL_WAIT_POLLIN, 0};
  const int milliseconds = static_cast<int>(std::max(0.0, timeout) * 1000 + 0.999);
  if (!exception_) curl_multi_poll(multi_->handle, &extra, fd >= 0 ? 1 : 0, milliseconds, nullptr);
  // Once, and after the wait: a transfer that ended in a round before it would not end the wait.
  int running = 0;
  curl_multi_perform(multi_->handle, &running);
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_->handle, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* user = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
    finish(*static_cast<Transfer*>(user), message->data.result);
  }
  now = now_seconds();
  cut_stalled(now);
  polled_ = now;
}

}  // namespace waste::download
