#include "download/connection.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "container/core/perf.h"

namespace waste::download {

namespace {

constexpr std::size_t kMostErrorBody = 16 << 10;

}  // namespace

FileFetch::Connection::~Connection() {
  if (active_) file_.context_.http.cancel(*this);
}

void FileFetch::Connection::assign(Run run) {
  run_ = run;
  position_ = run.begin;
  history_.clear();
  not_before_ = 0;
}

void FileFetch::Connection::start(const std::string& url) {
  // A sequential reader begins where bytes are missing; a server that ignores ranges begins at 0 anyway.
  if (file_.sequential_) position_ = file_.partial_.first_missing_byte();
  asked_ = url;
  active_ = true;
  accepted_ = excess_ = from_hub_ = false;
  objection_.reset();
  head_ = {};
  error_body_.clear();
  present_before_ = file_.partial_.present();
  body_end_ = run_->end;
  file_.context_.http.start({url, ByteRange{position_, run_->end - 1}}, *this);
}

void FileFetch::Connection::cancel() {
  if (active_) file_.context_.http.cancel(*this);
  active_ = false;
  flush();
  run_.reset();
}

void FileFetch::Connection::on_redirect(const ResponseHead& head) {
  if (asked_ == head.url) check_linked_headers(head, file_.entry_, file_.context_.commit);
}

bool FileFetch::Connection::on_head(const ResponseHead& head, const Url& url) {
  from_hub_ = file_.context_.http.is_hub(url);
  head_ = head;
  if (head.status != 200 && head.status != 206) return true;
  if (from_hub_) check_linked_headers(head, file_.entry_, file_.context_.commit);
  objection_ = head.status == 206 ? accept_part(head) : accept_whole(head);
  if (objection_) return false;
  accepted_ = true;
  file_.learned_url(*this, url.text);
  return true;
}

std::optional<FileFetch::Connection::Objection> FileFetch::Connection::accept_part(const ResponseHead& head) {
  const auto wrong = [](std::string why) { return Objection{Failure::Misbehaved, std::move(why)}; };
  if (!head.is_identity()) return wrong("a compressed answer");
  const std::string* field = head.find("content-range");
  if (field == nullptr) return wrong("a partial answer that does not say which part it is");
  const auto range = parse_content_range(*field);
  const std::uint64_t size = file_.entry_.size;
  if (!range || range->first != position_ || range->last >= run_->end ||
      (range->total && *range->total != size)) {
    return wrong(fmt::format("bytes {}-{}/{} were asked for, \"{}\" came", position_, run_->end - 1, size,
                             printable(*field)));
  }
  const std::uint64_t length = range->last - range->first + 1;
  if (head.content_length().value_or(length) != length) {
    return wrong(fmt::format("a part of {} bytes in a body of {}", length, *head.content_length()));
  }
  body_end_ = range->last + 1;
  return std::nullopt;
}

std::optional<FileFetch::Connection::Objection> FileFetch::Connection::accept_whole(
    const ResponseHead& head) {
  const std::uint64_t size = file_.entry_.size;
  const auto length = head.content_length();
  if (!head.is_identity()) return Objection{Failure::Misbehaved, "a compressed answer"};
  if (length.value_or(size) != size) {
    return Objection{Failure::Misbehaved,
                     head.is_html() ? std::string(kHtmlPage)
                                    : fmt::format("a whole file of {} bytes instead of {}", *length, size)};
  }
  const bool whole_asked = position_ == 0 && run_->end == size;
  if (!whole_asked && !file_.sequential_) {
    return Objection{Failure::RangeIgnored, "the whole file where a part of it was asked for"};
  }
  position_ = 0;
  body_end_ = size;
  return std::nullopt;
}

bool FileFetch::Connection::on_body(std::span<const std::uint8_t> data) {
  if (!accepted_) {
    const std::size_t take = std::min(data.size(), kMostErrorBody - error_body_.size());
    error_body_.append(reinterpret_cast<const char*>(data.data()), take);
    return take == data.size();
  }
  BufferPool& pool = file_.context_.pool;
  excess_ = data.size() > body_end_ - position_;
  if (excess_) data = data.first(static_cast<std::size_t>(body_end_ - position_));
  while (!data.empty()) {
    if (buffer_ == nullptr) buffer_ = pool.take();
    if (filled_ == 0) buffer_offset_ = position_;
    // Buffers end where their size divides the offset, and so never straddle two blocks.
    const std::size_t room = pool.buffer_size() - position_ % pool.buffer_size();
    const std::size_t take = std::min(room, data.size());
    std::memcpy(buffer_.get() + filled_, data.data(), take);
    filled_ += take;
    position_ += take;
    data = data.subspan(take);
    if (take == room || position_ == file_.entry_.size) flush();
  }
  return !excess_;
}

void FileFetch::Connection::flush() {
  if (filled_ == 0) return;
  const std::size_t length = std::exchange(filled_, 0);
  file_.partial_.write(buffer_offset_, {buffer_.get(), length});
  // A sequential reader passes bytes that were there already: those on the disk count, not those that came
  // again.
  if (!file_.sequential_) file_.hash_.wrote(buffer_offset_, length, buffer_, file_.context_.pool);
  file_.hash_.advance();
}

bool FileFetch::Connection::is_satisfied() const {
  return file_.sequential_ ? file_.partial_.is_complete() : position_ >= run_->end;
}

FileFetch::Connection::Objection FileFetch::Connection::explain(const Outcome& outcome) const {
  if (objection_) return *objection_;
  if (outcome.kind == Outcome::Kind::Failed) return {outcome.failure, outcome.message};
  if (accepted_) {
    return {excess_ ? Failure::Misbehaved : Failure::Dropped,
            fmt::format("the body {} at byte {}", excess_ ? "goes on past its announced end" : "ended early",
                        position_)};
  }
  return {failure_of_status(head_.status, from_hub_), fmt::format("the server answers {}", head_.status)};
}

void FileFetch::Connection::on_done(const Outcome& outcome) {
  active_ = false;
  flush();
  if (is_satisfied()) {
    run_.reset();
    history_.clear();
    return;
  }
  const bool progressed = file_.partial_.present() > present_before_ && accepted_;
  // A server may answer with less than was asked for, if it says so.
  if (accepted_ && outcome.kind == Outcome::Kind::Complete && position_ == body_end_ && progressed) return;

  const Objection objection = explain(outcome);
  Attempt attempt{objection.failure, progressed, {}};
  if (const std::string* after = head_.find("retry-after"); after != nullptr && !accepted_) {
    attempt.retry_after = parse_retry_after(*after, std::time(nullptr));
  }
  history_.push_back(attempt);
  const bool again = history_.size() >= 2 && history_[history_.size() - 2].failure == Failure::RangeIgnored;
  if (objection.failure == Failure::RangeIgnored && again) return file_.read_sequentially(*this);

  const Verdict verdict = decide(history_, file_.context_.limits, random_jitter());
  if (verdict.action == Verdict::Action::GiveUp) give_up(objection);
  if (verdict.action == Verdict::Action::ResolveAgain) file_.forget_url(asked_);
  not_before_ = now_seconds() + verdict.delay;
  file_.context_.report.retry(file_.entry_.path, objection.why, verdict.delay);
}

void FileFetch::Connection::give_up(const Objection& objection) {
  const FetchContext& context = file_.context_;
  const std::string path = printable(file_.entry_.path);
  if (objection.failure == Failure::Refused && from_hub_ && head_.status >= 400) {
    throw refusal(head_, error_body_, {context.repository, context.commit, file_.entry_.path},
                  context.settings);
  }
  const std::string said = server_text(head_, error_body_, context.settings.token);
  const std::string server = said.empty() ? "" : " (the server says: " + said + ")";
  if (objection.failure == Failure::Expired) {
    fail(ErrorKind::Network,
         "{}: the storage server refuses a URL that the Hub has just signed ({}){}; check the "
         "clock of this machine and any proxy, then run again",
         path, objection.why, server);
  }
  const std::size_t n = history_.size();
  fail(ErrorKind::Network,
       "{}: gave up after {} {} in a row: {}{}; what has arrived is kept, run again to continue", path, n,
       n == 1 ? "failure" : "failures", objection.why, server);
}

}  // namespace waste::download
