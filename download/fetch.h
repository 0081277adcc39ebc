// The transfer of many files: a few at once, each over several connections, in one event loop.
#pragma once

#include <string>
#include <vector>

#include "download/file_fetch.h"

namespace waste::download {

struct FetchOptions {
  unsigned files = 4;        // at once
  unsigned connections = 4;  // a file
  RetryLimits limits;
};

/// All connections together: what keeps the memory below 100 MiB.
constexpr unsigned kMostConnections = 128;

/// Where the files are.
struct Source {
  std::string repository;
  std::string commit;
};

/// Fetches `entries` into the folder, verifies and publishes each. `present` bytes of everything that
/// progress counts are there already, outside these entries. Throws what the network or the disk refused for
/// good, or Error(Interrupted), with the state saved; returns what stayed wrong after every refetch, one line
/// a file.
std::vector<std::string> fetch_files(Http& http, const Settings& settings, const FetchOptions& options,
                                     const LocalFolder& folder, const Source& source,
                                     const std::vector<Entry>& entries, std::uint64_t present,
                                     Report& report);

}  // namespace waste::download
