// A session on disk:
//
//   offset  type
//   0       u32   magic 0x53455357 ("WSES")
//   4       u32   version, 1
//   8       u32   position: tokens taken
//   12      u32   bytes of a latent value, 2 or 4
//   16      u64   bytes of the client's note
//   24      u64   bytes of the payload: note, logits of the last position, state
//   32      u64   bytes of the payload as compressed
//   40      char  [32] fingerprint of the model and its weights, hex
//   72      u8    [16] XXH3-128 of the compressed payload
//   88      u8    [16] XXH3-128 of bytes [0, 88)
//   104           the payload, one zstd frame
//
// The header is written last and the file published by rename, so that a failed save leaves an older one
// untouched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "container/core/file.h"

namespace waste::runtime {

struct SessionHeader {
  std::uint32_t position = 0;
  std::uint32_t latent_bytes = 0;
  std::uint64_t note_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t compressed_bytes = 0;
  std::string fingerprint;
};

/// Writes header and pieces. payload_bytes and compressed_bytes are filled in here.
void write_session(const fs::path& path, SessionHeader header,
                   std::span<const std::span<const std::uint8_t>> pieces);

/// A session file opened for reading. Every error is Error(Data) naming the file, or Error(Machine).
class SessionFile {
 public:
  /// Checks the header: magic, version, its digest, the file's size.
  explicit SessionFile(const fs::path& path);
  const SessionHeader& header() const { return header_; }
  /// Reads the whole payload once without keeping it: its digest, and that it expands to payload_bytes.
  void verify() const;
  /// Expands the payload into `pieces`, whose sizes add up to payload_bytes.
  void read(std::span<const std::span<std::uint8_t>> pieces) const;

 private:
  std::string where_;
  File file_;
  SessionHeader header_;
  std::vector<std::uint8_t> digest_;
};

}  // namespace waste::runtime
