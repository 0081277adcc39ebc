// Which files of a repository are wanted, what of them is there already, and what the disk must still take.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "download/download.h"

namespace waste::download {

/// The entries that --include, --exclude and --layers leave. A pattern of --include that matches nothing, or
/// nothing left at all, is Error(Usage). `read` gives the content of an index file of the repository.
std::vector<Entry> choose(const std::vector<Entry>& entries, const DownloadOptions& options,
                          const std::function<std::string(const Entry&)>& read);

/// One wanted file and where its bytes will come from.
struct PlannedFile {
  enum class Source {
    Present,   // complete, and recorded as verified
    Unproven,  // a file of the right size that nothing vouches for
    Cache,     // in the shared cache
    Network,
  };
  Entry entry;
  Source source = Source::Network;
  fs::path cached;                // of Cache
  std::uint64_t present = 0;      // bytes already there, of Network
  std::uint64_t needed_disk = 0;  // bytes the disk must still take for it
};

/// Looks at the folder and the cache without changing anything.
std::vector<PlannedFile> plan_files(const std::vector<Entry>& entries, const DownloadOptions& options,
                                    const LocalFolder& folder, const fs::path& hub_cache,
                                    const std::string& repository, const std::string& commit);

/// The plan's sums. Error(Machine) from check_disk() when the disk cannot take what is still to come.
Plan summarise(const std::vector<PlannedFile>& files, const LocalFolder& folder,
               const std::string& repository, const std::string& commit);
void check_disk(const Plan& plan);

}  // namespace waste::download
