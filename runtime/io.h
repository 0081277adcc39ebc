// Reads of expert records, many in flight: io_uring, or a pool of threads with pread where the kernel refuses
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/engine.h"

namespace waste::runtime {

struct ReadRequest {
  int fd = -1;
  std::uint64_t offset = 0;
  std::uint8_t* buffer = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t tag = 0;  // the caller's
};

struct ReadResult {
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;  // fewer than asked only at the end of a file
  int error = 0;            // errno, or 0
};

/// One caller at a time. Buffers must live until their result has come back.
class RecordIo {
 public:
  virtual ~RecordIo() = default;
  /// At most `depth` requests may be in flight.
  virtual void submit(const ReadRequest& request) = 0;
  /// Lets everything submitted since the last call begin.
  virtual void flush() = 0;
  /// The next finished read. With `wait` false: false when none has finished yet. Something must be in
  /// flight.
  virtual bool next(ReadResult& result, bool wait) = 0;
  virtual std::string name() const = 0;
};

/// Error(Machine) when IoMode::Uring is asked for and the kernel refuses.
std::unique_ptr<RecordIo> open_record_io(IoMode mode, std::uint32_t depth);

}  // namespace waste::runtime
