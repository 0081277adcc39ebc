// The two jobs of the program, each readable as the list of its steps.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "download/fetch.h"
#include "download/local_folder.h"
#include "download/report.h"
#include "download/settings.h"

namespace waste::download {

struct DownloadOptions {
  std::string repository;
  std::string revision = "main";
  fs::path folder;
  std::vector<std::string> include;  // shell patterns; empty for everything
  std::vector<std::string> exclude;
  std::optional<std::set<unsigned>> layers;
  bool dry_run = false;
  bool from_cache = true;
  std::uint64_t limit_rate = 0;  // bytes per second; 0 for no limit
  double stall_timeout = 30;
  FetchOptions fetch;
};

/// Resolves, lists, chooses, plans, imports from the shared cache, fetches, verifies. Offline it only
/// verifies. Returns when everything asked for is there and proved; throws Error otherwise.
void download(const DownloadOptions& options, const Settings& settings, Report& report);

/// Re-hashes everything that the folder's record (or, in a folder of `hf`, the metadata) names. Without
/// `fix`, bad or missing files are Error(Data); with it they are fetched again, by block where the journal
/// can tell which. Of `options`, the folder and what governs the transfer count.
void check(const DownloadOptions& options, const Settings& settings, bool fix, Report& report);

}  // namespace waste::download
