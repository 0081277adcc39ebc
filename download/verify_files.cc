#include "download/verify_files.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "cli/cli.h"
#include "container/core/memory.h"
#include "download/hash_stream.h"

namespace waste::download {

namespace {

FileVerdict verify(const LocalFolder& folder, const Entry& entry,
                   const std::function<bool(std::uint64_t)>& stop) {
  const fs::path path = folder.file(entry.path);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {FileVerdict::State::Missing, {}};
  const File file = File::open_read(path);
  if (const std::uint64_t size = file.size(); size != entry.size) {
    return {FileVerdict::State::Damaged, fmt::format("{} bytes, expected {}", size, entry.size)};
  }
  const ContentId found = hash_file(file, entry.size, entry.id.kind, stop);
  if (found == entry.id) return {FileVerdict::State::Good, {}};
  return {FileVerdict::State::Damaged,
          fmt::format("{} is {}, expected {}", entry.id.kind_name(), found.hex, entry.id.hex)};
}

}  // namespace

std::vector<FileVerdict> verify_files(const LocalFolder& folder, const std::vector<Entry>& entries,
                                      Report& report) {
  std::uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.size;
  report.begin("verifying", 0, total);

  std::vector<FileVerdict> verdicts(entries.size());
  std::vector<std::atomic<std::uint64_t>> hashed(entries.size());
  std::atomic<std::size_t> next{0};
  std::atomic<unsigned> working{static_cast<unsigned>(std::min<std::size_t>(usable_cpus(), entries.size()))};
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (unsigned i = 0, n = working; i < n; ++i) {
    threads.emplace_back([&] {
      try {
        for (std::size_t k = next++; k < entries.size(); k = next++) {
          verdicts[k] = verify(folder, entries[k], [&, k](std::uint64_t done) {
            hashed[k].store(done, std::memory_order_relaxed);
            return cli::interrupted();
          });
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        next = entries.size();
      }
      --working;
    });
  }
  while (working != 0) {
    std::uint64_t done = 0;
    std::vector<FileProgress> files;
    for (std::size_t k = 0; k < entries.size(); ++k) {
      const std::uint64_t bytes = hashed[k].load(std::memory_order_relaxed);
      done += bytes;
      if (bytes != 0 && bytes < entries[k].size) files.push_back({entries[k].path, bytes, entries[k].size});
    }
    report.progress(done, files);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return verdicts;
}

}  // namespace waste::download
