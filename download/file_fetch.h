// One file on its way from the server to its final name: several connections, each with a run of missing
// bytes, one hash, one journal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "download/hash_stream.h"
#include "download/http.h"
#include "download/hub.h"
#include "download/local_folder.h"
#include "download/partial_file.h"
#include "download/report.h"
#include "download/workers.h"

namespace waste::download {

/// What all files of a download share. Lane 0 of `workers` syncs and publishes, the others hash.
struct FetchContext {
  Http& http;
  const Settings& settings;
  const RetryLimits& limits;
  const LocalFolder& folder;
  std::string repository;
  std::string commit;
  unsigned connections;  // a file
  Report& report;
  Mailbox& mailbox;
  BufferPool& pool;
  Workers& workers;
};

/// Belongs to the event loop's thread. Network errors that retries did not cure, and everything the disk
/// refuses, are thrown from pump() or through Http::poll; a digest that stays wrong is kept in failure().
class FileFetch {
 public:
  /// Opens the partial file. `hash_lane` is the lane that hashes it.
  FileFetch(FetchContext& context, const Entry& entry, unsigned hash_lane);
  /// Ends its transfers. The tasks it has posted must be done.
  ~FileFetch();
  FileFetch(const FileFetch&) = delete;
  FileFetch& operator=(const FileFetch&) = delete;

  /// Starts every request that is due; returns when the next will be.
  double pump(double now);
  /// Makes what has been journalled durable, now and then.
  void sync_if_due(double now);
  /// Whether it is published or has failed for good, and no task still works on it.
  bool is_finished() const;
  const std::optional<std::string>& failure() const { return failure_; }
  /// Ends all transfers and journals what is there, down to the last byte.
  void stop();

  const Entry& entry() const { return entry_; }
  std::uint64_t durable() const;

 private:
  class Connection;

  std::string url_for(Connection& connection);
  void learned_url(const Connection& connection, const std::string& url);
  void forget_url(const std::string& url);
  void read_sequentially(Connection& connection);
  void on_bad_block(std::uint32_t index);
  void on_digest(const ContentId& found);
  void find_damage(const ContentId& found);
  void fetch_again(const std::vector<std::uint32_t>& bad_blocks, const ContentId& found);
  void publish();

  FetchContext& context_;
  Entry entry_;
  unsigned hash_lane_;
  PartialFile partial_;
  HashStream hash_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::uint64_t longest_run_;
  std::string url_;                       // where its bytes are; empty until the Hub has said so
  const Connection* resolver_ = nullptr;  // the one that asks the Hub; the others wait
  bool sequential_ = false;               // the server ignores ranges
  unsigned refetches_ = 0;
  bool published_ = false;
  std::optional<std::string> failure_;
  std::uint64_t synced_;  // journalled bytes that are on stable storage
  bool syncing_ = false;
  double next_sync_ = 0;
};

}  // namespace waste::download
