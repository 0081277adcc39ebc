#include "download/hash_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "container/core/checksum.h"

namespace waste::download {

namespace {

constexpr std::size_t kReadSize = 256 << 10;

// One buffer a thread: lanes read block after block for days.
std::span<std::uint8_t> scratch() {
  thread_local std::vector<std::uint8_t> buffer(kReadSize);
  return buffer;
}

}  // namespace

struct HashStream::State {
  explicit State(ContentHash h) : hash(std::move(h)) {}
  ContentHash hash;                            // used by the lane's thread only
  std::uint64_t dead_generation = UINT64_MAX;  // likewise: met a bad block, its later tasks are void
};

HashStream::HashStream(const PartialFile& file, ContentId::Kind kind, Workers& workers, unsigned lane,
                       Mailbox& mailbox, Events events)
    : file_(file),
      kind_(kind),
      workers_(workers),
      lane_(lane),
      mailbox_(mailbox),
      events_(std::move(events)) {
  restart();
}

HashStream::~HashStream() {
  *alive_ = false;
}

void HashStream::restart() {
  state_ = std::make_shared<State>(ContentHash(kind_, file_.size()));
  next_ = 0;
  ++generation_;
  digest_queued_ = false;
}

void HashStream::go_on_from(std::uint32_t index) {
  next_ = std::uint64_t{index} * file_.block_size();
  ++generation_;
  digest_queued_ = false;
}

void HashStream::wrote(std::uint64_t offset, std::size_t length, BufferPool::Buffer& buffer,
                       BufferPool& pool) {
  if (offset != next_ || length == 0) return;
  BufferPool::Buffer lent = pool.lend(buffer);
  if (lent == nullptr) {
    queue_read(offset, length, 0, false);
  } else {
    // std::function must be copyable; the buffer goes back to its pool with the last copy.
    workers_.post(lane_, [state = state_, generation = generation_, length,
                          data = std::shared_ptr<std::uint8_t[]>(std::move(lent))] {
      if (state->dead_generation != generation) state->hash.update({data.get(), length});
    });
  }
  next_ += length;
}

void HashStream::advance() {
  while (next_ < file_.size() && next_ % file_.block_size() == 0) {
    const auto index = static_cast<std::uint32_t>(next_ / file_.block_size());
    if (!file_.is_complete(index)) break;
    queue_read(next_, file_.block_length(index), index, true);
    next_ += file_.block_length(index);
  }
  if (next_ != file_.size() || digest_queued_) return;
  digest_queued_ = true;
  workers_.post(lane_, [this, state = state_, generation = generation_, alive = alive_, &mailbox = mailbox_] {
    if (state->dead_generation == generation) return;
    mailbox.post([this, alive, generation, digest = state->hash.digest()] {
      if (*alive && generation == generation_) events_.digest(digest);
    });
  });
}

void HashStream::queue_read(std::uint64_t offset, std::uint64_t length, std::uint32_t block,
                            bool whole_block) {
  const std::uint32_t crc = whole_block ? file_.block(block).crc : 0;
  workers_.post(lane_, [this, state = state_, generation = generation_, offset, length, block, whole_block,
                        crc, alive = alive_, &file = file_.file(), &mailbox = mailbox_] {
    if (state->dead_generation == generation) return;
    ContentHash hash = state->hash;
    std::uint32_t found = 0;
    for (std::uint64_t at = 0; at < length;) {
      const auto piece =
          scratch().first(static_cast<std::size_t>(std::min<std::uint64_t>(kReadSize, length - at)));
      file.read_exact(offset + at, piece);
      if (whole_block) found = crc32(piece, found);
      hash.update(piece);
      at += piece.size();
    }
    if (!whole_block || found == crc) {
      state->hash = std::move(hash);
      return;
    }
    state->dead_generation = generation;
    mailbox.post([this, alive, generation, block] {
      if (*alive && generation == generation_) events_.bad_block(block);
    });
  });
}

ContentId hash_file(const File& file, std::uint64_t size, ContentId::Kind kind,
                    const std::function<bool(std::uint64_t)>& stop) {
  constexpr std::size_t kChunk = 1 << 20;
  std::vector<std::uint8_t> buffer(kChunk);
  ContentHash hash(kind, size);
  for (std::uint64_t at = 0; at < size;) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, size - at)));
    file.read_exact(at, piece);
    hash.update(piece);
    at += piece.size();
    if (stop(at)) fail(ErrorKind::Interrupted, "interrupted");
  }
  return hash.digest();
}

}  // namespace waste::download
