// Threads for a few coarse parallel regions a layer, hundreds of times a token: workers spin for a moment
// after each region, because waking a sleeper costs more than most regions, and then sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace waste::runtime {

/// One caller at a time. Which thread runs what is left to chance: results must not depend on it.
class ThreadPool {
 public:
  /// The caller counts as one of `threads`.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned size() const { return static_cast<unsigned>(workers_.size()) + 1; }

  /// Calls task(i, thread) once for each i in [0, count), thread in [0, size()); returns when all are done.
  /// Tasks must not throw.
  template <typename Task>
  void run(std::size_t count, const Task& task) {
    const auto call = [](const void* context, std::size_t i, unsigned thread) {
      (*static_cast<const Task*>(context))(i, thread);
    };
    if (count <= 1 || workers_.empty()) {
      for (std::size_t i = 0; i < count; ++i) task(i, 0u);
    } else {
      start(call, &task, count);
    }
  }

 private:
  using Call = void (*)(const void*, std::size_t, unsigned);
  void start(Call call, const void* context, std::size_t count);
  void work(unsigned thread);
  void take_tasks(unsigned thread);

  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::size_t count_ = 0;
  alignas(64) std::atomic<std::size_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // of regions; bumped to start one, or to stop
  std::atomic<std::uint32_t> open_{0};                    // the region that may be entered, or 0
  alignas(64) std::atomic<std::uint32_t> inside_{0};      // workers that have entered
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace waste::runtime
