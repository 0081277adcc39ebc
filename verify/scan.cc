#include "verify/scan.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace waste::verify {

namespace {

constexpr std::uint64_t kScanMemory = std::uint64_t{128} << 20;
constexpr std::uint64_t kLeastView = std::uint64_t{4} << 20;
// Enough requests of several MB in flight for any single device; more threads only cost memory.
constexpr std::uint64_t kMostReaders = 8;

class Scan {
 public:
  Scan(const std::vector<DirectFile>& files, const std::vector<Piece>& pieces, std::size_t first,
       const ScanCalls& calls)
      : files_(files),
        pieces_(pieces),
        calls_(calls),
        next_(first),
        prefix_(first),
        done_(pieces.size(), false) {}

  void work(AlignedBuffer& buffer) {
    std::unique_lock lock(mutex_);
    while (!failure_ && next_ < pieces_.size() && !calls_.stop()) {
      const std::size_t piece = next_++;
      lock.unlock();
      std::exception_ptr failure;
      try {
        PieceReader reader(files_[pieces_[piece].file], pieces_[piece], buffer);
        calls_.handle(piece, reader);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        if (!failure_) failure_ = failure;
        return;
      }
      done_[piece] = true;
      while (prefix_ < pieces_.size() && done_[prefix_]) ++prefix_;
      try {
        calls_.progress(prefix_);
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
  }

  std::size_t finish() {
    if (failure_) std::rethrow_exception(failure_);
    return prefix_;
  }

 private:
  const std::vector<DirectFile>& files_;
  const std::vector<Piece>& pieces_;
  const ScanCalls& calls_;
  std::mutex mutex_;
  std::size_t next_;
  std::size_t prefix_;
  std::vector<bool> done_;
  std::exception_ptr failure_;
};

}  // namespace

std::span<const std::uint8_t> PieceReader::next(std::uint64_t limit) {
  const std::uint64_t length = std::min({piece_.length, buffer_.size() - 2 * kDirectBlock, limit});
  if (length == 0) return {};
  const auto view = file_.read(piece_.offset, length, buffer_);
  skip(length);
  return view;
}

void PieceReader::skip(std::uint64_t length) {
  piece_.offset += length;
  piece_.length -= length;
}

std::size_t scan(const std::vector<DirectFile>& files, const std::vector<Piece>& pieces, std::size_t first,
                 std::uint64_t whole, const ScanCalls& calls) {
  const std::uint64_t size = DirectFile::room(std::max(whole, kLeastView));
  const std::uint64_t left = pieces.size() - std::min(first, pieces.size());
  const std::uint64_t readers =
      std::min(std::clamp<std::uint64_t>(kScanMemory / size, 2, kMostReaders), left);
  Scan state(files, pieces, first, calls);
  std::vector<AlignedBuffer> buffers;
  for (std::uint64_t i = 0; i < readers; ++i) buffers.emplace_back(size);
  std::vector<std::jthread> threads;
  for (AlignedBuffer& buffer : buffers) threads.emplace_back([&state, &buffer] { state.work(buffer); });
  threads.clear();  // joins
  return state.finish();
}

}  // namespace waste::verify
