// The digest of a file while it arrives. Bytes that come in order are hashed from the buffer they arrived in;
// a block that came out of order is read back from the disk when its turn comes, and compared with the
// journal's crc32 on the way, so that a block which a power failure took is found before it spoils the
// digest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "download/partial_file.h"
#include "download/workers.h"

namespace waste::download {

class HashStream {
 public:
  struct Events {  // called on the event loop's thread
    std::function<void(std::uint32_t)>
        bad_block;  // this block is not on the disk as it was written; go_on_from()
    std::function<void(const ContentId&)> digest;  // of the whole file
  };

  /// `file`, `workers`, `pool` and `mailbox` must outlive this object and the tasks it has posted.
  HashStream(const PartialFile& file, ContentId::Kind kind, Workers& workers, unsigned lane, Mailbox& mailbox,
             Events events);
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;

  /// After [offset, offset + length) has been written from `buffer`: if these are the next bytes, borrows the
  /// buffer (which is exchanged for another) when the pool allows, else lets them be read back.
  void wrote(std::uint64_t offset, std::size_t length, BufferPool::Buffer& buffer, BufferPool& pool);
  /// Queues every complete block that is next in order; after the last one, the digest.
  void advance();
  /// The bytes from block `index` on will come again.
  void go_on_from(std::uint32_t index);
  /// All bytes will come again.
  void restart();

 private:
  struct State;
  void queue_read(std::uint64_t offset, std::uint64_t length, std::uint32_t block, bool whole_block);

  const PartialFile& file_;
  ContentId::Kind kind_;
  Workers& workers_;
  unsigned lane_;
  Mailbox& mailbox_;
  Events events_;
  std::shared_ptr<State> state_;
  std::uint64_t next_ = 0;        // bytes before it have been queued
  std::uint64_t generation_ = 0;  // tasks of earlier ones find their work undone
  bool digest_queued_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// The digest of a whole file on disk, and how often it should ask whether to stop: `stop` is called every
/// few MiB. Error(Interrupted) when it says so.
ContentId hash_file(const File& file, std::uint64_t size, ContentId::Kind kind,
                    const std::function<bool(std::uint64_t)>& stop);

}  // namespace waste::download
