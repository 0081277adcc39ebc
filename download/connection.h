// One connection of a file: it holds a run of missing bytes, asks for them, checks that the answer is the
// answer to that question before it takes a byte, and after a failure goes on where it stopped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "download/file_fetch.h"

namespace waste::download {

class FileFetch::Connection : public Receiver {
 public:
  explicit Connection(FileFetch& file) : file_(file) {}
  /// Ends the transfer; what is still in the buffer is lost (a full disk must not make a destructor throw).
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_active() const { return active_; }
  bool has_run() const { return run_.has_value(); }
  double not_before() const { return not_before_; }
  void assign(Run run);
  /// Asks `url` for the rest of its run.
  void start(const std::string& url);
  /// Writes what is still in the buffer.
  void flush();
  /// Ends the transfer and gives the run up; bytes already received are written.
  void cancel();

  void on_redirect(const ResponseHead& head) override;
  bool on_head(const ResponseHead& head, const Url& url) override;
  bool on_body(std::span<const std::uint8_t> data) override;
  void on_done(const Outcome& outcome) override;

 private:
  struct Objection {
    Failure failure = Failure::Misbehaved;
    std::string why;
  };
  std::optional<Objection> accept_part(const ResponseHead& head);
  std::optional<Objection> accept_whole(const ResponseHead& head);
  bool is_satisfied() const;
  Objection explain(const Outcome& outcome) const;
  [[noreturn]] void give_up(const Objection& objection);

  FileFetch& file_;
  std::optional<Run> run_;
  std::uint64_t position_ = 0;  // of the next byte of the body
  std::vector<Attempt> history_;
  double not_before_ = 0;

  // Of the transfer at work:
  bool active_ = false;
  std::string asked_;                 // the URL
  std::uint64_t present_before_ = 0;  // bytes the file had when it began
  std::uint64_t body_end_ = 0;        // where the answer says that it ends
  bool accepted_ = false;
  bool excess_ = false;  // more bytes than the answer announced
  bool from_hub_ = false;
  std::optional<Objection> objection_;
  ResponseHead head_;
  std::string error_body_;

  BufferPool::Buffer buffer_;
  std::uint64_t buffer_offset_ = 0;  // in the file
  std::size_t filled_ = 0;
};

}  // namespace waste::download
