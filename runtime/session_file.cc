#include "runtime/session_file.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "container/core/bytes.h"
#include "container/core/checksum.h"
#include "container/core/error.h"

namespace waste::runtime {

namespace {

constexpr std::uint32_t kMagic = 0x53455357;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 104;
constexpr std::size_t kFingerprintBytes = 32;
constexpr int kLevel = 1;  // states are nearly random floats: higher levels cost time and gain nothing

struct FreeCompressor {
  void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
};
struct FreeDecompressor {
  void operator()(ZSTD_DCtx* d) const { ZSTD_freeDCtx(d); }
};

/// Expands a zstd frame of `bytes` bytes at `offset` of a file and hands the content to `sink` piece by
/// piece; `raw` sees the compressed bytes.
template <typename Raw, typename Sink>
void expand(const File& file, const std::string& where, std::uint64_t offset, std::uint64_t bytes,
            const Raw& raw, const Sink& sink) {
  const std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context(ZSTD_createDCtx());
  if (!context) fail(ErrorKind::Machine, "{}: no memory for zstd", where);
  std::vector<std::uint8_t> in(ZSTD_DStreamInSize());
  std::vector<std::uint8_t> out(ZSTD_DStreamOutSize());
  std::size_t more = 1;
  for (std::uint64_t at = 0; at < bytes;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(in.size(), bytes - at));
    file.read_exact(offset + at, {in.data(), n});
    raw(std::span<const std::uint8_t>(in.data(), n));
    at += n;
    ZSTD_inBuffer source{in.data(), n, 0};
    while (source.pos < source.size) {
      if (more == 0) fail_data("{}: bytes after the end of the payload", where);
      ZSTD_outBuffer target{out.data(), out.size(), 0};
      more = ZSTD_decompressStream(context.get(), &target, &source);
      if (ZSTD_isError(more)) fail_data("{}: payload: {}", where, ZSTD_getErrorName(more));
      sink(std::span<const std::uint8_t>(out.data(), target.pos));
      while (more != 0 && target.pos == target.size) {  // the window may hold more than one buffer
        target.pos = 0;
        more = ZSTD_decompressStream(context.get(), &target, &source);
        if (ZSTD_isError(more)) fail_data("{}: payload: {}", where, ZSTD_getErrorName(more));
        sink(std::span<const std::uint8_t>(out.data(), target.pos));
      }
    }
  }
  if (more != 0) fail_data("{}: the payload is cut short", where);
}

}  // namespace

void write_session(const fs::path& path, SessionHeader header,
                   std::span<const std::span<const std::uint8_t>> pieces) {
  const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  if (!context) fail(ErrorKind::Machine, "{}: no memory for zstd", path.string());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  const fs::path partial = partial_path(path);
  try {
    const File file = File::create(partial);
    std::vector<std::uint8_t> out(ZSTD_CStreamOutSize());
    Xxh3Stream digest;
    header.payload_bytes = 0;
    header.compressed_bytes = 0;
    for (std::size_t i = 0; i <= pieces.size(); ++i) {
      const bool last = i == pieces.size();
      ZSTD_inBuffer source{nullptr, 0, 0};
      if (!last) source = {pieces[i].data(), pieces[i].size(), 0};
      header.payload_bytes += source.size;
      std::size_t left = 1;
      while (last ? left != 0 : source.pos < source.size) {
        ZSTD_outBuffer target{out.data(), out.size(), 0};
        left = ZSTD_compressStream2(context.get(), &target, &source, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
          fail(ErrorKind::Machine, "{}: zstd: {}", path.string(), ZSTD_getErrorName(left));
        const std::span<const std::uint8_t> produced(out.data(), target.pos);
        file.write_exact(kHeaderBytes + header.compressed_bytes, produced);
        digest.update(produced);
        header.compressed_bytes += produced.size();
      }
    }
    std::uint8_t h[kHeaderBytes] = {};
    store_u32(h, kMagic);
    store_u32(h + 4, kVersion);
    store_u32(h + 8, header.position);
    store_u32(h + 12, header.latent_bytes);
    store_u64(h + 16, header.note_bytes);
    store_u64(h + 24, header.payload_bytes);
    store_u64(h + 32, header.compressed_bytes);
    std::memcpy(h + 40, header.fingerprint.data(), std::min(header.fingerprint.size(), kFingerprintBytes));
    std::memcpy(h + 72, digest.digest().bytes.data(), 16);
    std::memcpy(h + 88, xxh3_128({h, 88}).bytes.data(), 16);
    file.write_exact(0, h);
    file.sync();
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw;
  }
  publish(path);
}

SessionFile::SessionFile(const fs::path& path) : where_(path.string()), file_(File::open_read(path)) {
  std::uint8_t h[kHeaderBytes];
  if (file_.size() < kHeaderBytes) fail_data("{}: {} bytes: too short for a session", where_, file_.size());
  file_.read_exact(0, h);
  if (load_u32(h) != kMagic) fail_data("{}: not a session file", where_);
  if (load_u32(h + 4) != kVersion)
    fail_data("{}: version {}: this program reads version {}", where_, load_u32(h + 4), kVersion);
  if (std::memcmp(h + 88, xxh3_128({h, 88}).bytes.data(), 16) != 0)
    fail_data("{}: damaged: the header's digest does not match", where_);
  header_.position = load_u32(h + 8);
  header_.latent_bytes = load_u32(h + 12);
  header_.note_bytes = load_u64(h + 16);
  header_.payload_bytes = load_u64(h + 24);
  header_.compressed_bytes = load_u64(h + 32);
  header_.fingerprint.assign(reinterpret_cast<const char*>(h + 40), kFingerprintBytes);
  digest_.assign(h + 72, h + 88);
  if (file_.size() - kHeaderBytes != header_.compressed_bytes) {
    fail_data("{}: expected {} bytes, found {}", where_, kHeaderBytes + header_.compressed_bytes,
              file_.size());
  }
  if (header_.note_bytes > header_.payload_bytes)
    fail_data("{}: the note is longer than the payload", where_);
}

void SessionFile::verify() const {
  Xxh3Stream digest;
  std::uint64_t expanded = 0;
  expand(
      file_, where_, kHeaderBytes, header_.compressed_bytes, [&](auto bytes) { digest.update(bytes); },
      [&](auto bytes) {
        expanded += bytes.size();
        if (expanded > header_.payload_bytes)
          fail_data("{}: the payload is longer than the header says", where_);
      });
  const Digest128 found = digest.digest();
  if (!std::equal(digest_.begin(), digest_.end(), found.bytes.begin()))
    fail_data("{}: damaged: the payload's digest does not match", where_);
  if (expanded != header_.payload_bytes)
    fail_data("{}: expected a payload of {} bytes, found {}", where_, header_.payload_bytes, expanded);
}

void SessionFile::read(std::span<const std::span<std::uint8_t>> pieces) const {
  std::size_t piece = 0;
  std::size_t at = 0;
  expand(
      file_, where_, kHeaderBytes, header_.compressed_bytes, [](auto) {},
      [&](std::span<const std::uint8_t> bytes) {
        while (!bytes.empty()) {
          while (piece < pieces.size() && at == pieces[piece].size()) ++piece, at = 0;
          if (piece == pieces.size()) fail_data("{}: the payload is longer than the state", where_);
          const std::size_t n = std::min(bytes.size(), pieces[piece].size() - at);
          std::memcpy(pieces[piece].data() + at, bytes.data(), n);
          at += n;
          bytes = bytes.subspan(n);
        }
      });
}

}  // namespace waste::runtime
