// The one engine that reads containers from end to end: a few threads, each with one large aligned buffer
// that lives as long as the scan, each reading its next piece past the page cache and handing it over while
// the others wait for theirs. check, seal, copy, repair and diff are what they do with the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "verify/direct_file.h"

namespace waste::verify {

/// A run of bytes of one file.
struct Piece {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// The bytes of one piece, in views of at most the scan's buffer.
class PieceReader {
 public:
  PieceReader(const DirectFile& file, const Piece& piece, AlignedBuffer& buffer)
      : file_(file), piece_(piece), buffer_(buffer) {}

  /// The next bytes, at most `limit`; empty after the last. The view lives until the next call. A file that
  /// ends too soon is Error(Data), a medium error Error(Machine).
  std::span<const std::uint8_t> next(std::uint64_t limit = UINT64_MAX);
  /// Leaves the next `length` bytes out.
  void skip(std::uint64_t length);

  const DirectFile& file() const { return file_; }

 private:
  const DirectFile& file_;
  Piece piece_;  // what is still to come
  AlignedBuffer& buffer_;
};

struct ScanCalls {
  /// Called once a piece, from several threads at once. An exception ends the scan and comes out of it.
  std::function<void(std::size_t piece, PieceReader& bytes)> handle;
  /// After each piece, from one thread at a time: all pieces before `prefix` have been handled.
  std::function<void(std::size_t prefix)> progress = [](std::size_t) {};
  /// Asked before each piece; true ends the scan early.
  std::function<bool()> stop = [] { return false; };
};

/// Handles pieces [first, pieces.size()) in about their order; returns how many leading pieces have been
/// handled. Pieces of up to `whole` bytes come in one view. Buffers take 128 MiB, or two of them if that is
/// more.
std::size_t scan(const std::vector<DirectFile>& files, const std::vector<Piece>& pieces, std::size_t first,
                 std::uint64_t whole, const ScanCalls& calls);

}  // namespace waste::verify
