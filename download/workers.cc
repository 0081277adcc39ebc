#include "download/workers.h"

#include <exception>
#include <utility>

#include "container/core/error.h"

namespace waste::download {

void Mailbox::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_();
}

void Mailbox::run() {
  while (true) {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

Workers::Workers(unsigned lanes, Mailbox& mailbox) : mailbox_(mailbox) {
  for (unsigned i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<Lane>());
  for (const auto& lane : lanes_) lane->thread = std::thread([this, &lane = *lane] { serve(lane); });
}

Workers::~Workers() {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    lane->closing = true;
    lane->changed.notify_one();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

void Workers::post(unsigned lane, std::function<void()> task) {
  Lane& l = *lanes_[lane];
  const std::lock_guard lock(l.mutex);
  l.tasks.push_back(std::move(task));
  l.changed.notify_one();
}

void Workers::serve(Lane& lane) {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(lane.mutex);
      lane.changed.wait(lock, [&] { return lane.closing || !lane.tasks.empty(); });
      if (lane.closing) return;
      task = std::move(lane.tasks.front());
      lane.tasks.pop_front();
    }
    try {
      task();
    } catch (...) {
      mailbox_.post([error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }
}

BufferPool::BufferPool(std::size_t owners, std::size_t spare, std::size_t size)
    : size_(size), spare_(spare), memory_((owners + spare) * size) {
  for (std::size_t i = 0; i < owners + spare; ++i) free_.push_back(memory_.data() + i * size);
}

BufferPool::Buffer BufferPool::pop() {
  if (free_.empty()) fail(ErrorKind::Machine, "more owners of buffers than the pool was made for");
  std::uint8_t* buffer = free_.back();
  free_.pop_back();
  return {buffer, Return{this, false}};
}

BufferPool::Buffer BufferPool::take() {
  const std::lock_guard lock(mutex_);
  return pop();
}

BufferPool::Buffer BufferPool::lend(Buffer& buffer) {
  const std::lock_guard lock(mutex_);
  if (lent_ == spare_) return {nullptr, Return{this, false}};
  ++lent_;
  Buffer lent = std::exchange(buffer, pop());
  lent.get_deleter().lent = true;
  return lent;
}

void BufferPool::give(std::uint8_t* buffer, bool lent) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
  if (lent) --lent_;
}

}  // namespace waste::download
