#include "runtime/thread_pool.h"

#include <chrono>

namespace waste::runtime {

namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // As long as a pause; the instruction called yield does nothing on most CPUs.
  __asm__ volatile("isb");
#else
  std::this_thread::yield();
#endif
}

constexpr auto kSpin = std::chrono::microseconds(100);
constexpr unsigned kSpinsBeforeYield = 4096;
constexpr std::uint32_t kClosed = 0;

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
  std::uint32_t region = generation_.load(std::memory_order_relaxed) + 1;
  if (region == kClosed) ++region;  // after 2^32 regions
  open_.store(region);
  generation_.store(region, std::memory_order_release);
  generation_.notify_all();
  take_tasks(0);
  // All tasks are taken: a worker that comes now finds the region closed, and only those inside are waited
  // for. One that is asleep, or has lost its CPU to another process, costs nothing.
  open_.store(kClosed);
  for (unsigned spins = 0; inside_.load() != 0; ++spins)
    spins < kSpinsBeforeYield ? pause_briefly() : std::this_thread::yield();
}

void ThreadPool::work(unsigned thread) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    while (generation_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < 64 && generation_.load(std::memory_order_relaxed) == seen; ++i) pause_briefly();
      if (std::chrono::steady_clock::now() - begin > kSpin) generation_.wait(seen, std::memory_order_acquire);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    // Enter first, then look: either the caller sees us inside, or we see the region closed.
    inside_.fetch_add(1);
    if (open_.load() == seen) take_tasks(thread);
    inside_.fetch_sub(1);
  }
}

}  // namespace waste::runtime
