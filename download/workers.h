// Threads for what must not hold up the event loop: hashing, syncing, publishing. Work of one lane runs in
// order, on one thread; lanes run beside each other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "container/core/memory.h"

namespace waste::download {

/// Things to do on the event loop's thread, left there by others. Thread-safe.
class Mailbox {
 public:
  /// `wake` is called after each post, from the posting thread.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  void post(std::function<void()> task);
  /// Runs what has been posted, in order. What it throws leaves the rest for the next call.
  void run();

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
};

class Workers {
 public:
  /// An exception that a task throws is thrown again by the mailbox's run().
  Workers(unsigned lanes, Mailbox& mailbox);
  /// Waits for the tasks that run, drops those that do not yet.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned lanes() const { return static_cast<unsigned>(lanes_.size()); }
  void post(unsigned lane, std::function<void()> task);

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool closing = false;
    std::thread thread;
  };
  void serve(Lane& lane);

  Mailbox& mailbox_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

/// A fixed number of equal buffers in one allocation, so that memory stays bounded whatever the network does:
/// one for each of `owners`, and `spare` that may be lent to others meanwhile. Thread-safe; the pool must
/// outlive its buffers.
class BufferPool {
 public:
  struct Return {
    BufferPool* pool = nullptr;
    bool lent = false;
    void operator()(std::uint8_t* buffer) const { pool->give(buffer, lent); }
  };
  using Buffer = std::unique_ptr<std::uint8_t[], Return>;

  BufferPool(std::size_t owners, std::size_t spare, std::size_t size);
  std::size_t buffer_size() const { return size_; }
  /// A buffer for one of the owners.
  Buffer take();
  /// Lends an owner's buffer, which gets another in its place; an empty pointer, and no exchange, when all
  /// spare ones are lent.
  Buffer lend(Buffer& buffer);

 private:
  void give(std::uint8_t* buffer, bool lent);
  Buffer pop();

  std::size_t size_;
  std::size_t spare_;
  std::size_t lent_ = 0;
  AlignedBuffer memory_;
  std::mutex mutex_;
  std::vector<std::uint8_t*> free_;
};

}  // namespace waste::download
