#include "runtime/io.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "container/core/error.h"

namespace waste::runtime {

namespace {

class UringIo final : public RecordIo {
 public:
  /// nullptr when the kernel refuses, with the reason in errno_value.
  static std::unique_ptr<UringIo> open(std::uint32_t depth, int& errno_value) {
    std::unique_ptr<UringIo> io(new UringIo(depth));
    errno_value = -io_uring_queue_init(std::max(depth, 2u), &io->ring_, 0);
    io->ready_ = errno_value == 0;
    return io->ready_ ? std::move(io) : nullptr;
  }

  ~UringIo() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }

  void submit(const ReadRequest& request) override {
    std::uint32_t slot = 0;
    while (slots_[slot].request.buffer != nullptr) ++slot;
    slots_[slot] = {request, 0};
    prepare(slot);
  }

  void flush() override {
    int submitted = 0;
    do submitted = io_uring_submit(&ring_);
    while (submitted == -EINTR || submitted == -EAGAIN);
    if (submitted < 0) fail_errno(-submitted, "io_uring_submit");
  }

  bool next(ReadResult& result, bool wait) override {
    for (;;) {
      io_uring_cqe* cqe = nullptr;
      const int status = wait ? io_uring_wait_cqe(&ring_, &cqe) : io_uring_peek_cqe(&ring_, &cqe);
      if (status == -EINTR) continue;
      if (status == -EAGAIN) return false;
      if (status < 0) fail_errno(-status, "io_uring_wait_cqe");
      const auto slot = static_cast<std::uint32_t>(io_uring_cqe_get_data64(cqe));
      const int got = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      Slot& s = slots_[slot];
      if (got > 0) s.done += static_cast<std::uint32_t>(got);
      const bool again = got == -EINTR || got == -EAGAIN || (got > 0 && s.done < s.request.bytes);
      if (again) {  // a short read goes on where it stopped
        prepare(slot);
        flush();
        continue;
      }
      result = {s.request.tag, s.done, got < 0 ? -got : 0};
      s = {};
      return true;
    }
  }

  std::string name() const override { return "io_uring"; }

 private:
  struct Slot {
    ReadRequest request;
    std::uint32_t done = 0;
  };

  explicit UringIo(std::uint32_t depth) : slots_(depth) {}

  void prepare(std::uint32_t slot) {
    const Slot& s = slots_[slot];
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      flush();
      sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) fail(ErrorKind::Machine, "io_uring: the submission queue stays full");
    }
    io_uring_prep_read(sqe, s.request.fd, s.request.buffer + s.done, s.request.bytes - s.done,
                       s.request.offset + s.done);
    // In the kernel's own threads: pinning a record's pages, and touching them for the first time, takes
    // longer here than computing an expert, and would otherwise happen in the thread that submits.
    io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data64(sqe, slot);
  }

  io_uring ring_{};
  bool ready_ = false;
  std::vector<Slot> slots_;
};

class PreadIo final : public RecordIo {
 public:
  explicit PreadIo(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~PreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    asked_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void submit(const ReadRequest& request) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }

  void flush() override { asked_.notify_all(); }

  bool next(ReadResult& result, bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait) finished_.wait(lock, [this] { return !results_.empty(); });
    if (results_.empty()) return false;
    result = results_.front();
    results_.pop_front();
    return true;
  }

  std::string name() const override { return fmt::format("pread x {}", threads_.size()); }

 private:
  static ReadResult read(const ReadRequest& r) {
    ReadResult result{r.tag, 0, 0};
    while (result.bytes < r.bytes) {
      const ssize_t got = ::pread(r.fd, r.buffer + result.bytes, r.bytes - result.bytes,
                                  static_cast<off_t>(r.offset + result.bytes));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) result.error = errno;
      if (got <= 0) break;
      result.bytes += static_cast<std::uint32_t>(got);
    }
    return result;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [this] { return stop_ || !requests_.empty(); });
      if (stop_) return;
      const ReadRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const ReadResult result = read(request);
      lock.lock();
      results_.push_back(result);
      finished_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable finished_;
  std::deque<ReadRequest> requests_;
  std::deque<ReadResult> results_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// More than a disk's queue needs to be kept full with records of a megabyte and up.
constexpr unsigned kPreadThreads = 8;

}  // namespace

std::unique_ptr<RecordIo> open_record_io(IoMode mode, std::uint32_t depth) {
  if (mode != IoMode::Pread) {
    int errno_value = 0;
    if (auto io = UringIo::open(depth, errno_value)) return io;
    if (mode == IoMode::Uring) fail_errno(errno_value, "io_uring is refused");
  }
  return std::make_unique<PreadIo>(std::min(kPreadThreads, std::max(depth, 1u)));
}

}  // namespace waste::runtime
