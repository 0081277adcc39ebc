#include "verify/disk.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "container/core/checked.h"
#include "container/core/perf.h"

namespace waste::verify {

namespace {

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Ring {
 public:
  explicit Ring(unsigned depth) {
    const int result = ::io_uring_queue_init(depth, &ring_, 0);
    if (result < 0) fail_errno(-result, "io_uring");
  }
  ~Ring() { ::io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  struct io_uring* get() {
    return &ring_;
  }

 private:
  struct io_uring ring_ {};
};

bool ring_allowed() {
  try {
    Ring probe(1);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// What one run has in common, whichever engine makes the requests.
struct Run {
  const DiskTarget& target;
  std::function<DiskTarget::Slot()> next;
  std::function<bool()> over;
  std::vector<double> latencies;  // seconds

  void completed(double begin, std::int64_t result, const DiskTarget::Slot& slot) {
    if (result < 0)
      fail_errno(static_cast<int>(-result),
                 fmt::format("{}: reading at offset {}", target.path(slot).string(), slot.offset));
    if (static_cast<std::uint64_t>(result) != target.record_bytes()) {
      fail_data("{}: a read of {} bytes at offset {} gave {}", target.path(slot).string(),
                target.record_bytes(), slot.offset, result);
    }
    latencies.push_back(now_seconds() - begin);
  }
};

struct Flight {
  DiskTarget::Slot slot;
  double begin = 0;
  AlignedBuffer buffer;
};

void run_ring(Run& run, std::vector<Flight>& flights) {
  Ring ring(static_cast<unsigned>(flights.size()));
  std::size_t in_flight = 0;
  const auto submit = [&](Flight& flight) {
    flight.slot = run.next();
    struct io_uring_sqe* sqe = ::io_uring_get_sqe(ring.get());
    ::io_uring_prep_read(sqe, run.target.fd(flight.slot), flight.buffer.data(),
                         static_cast<unsigned>(run.target.record_bytes()), flight.slot.offset);
    ::io_uring_sqe_set_data(sqe, &flight);
    flight.begin = now_seconds();
    const int result = ::io_uring_submit(ring.get());
    if (result < 0) fail_errno(-result, "io_uring: submit");
    ++in_flight;
  };
  for (Flight& flight : flights) submit(flight);
  while (in_flight > 0) {
    struct io_uring_cqe* cqe = nullptr;
    const int result = ::io_uring_wait_cqe(ring.get(), &cqe);
    if (result == -EINTR) continue;
    if (result < 0) fail_errno(-result, "io_uring: wait");
    auto* flight = static_cast<Flight*>(::io_uring_cqe_get_data(cqe));
    const std::int64_t bytes = cqe->res;
    ::io_uring_cqe_seen(ring.get(), cqe);
    --in_flight;
    run.completed(flight->begin, bytes, flight->slot);
    if (!run.over()) submit(*flight);
  }
}

void run_threads(Run& run, std::vector<Flight>& flights) {
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
  for (Flight& flight : flights) {
    threads.emplace_back([&run, &mutex, &failure, &flight] {
      std::unique_lock lock(mutex);
      while (!failure && !run.over()) {
        flight.slot = run.next();
        lock.unlock();
        flight.begin = now_seconds();
        std::int64_t result = ::pread(run.target.fd(flight.slot), flight.buffer.data(),
                                      run.target.record_bytes(), static_cast<off_t>(flight.slot.offset));
        if (result < 0) result = -errno;
        lock.lock();
        try {
          run.completed(flight.begin, result, flight.slot);
        } catch (const Error&) {
          failure = std::current_exception();
        }
      }
    });
  }
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

void fill_with_noise(std::span<std::uint8_t> block, std::mt19937_64& random) {
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8) {
    const std::uint64_t v = random();
    std::copy_n(reinterpret_cast<const std::uint8_t*>(&v), 8, &block[i]);
  }
}

bool mostly_holes(const File& file) {
  return file.allocated() < file.size() / 2;
}

}  // namespace

DiskTarget DiskTarget::of_files(const std::vector<fs::path>& files, std::uint64_t record_bytes) {
  DiskTarget target;
  target.record_bytes_ = round_up(record_bytes, kDirectBlock);
  std::uint64_t holes = 0;
  for (const fs::path& path : files) {
    auto direct = File::open_read_direct(path);
    if (!direct) target.direct_ = false;
    const auto index = static_cast<std::uint32_t>(target.files_.size());
    target.files_.push_back(direct ? std::move(*direct) : File::open_read(path));
    if (mostly_holes(target.files_.back())) ++holes;
    const std::uint64_t size = target.files_.back().size();
    for (std::uint64_t at = 0; size - at >= target.record_bytes_; at += target.record_bytes_) {
      target.slots_.push_back({index, at});
    }
  }
  target.sparse_ = 2 * holes > files.size();
  if (target.slots_.empty())
    fail_data("no file holds a whole record of {} bytes to read", target.record_bytes_);
  return target;
}

DiskTarget DiskTarget::of_container(const fs::path& directory, const Manifest& manifest) {
  std::vector<fs::path> banks;
  for (const auto& [layer, bank] : manifest.banks) banks.push_back(directory / bank.file);
  return of_files(banks, manifest.layout.record_bytes);
}

DiskTarget DiskTarget::scratch(const fs::path& directory, std::uint64_t bytes, std::uint64_t record_bytes) {
  DiskTarget target;
  target.record_bytes_ = round_up(record_bytes, kDirectBlock);
  const std::uint64_t records = std::max<std::uint64_t>(bytes / target.record_bytes_, 1);
  const std::uint64_t size = records * target.record_bytes_;
  const fs::path path = directory / fmt::format("disk-scratch-{}.partial", ::getpid());
  const std::uint64_t free = free_space(directory);
  if (free < size) {
    fail(ErrorKind::Machine, "{}: {} bytes are free, but the scratch file needs {}; see --scratch",
         directory.string(), free, size);
  }
  File writer = File::create(path);
  try {
    auto reader = File::open_read_direct(path);
    target.direct_ = reader.has_value();
    target.files_.push_back(reader ? std::move(*reader) : File::open_read(path));
    fs::remove(path);
  } catch (...) {
    fs::remove(path);
    throw;
  }
  if (target.direct_) ::fcntl(writer.fd(), F_SETFL, ::fcntl(writer.fd(), F_GETFL) | O_DIRECT);
  writer.reserve(size);
  AlignedBuffer block(target.record_bytes_);
  std::mt19937_64 random(1);
  fill_with_noise(block.span(), random);
  for (std::uint64_t at = 0; at < size; at += target.record_bytes_) {
    fill_with_noise(block.span().first(kDirectBlock), random);  // no two records are the same
    writer.write_exact(at, block.span());
    target.slots_.push_back({0, at});
  }
  writer.sync();
  return target;
}

DiskBench::DiskBench(const DiskTarget& target)
    : target_(target), uring_(ring_allowed()), order_(target.slots().size()) {
  std::iota(order_.begin(), order_.end(), 0u);
  std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
}

DiskRow DiskBench::run(bool random, unsigned depth, double seconds, const std::function<bool()>& stop) {
  std::vector<Flight> flights(depth);
  for (Flight& flight : flights) {
    flight.buffer = AlignedBuffer(target_.record_bytes());
    // Touched now, so that no page fault of ours is counted as the disk's time.
    for (std::size_t i = 0; i < flight.buffer.size(); i += kDirectBlock) flight.buffer.data()[i] = 1;
  }
  const double begin = now_seconds();
  Run run{.target = target_,
          .next =
              [&] {
                std::size_t& at = random ? next_random_ : next_sequential_;
                const std::size_t slot = at++ % order_.size();
                return target_.slots()[random ? order_[slot] : slot];
              },
          .over = [&] { return now_seconds() - begin >= seconds || stop(); },
          .latencies = {}};
  const double cpu_begin = cpu_seconds();
  if (uring_) {
    run_ring(run, flights);
  } else {
    run_threads(run, flights);
  }
  const double elapsed = now_seconds() - begin;
  std::vector<double>& latencies = run.latencies;
  DiskRow row{.random = random, .depth = depth, .reads = latencies.size()};
  if (latencies.empty()) return row;
  std::sort(latencies.begin(), latencies.end());
  const auto reads = static_cast<double>(latencies.size());
  row.gb_per_s = reads * static_cast<double>(target_.record_bytes()) / elapsed * 1e-9;
  row.mean_ms = 1e3 * std::accumulate(latencies.begin(), latencies.end(), 0.0) / reads;
  row.p99_ms = 1e3 * latencies[(latencies.size() * 99 - 1) / 100];
  row.cpu = (cpu_seconds() - cpu_begin) / elapsed;
  return row;
}

std::string disk_limit(const std::vector<DiskRow>& rows) {
  const DiskRow* best = nullptr;     // the fastest random row
  const DiskRow* deepest = nullptr;  // the one with most requests in flight
  for (const DiskRow& row : rows) {
    if (!row.random) continue;
    if (best == nullptr || row.gb_per_s > best->gb_per_s) best = &row;
    if (deepest == nullptr || row.depth > deepest->depth) deepest = &row;
  }
  if (best == nullptr) return "nothing was measured at random";
  if (best->cpu >= 0.9) {
    return fmt::format("the CPU: {:.1f} cores are busy at {:.2f} GB/s", best->cpu, best->gb_per_s);
  }
  const DiskRow* enough = best;  // the shallowest that is within 5% of the best
  const DiskRow* half = nullptr;
  for (const DiskRow& row : rows) {
    if (!row.random) continue;
    if (row.gb_per_s >= 0.95 * best->gb_per_s && row.depth < enough->depth) enough = &row;
    if (row.depth == deepest->depth / 2) half = &row;
  }
  if (half != nullptr && deepest->gb_per_s > 1.1 * half->gb_per_s) {
    return fmt::format("the depth: {} requests in flight still give more than {}", deepest->depth,
                       half->depth);
  }
  return fmt::format("the device: {:.2f} GB/s from {} request{} in flight on", best->gb_per_s, enough->depth,
                     enough->depth == 1 ? "" : "s");
}

}  // namespace waste::verify
