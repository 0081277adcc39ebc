#include "download/hub.h"

#include <algorithm>
#include <random>

#include "cli/cli.h"
#include "container/core/perf.h"
#include "container/core/text.h"
#include "download/paths.h"

namespace waste::download {

namespace {

constexpr std::uint64_t kLargestAnswer = 4 << 20;
constexpr std::size_t kMostPages = 1000;

// Collects one whole answer, up to a limit.
class Collector : public Receiver {
 public:
  explicit Collector(std::uint64_t limit) : limit_(limit) {}

  void on_redirect(const ResponseHead&) override {}
  bool on_head(const ResponseHead& head, const Url& url) override {
    head_ = head;
    url_ = url;
    return true;
  }
  bool on_body(std::span<const std::uint8_t> data) override {
    if (body_.size() + data.size() > limit_) return false;
    body_.append(reinterpret_cast<const char*>(data.data()), data.size());
    return true;
  }
  void on_done(const Outcome& outcome) override { outcome_ = outcome; }

  bool is_done() const { return outcome_.has_value(); }
  const Outcome& outcome() const { return *outcome_; }
  const ResponseHead& head() const { return head_; }
  const Url& url() const { return url_; }
  std::string take_body() { return std::move(body_); }

 private:
  std::uint64_t limit_;
  ResponseHead head_;
  Url url_;
  std::string body_;
  std::optional<Outcome> outcome_;
};

}  // namespace

std::string file_url(const Settings& settings, const std::string& repository, const std::string& commit,
                     const std::string& path) {
  return settings.endpoint + "/" + repository + "/resolve/" + commit + "/" + percent_encode(path, true);
}

void check_linked_headers(const ResponseHead& head, const Entry& entry, const std::string& commit) {
  const auto differ = [&](const char* what, const std::string& found, const std::string& expected) {
    fail_data("{}: the Hub's answer gives {} {}, its listing {}", printable(entry.path), what,
              printable(found), expected);
  };
  if (const std::string* found = head.find("x-repo-commit"); found != nullptr && *found != commit) {
    differ("commit", *found, commit);
  }
  if (const std::string* found = head.find("x-linked-size");
      found != nullptr && *found != std::to_string(entry.size)) {
    differ("size", *found, std::to_string(entry.size));
  }
  if (const std::string* found = head.find("x-linked-etag"); found != nullptr) {
    const auto id = parse_etag(*found);
    if (id && id->kind == entry.id.kind && *id != entry.id) differ(id->kind_name(), id->hex, entry.id.hex);
  }
}

double random_jitter() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

Hub::Answer Hub::get(const Request& request, const Asked& asked, std::uint64_t limit) {
  std::vector<Attempt> history;
  while (true) {
    Collector collector(limit);
    http_.start(request, collector);
    try {
      while (!collector.is_done()) {
        http_.poll(1, cli::interrupt_fd());
        if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted before anything was fetched");
      }
    } catch (...) {
      http_.cancel(collector);
      throw;
    }
    const ResponseHead& head = collector.head();
    const Outcome& outcome = collector.outcome();
    std::string body = collector.take_body();
    const bool good_status = head.status == 200 || (request.range && head.status == 206);
    if (outcome.kind == Outcome::Kind::Complete && good_status && head.is_identity() && !head.is_html()) {
      return {head, std::move(body), collector.url().text};
    }
    Attempt attempt;
    std::string why = outcome.message;
    if (outcome.kind == Outcome::Kind::Failed) {
      attempt.failure = outcome.failure;
    } else if (head.status >= 400) {
      attempt.failure = failure_of_status(head.status, true);
      why = fmt::format("the server answers {}", head.status);
      if (const std::string* after = head.find("retry-after")) {
        attempt.retry_after = parse_retry_after(*after, std::time(nullptr));
      }
    } else {
      attempt.failure = Failure::Misbehaved;
      why = outcome.kind == Outcome::Kind::Stopped ? fmt::format("an answer over {} bytes", limit)
            : head.is_html()                       ? std::string(kHtmlPage)
                                                   : fmt::format("an answer with status {}", head.status);
    }
    history.push_back(attempt);
    const Verdict verdict = decide(history, limits_, random_jitter());
    if (verdict.action == Verdict::Action::GiveUp) {
      if (outcome.kind != Outcome::Kind::Failed && head.status >= 400 &&
          attempt.failure == Failure::Refused) {
        throw refusal(head, body, asked, settings_);
      }
      const std::string said = server_text(head, body, settings_.token);
      fail(ErrorKind::Network, "gave up on {} after {} {}: {}{}; run again to continue",
           url_for_people(request.url), history.size(), history.size() == 1 ? "attempt" : "attempts", why,
           said.empty() ? "" : " (the server says: " + said + ")");
    }
    report_.retry(url_for_people(request.url), why, verdict.delay);
    for (const double until = now_seconds() + verdict.delay; now_seconds() < until;) {
      http_.poll(until - now_seconds(), cli::interrupt_fd());
      if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted before anything was fetched");
    }
  }
}

Revision Hub::resolve(const std::string& repository, const std::string& revision) {
  const std::string url =
      settings_.endpoint + "/api/models/" + repository + "/revision/" + percent_encode(revision, false);
  const Answer answer = get({url, {}}, {repository, revision, {}}, kLargestAnswer);
  Revision found = parse_revision(answer.body, url_for_people(answer.url));
  if (found.repository.empty()) found.repository = repository;
  return found;
}

std::vector<Entry> Hub::list(const std::string& repository, const std::string& commit) {
  std::string url = settings_.endpoint + "/api/models/" + repository + "/tree/" + commit + "?recursive=true";
  const auto hub = parse_url(settings_.endpoint);
  std::vector<Entry> entries;
  for (std::size_t pages = 0; pages < kMostPages; ++pages) {
    const Answer answer = get({url, {}}, {repository, commit, {}}, kLargestAnswer);
    const std::string where = url_for_people(answer.url);
    std::vector<Entry> page = parse_tree_page(answer.body, where);
    entries.insert(entries.end(), std::make_move_iterator(page.begin()), std::make_move_iterator(page.end()));
    const std::string* link = answer.head.find("link");
    const auto next = link == nullptr ? std::nullopt : parse_next_link(*link);
    if (!next) {
      check_listing(entries, where);
      return entries;
    }
    const auto resolved = resolve_url(answer.url, *next);
    // A listing on another host could be anybody's.
    if (!resolved || !hub || resolved->origin != hub->origin) {
      fail(ErrorKind::Network, "{}: the next page is said to be elsewhere: {}", where, url_for_people(*next));
    }
    url = resolved->text;
  }
  fail_data("{}: a listing of more than {} pages", url_for_people(url), kMostPages);
}

std::string Hub::fetch_text(const std::string& repository, const std::string& commit, const Entry& entry,
                            std::uint64_t limit) {
  if (entry.size > limit) {
    fail_data("{}: {} bytes, more than the {} such a file may have", printable(entry.path), entry.size,
              limit);
  }
  if (entry.size == 0) return {};
  const Request request{file_url(settings_, repository, commit, entry.path), ByteRange{0, entry.size - 1}};
  Answer answer = get(request, {repository, commit, entry.path}, entry.size);
  ContentHash hash(entry.id.kind, answer.body.size());
  hash.update({reinterpret_cast<const std::uint8_t*>(answer.body.data()), answer.body.size()});
  if (hash.digest() != entry.id) {
    fail_data("{}: {} is {}, expected {}", printable(entry.path), entry.id.kind_name(), hash.digest().hex,
              entry.id.hex);
  }
  return std::move(answer.body);
}

}  // namespace waste::download
