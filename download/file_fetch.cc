#include "download/file_fetch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "container/core/checksum.h"
#include "container/core/perf.h"
#include "download/connection.h"

namespace waste::download {

namespace {

// Long enough that a round trip to the server costs little, short enough that the connections of a file end
// together.
constexpr std::uint64_t kLongestRun = 64 << 20;
constexpr double kSyncInterval =
    0.5;  // seconds: what a kill or a power failure costs at most, beside a block
constexpr unsigned kMostRefetches = 2;

}  // namespace

FileFetch::FileFetch(FetchContext& context, const Entry& entry, unsigned hash_lane)
    : context_(context),
      entry_(entry),
      hash_lane_(hash_lane),
      partial_(partial_path(context.folder.file(entry.path)), context.folder.journal(entry.path), entry.size,
               entry.id),
      hash_(partial_, entry.id.kind, context.workers, hash_lane, context.mailbox,
            {[this](std::uint32_t index) { on_bad_block(index); },
             [this](const ContentId& id) { on_digest(id); }}),
      synced_(partial_.journalled()) {
  const std::uint64_t share = entry.size / (std::uint64_t{context.connections} * 2);
  longest_run_ = std::clamp<std::uint64_t>(share, partial_.block_size(), kLongestRun);
  const auto connections = std::min<std::uint64_t>(context.connections, partial_.block_count());
  for (std::uint64_t i = 0; i < connections; ++i) connections_.push_back(std::make_unique<Connection>(*this));
  next_sync_ = now_seconds() + kSyncInterval;
  hash_.advance();
}

FileFetch::~FileFetch() = default;

double FileFetch::pump(double now) {
  double next = std::numeric_limits<double>::infinity();
  if (published_ || failure_) return next;
  for (const auto& connection : connections_) {
    if (connection->is_active()) continue;
    if (!connection->has_run()) {
      if (sequential_) continue;
      const auto run = partial_.claim(longest_run_);
      if (!run) continue;
      connection->assign(*run);
    }
    if (connection->not_before() > now) {
      next = std::min(next, connection->not_before());
      continue;
    }
    const std::string url = url_for(*connection);
    if (!url.empty()) connection->start(url);
  }
  return next;
}

// The Hub is asked once a file; the ranges go to where it pointed.
std::string FileFetch::url_for(Connection& connection) {
  if (!url_.empty()) return url_;
  if (resolver_ != nullptr && resolver_ != &connection) return {};
  resolver_ = &connection;
  return file_url(context_.settings, context_.repository, context_.commit, entry_.path);
}

void FileFetch::learned_url(const Connection& connection, const std::string& url) {
  if (resolver_ == &connection) resolver_ = nullptr;
  url_ = url;
}

void FileFetch::forget_url(const std::string& url) {
  if (url_ == url) url_.clear();
}

void FileFetch::read_sequentially(Connection& connection) {
  context_.report.note(
      fmt::format("{}: the server ignores ranges; reading the file in one piece", printable(entry_.path)));
  sequential_ = true;
  resolver_ = nullptr;
  for (const auto& other : connections_) other->cancel();
  partial_.release_claims();
  connection.assign({0, entry_.size});
}

void FileFetch::on_bad_block(std::uint32_t index) {
  context_.report.file(entry_.path, "refetching", entry_.size,
                       fmt::format("block {} is not on the disk as it was written", index));
  partial_.discard(index);
  hash_.go_on_from(index);
  // A sequential reader that is still at work comes back for the block by itself.
  if (sequential_ && !connections_.front()->has_run()) connections_.front()->assign({0, entry_.size});
}

void FileFetch::on_digest(const ContentId& found) {
  if (found == entry_.id) {
    publish();
  } else {
    find_damage(found);
  }
}

void FileFetch::publish() {
  context_.workers.post(0, [this] {
    partial_.file().sync();
    partial_.journal().sync();
    context_.folder.publish(entry_, context_.commit);
    context_.mailbox.post([this] {
      published_ = true;
      synced_ = partial_.journalled();
      context_.report.file(entry_.path, "done", entry_.size);
    });
  });
}

void FileFetch::find_damage(const ContentId& found) {
  // Blocks that were hashed from memory may have been damaged on their way to the disk and back.
  std::vector<Block> blocks;
  for (std::uint32_t i = 0; i < partial_.block_count(); ++i) blocks.push_back(partial_.block(i));
  context_.workers.post(hash_lane_, [this, found, blocks = std::move(blocks)] {
    std::vector<std::uint8_t> buffer(partial_.block_size());
    std::vector<std::uint32_t> bad;
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      const auto bytes = std::span(buffer).first(blocks[i].bytes);
      partial_.file().read_exact(std::uint64_t{i} * partial_.block_size(), bytes);
      if (crc32(bytes) != blocks[i].crc) bad.push_back(i);
    }
    context_.mailbox.post([this, found, bad = std::move(bad)] { fetch_again(bad, found); });
  });
}

void FileFetch::fetch_again(const std::vector<std::uint32_t>& bad_blocks, const ContentId& found) {
  const std::string differ =
      fmt::format("{} is {}, expected {}", entry_.id.kind_name(), found.hex, entry_.id.hex);
  const bool last = refetches_++ == kMostRefetches;
  if (!last && !bad_blocks.empty()) {
    context_.report.file(entry_.path, "refetching", entry_.size,
                         fmt::format("{}; {} of {} blocks are damaged on the disk", differ, bad_blocks.size(),
                                     partial_.block_count()));
    for (const std::uint32_t index : bad_blocks) partial_.discard(index);
  } else {
    partial_.discard_all();
    if (!last) context_.report.file(entry_.path, "refetching", entry_.size, differ);
  }
  hash_.restart();
  if (last) {
    failure_ = fmt::format("{}: {}, after {} attempts", printable(entry_.path), differ, kMostRefetches + 1);
    context_.report.file(entry_.path, "failed", entry_.size, differ);
    std::error_code ignored;
    fs::remove(partial_.file().path(), ignored);
    return;
  }
  // Bytes that came from a bad cache would come from there again.
  url_.clear();
  resolver_ = nullptr;
  for (const auto& connection : connections_) connection->cancel();
  partial_.release_claims();
  if (sequential_ && !connections_.empty()) connections_.front()->assign({0, entry_.size});
  hash_.advance();
}

void FileFetch::sync_if_due(double now) {
  if (syncing_ || published_ || failure_ || now < next_sync_) return;
  next_sync_ = now + kSyncInterval;
  // Blocks that are there in part count too: on a slow line a block takes minutes.
  for (const auto& connection : connections_) connection->flush();
  partial_.save();
  if (partial_.journalled() <= synced_) return;
  syncing_ = true;
  context_.workers.post(0, [this, journalled = partial_.journalled()] {
    partial_.file().sync();
    partial_.journal().sync();
    context_.mailbox.post([this, journalled] {
      syncing_ = false;
      synced_ = journalled;
    });
  });
}

std::uint64_t FileFetch::durable() const {
  return std::min(synced_, partial_.journalled());
}

bool FileFetch::is_finished() const {
  return (published_ || failure_) && !syncing_;
}

void FileFetch::stop() {
  for (const auto& connection : connections_) connection->cancel();
  partial_.save();
  partial_.file().sync();
  partial_.journal().sync();
}

}  // namespace waste::download
