#include "runtime/thread_pool.h"

#include <chrono>

namespace waste::runtime {

namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr auto kSpin = std::chrono::microseconds(100);

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::take_tasks(unsigned thread) {
  for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
    call_(context_, i, thread);
}

void ThreadPool::start(Call call, const void* context, std::size_t count) {
  call_ = call;
  context_ = context;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_tasks(0);
  // A worker that has lost its CPU to another process would keep us spinning for a scheduler's slice.
  for (unsigned spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins)
    spins < 4096 ? pause_briefly() : std::this_thread::yield();
}

void ThreadPool::work(unsigned thread) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    while (generation_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < 64 && generation_.load(std::memory_order_relaxed) == seen; ++i) pause_briefly();
      if (std::chrono::steady_clock::now() - begin > kSpin) generation_.wait(seen, std::memory_order_acquire);
    }
    ++seen;  // regions do not overlap: the next one is exactly the one started
    if (stop_.load()) return;
    take_tasks(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace waste::runtime
